"""The one reader of a user's text tables: ids and texts (:func:`read_table`), ids and numbers (:func:`read_numbers`).

pandas splits the lines into columns. What it does not say is found here: which line is wrong, and what was expected.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...checks import check_whole_number
from ...errors import InputError
from ...storage.files import NotRegularError, open_regular

FilePath = str | os.PathLike[str]
Columns = Sequence[int | str]

MAX_BYTES = 2**30  # of a table after decompression, unless the caller gives another limit
MAX_LINE = 1_000_000  # characters of a line; a longer one is not part of a table
CHUNK = 2**20  # bytes read at a time
GZIP = b"\x1f\x8b"
BINARY_FORMATS = {  # first bytes of files that people pass by mistake
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"%PDF": "a PDF document",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma"}  # the earlier wins where several fit
SAMPLE = 1000  # lines that decide on the delimiter
MISSING = ("", "-", ".", "na", "n/a", "none", "null")  # what stands for a missing number
HEADER_WORDS = """
    accession approved associated association code col column combined curie database disease diseases disorder drug
    edge ensembl entrez entity first from gene genes hgnc hpo id identifier ids index item items key label left mesh
    mim movie name names ncbi node nodes number object official omim phenotype preferred primary product protein
    proteins right row rows score second source subject symbol symbols target task tasks term text title to type
    umls uniprot user users value weight
"""


class TableError(InputError):
    """A file is not the table that was expected.

    :param path: the file.
    :param message: what was expected and what came.
    :param line: its number, from 1; None if the error concerns the whole file.
    :param column: its name, if the error concerns one cell of the line.
    """

    def __init__(self, path: FilePath, message: str, line: int | None = None, column: str | None = None) -> None:
        self.path, self.line = Path(path), line
        where = "" if line is None else f", line {line}"
        super().__init__(f"{path}{where}{'' if column is None else f', column {column}'}: {message}")


def shortened(text: str, limit: int = 40) -> str:
    """The text in quotes, cut when it is long."""
    return repr(text) if len(text) <= limit else repr(text[:limit]) + "..."


def examples(ids: Collection[str], count: int = 3) -> str:
    """The first few ids in sorted order."""
    return ", ".join(map(shortened, sorted(ids)[:count])) + (", ..." if len(ids) > count else "")


# Bytes and lines ----------------------------------------------------------------------------------


def read_lines(path: FilePath, max_bytes: int = MAX_BYTES) -> list[str]:
    r"""Lines of a UTF-8 text file, plain or gzip'd, without their ends; ``\n``, ``\r\n`` and ``\r`` end a line."""
    return split_lines(path, read_content(path, max_bytes))


def read_content(path: FilePath, max_bytes: int = MAX_BYTES) -> bytes:
    """Bytes of a file, decompressed. Reading stops as soon as it is clear that the file is not a table."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a file, got {path!r}")
    limit, compressed = check_whole_number(max_bytes, "max_bytes"), False
    try:
        with open_regular(path) as file:
            compressed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if compressed else contextlib.nullcontext(file) as stream:
                content = _read_bounded(stream, path, limit, "of decompressed text" if compressed else "of text")
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(path, "there is no such file") from None
    except (IsADirectoryError, NotRegularError) as error:
        raise TableError(path, str(error.strerror)) from None
    except EOFError:
        raise TableError(path, "the gzip file is truncated: its end is missing") from None
    except (OSError, ValueError, zlib.error) as error:  # ValueError: a zero byte in the path
        problem = "the gzip file is damaged" if compressed else "cannot be read"
        raise TableError(path, f"{problem}: {getattr(error, 'strerror', None) or error}") from None
    if not compressed and Path(path).suffix.lower() == ".gz":
        kind = f"a file that begins with {content[:4]!r}" if content else "an empty file"
        raise TableError(path, f"expected a gzip file, as its name says, got {kind}")
    return content


def _read_bounded(file: IO[bytes] | gzip.GzipFile, path: FilePath, limit: int, kind: str) -> bytes:
    """The file up to its end, or up to the first zero byte's chunk; too many bytes or too long a line is an error."""
    content = bytearray()
    while chunk := file.read(CHUNK):
        content += chunk
        if len(content) > limit:
            raise TableError(path, f"expected at most {limit:,} bytes {kind} (max_bytes, --max-size), got more")
        tail = content[-4 * MAX_LINE - 1 :]  # a character has at most 4 bytes
        if len(tail) > 4 * MAX_LINE and b"\n" not in tail and b"\r" not in tail:
            line = _line_at(_with_newlines(bytes(content)), len(content))
            raise TableError(path, f"expected at most {MAX_LINE} characters, got at least {len(tail)} bytes", line)
        if b"\0" in chunk:
            break
    return bytes(content)


def split_lines(path: FilePath, content: bytes) -> list[str]:
    """Lines of the bytes of a text file."""
    for first_bytes, kind in BINARY_FORMATS.items():
        if content.startswith(first_bytes):
            raise TableError(path, f"expected UTF-8 text, plain or gzip'd, got {kind}")
    content = _with_newlines(content.removeprefix(b"\xef\xbb\xbf"))
    zero = content.find(b"\0")
    if zero >= 0:
        raise TableError(path, "expected text, got a zero byte: this is a binary file", _line_at(content, zero))
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        problem = f"expected UTF-8 text, got byte 0x{content[error.start]:02x}, which is not part of any character"
        raise TableError(path, problem, _line_at(content, error.start)) from None
    if max(map(len, lines)) > MAX_LINE:
        number, length = next((n, len(line)) for n, line in enumerate(lines, 1) if len(line) > MAX_LINE)
        raise TableError(path, f"expected at most {MAX_LINE} characters, got {length}", number)
    return lines[:-1] if lines[-1] == "" else lines


def _with_newlines(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _line_at(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


# Columns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a table, as text: lists of equal length.

    ``lines`` has the line number of each entry, from 1, ``comments`` the comment lines above the table.
    """

    path: Path
    columns: tuple[list[str], ...]
    lines: Sequence[int]
    header: tuple[str, ...] | None
    comments: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)


def read_table(
    path: FilePath,
    columns: Columns | None,
    *,
    ids: int = 2,
    weighted: bool = False,
    header: bool | None = None,
    delimiter: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Table:
    """Read some columns of a user's table. Blank lines and lines that begin with ``#`` are skipped.

    :param columns: their positions, from 0, or their names; when left out the first two, and the third for the weight
        if ``weighted`` and the first line has it.
    :param ids: how many of the columns, from the first on, hold ids, which may not be empty.
    :param header: whether the first line is a header; when left out, :func:`is_header` decides.
    :param delimiter: when left out, the first of tab, semicolon and comma that most lines contain.
    """
    body, numbers, comments, mark, first = _find_body(path, delimiter, max_bytes)
    file = Path(path)
    requested: Columns = range(2 + (weighted and len(first) > 2)) if columns is None else columns
    positions, in_comment = _find_columns(requested, first, comments, mark, file, numbers[0])
    _check_counts(body, numbers, max(positions) + 1, len(first), mark, file)
    fields = tuple(_clean(column, mark) for column in split_columns(file, body, positions, len(first), mark))
    has_header = header
    if any(isinstance(column, str) for column in requested):
        has_header = in_comment is None
    if has_header is None:
        weight = fields[2][0] if len(fields) > 2 else None
        has_header = is_header([column[0] for column in fields[:ids]], [column[1:] for column in fields[:ids]], weight)
    if has_header:
        fields, numbers = tuple(column[1:] for column in fields), numbers[1:]
        if not numbers:
            raise TableError(file, f"expected lines below the header, got only {shortened(mark.join(first))}")
    for number, column in enumerate(fields[:ids], 1):
        if "" in column:
            raise TableError(file, f"expected an id in column {number}, got nothing", numbers[column.index("")])
    names = first if has_header else in_comment
    return Table(file, fields, numbers, None if names is None else tuple(names), comments)


@dataclass(frozen=True, eq=False)
class NumberTable:
    """An id and D finite numbers on each of R lines; ``names`` are those of the D columns."""

    path: Path
    ids: list[str]
    values: np.ndarray  # (R, D)
    names: tuple[str, ...]
    lines: Sequence[int]
    header: tuple[str, ...] | None


def read_numbers(
    path: FilePath, *, header: bool | None = None, delimiter: str | None = None, max_bytes: int = MAX_BYTES
) -> NumberTable:
    """Read a user's table of an id and numbers; every line has all of them.

    :param header: whether the first line is a header. When left out, it is one if its first field is empty or names a
        column, or if no other field is a number or stands for a missing one.
    :param delimiter: when left out, the first of tab, semicolon and comma that most lines contain.
    """
    body, numbers, comments, mark, first = _find_body(path, delimiter, max_bytes)
    file = Path(path)
    if len(first) < 2:
        expected = f"expected an id and at least one number, separated by a {DELIMITERS.get(mark, repr(mark))}"
        raise TableError(file, f"{expected}, got {shortened(body[0])}", numbers[0])
    _check_counts(body, numbers, len(first), len(first), mark, file)
    names = None
    if comments:
        fields = [field.strip() for field in comments[-1].lstrip().lstrip("#").split(mark)]
        names = fields if len(fields) == len(first) else None
    if _heads_numbers(first, body, mark) if header is None else header:
        names, body, numbers = first, body[1:], numbers[1:]
        if not body:
            raise TableError(file, f"expected lines below the header, got only {shortened(mark.join(first))}")
    columns = tuple(names[1:]) if names else tuple(f"{number}" for number in range(2, len(first) + 1))
    ids, values = _parse_numbers(file, body, numbers, columns, mark)
    if "" in ids:
        raise TableError(file, "expected an id in column 1, got nothing", numbers[ids.index("")])
    return NumberTable(file, ids, values, columns, numbers, None if names is None else tuple(names))


def _heads_numbers(first: list[str], body: list[str], mark: str) -> bool:
    """Whether the first line names columns of numbers."""
    if first[0] == "" or not any(is_number(cell) or cell.lower() in MISSING for cell in first[1:]):
        return True
    later = [_clean(line.split(mark, 1)[:1], mark)[0] for line in body[1:]]
    return _names_a_column(first[0]) and is_header(first[:1], [later])


def _parse_numbers(
    path: Path, body: list[str], lines: Sequence[int], names: Sequence[str], mark: str
) -> tuple[list[str], np.ndarray]:
    """Ids, and numbers (R, D). The quick parser reads plain numbers; what it refuses is looked at cell by cell."""
    try:
        if '"' in "".join(body):
            raise ValueError("quotes")
        ids = [line.split(mark, 1)[0].strip() for line in body]
        values = np.loadtxt(body, delimiter=mark, usecols=range(1, len(names) + 1), comments=None, ndmin=2)
    except ValueError:
        ids, values = [], np.empty((len(body), len(names)))
        for number, line in enumerate(body):
            first, *cells = _clean(_split_line(line, mark, path, lines[number]), mark)
            ids.append(first)
            values[number] = [float(cell) if is_number(cell) and "_" not in cell else np.nan for cell in cells]
    bad = ~np.isfinite(values)
    if bad.any():
        at, column = np.argwhere(bad)[0].tolist()
        cell = _clean(_split_line(body[at], mark, path, lines[at]), mark)[column + 1]
        raise TableError(path, f"expected a finite number, got {shortened(cell)}", lines[at], names[column])
    return ids, values


def _find_body(
    path: FilePath, delimiter: str | None, max_bytes: int
) -> tuple[list[str], Sequence[int], tuple[str, ...], str, list[str]]:
    """Lines of the table and their numbers, the comments above it, the delimiter, the fields of the first line."""
    lines = read_lines(path, max_bytes)
    numbers = [number for number, line in enumerate(lines, 1) if line.lstrip()[:1] not in ("", "#")]
    if not numbers:
        kind = "only comments" if any(map(str.strip, lines)) else "an empty file"
        raise TableError(path, f"expected a table, got {kind}")
    comments = tuple(line for line in lines[: numbers[0] - 1] if line.strip())
    body = [lines[number - 1] for number in numbers]
    mark = delimiter or max(DELIMITERS, key=lambda mark: sum(mark in line for line in body[:SAMPLE]))
    return body, numbers, comments, mark, [f.strip() for f in _split_line(body[0], mark, Path(path), numbers[0])]


def split_columns(path: FilePath, lines: list[str], positions: Sequence[int], width: int, mark: str) -> list[Any]:
    """Fields at some positions, column by column, as text: "007" stays "007", and "NA" is a name.

    ``width`` is the largest number of fields of a line, ``mark`` the delimiter. With tabs, quotes are ordinary
    characters; otherwise they are those of CSV files.
    """
    try:
        import pandas
    except ImportError as error:
        raise InputError(f"tables are read with pandas ({error}); pip install 'mvgp[cli]' installs it") from error
    try:
        frame = pandas.read_csv(
            io.StringIO("\n" + "\n".join(lines)),  # pandas would drop a byte-order mark at the very beginning
            skiprows=1,
            sep=mark,
            engine="c" if mark.isascii() else "python",
            header=None,
            names=range(width),
            usecols=sorted(set(positions)),
            index_col=False,
            dtype=object,
            na_filter=False,
            quoting=csv.QUOTE_NONE if mark == "\t" else csv.QUOTE_MINIMAL,
            skipinitialspace=mark not in "\t ",
            skip_blank_lines=False,
        )
    except pandas.errors.ParserError as error:
        raise TableError(path, f"cannot be split into columns: {error}") from error
    return [frame[position].tolist() for position in positions]


def _split_line(line: str, mark: str, path: Path, number: int) -> list[str]:
    """Fields of one line. A quoted field of a CSV file may not continue on the next line."""
    if mark == "\t" or '"' not in line:
        return _clean(line.split(mark), mark)
    with contextlib.suppress(csv.Error):
        return next(csv.reader([line], delimiter=mark, strict=True, skipinitialspace=mark != " "))
    raise TableError(path, f"expected every quote to be closed on its line, got {shortened(line)}", number)


def _clean(fields: list[str], mark: str) -> list[str]:
    """Without spaces around, and with tabs without the quotes around a field."""
    stripped = list(map(str.strip, fields))
    if mark != "\t" or '"' not in "".join(stripped):
        return stripped
    return [f[1:-1].replace('""', '"').strip() if f[:1] == '"' == f[-1:] and len(f) > 1 else f for f in stripped]


def _check_counts(lines: list[str], numbers: Sequence[int], minimum: int, maximum: int, mark: str, path: Path) -> None:
    """Refuse the first line with fewer than ``minimum`` or more than ``maximum`` fields."""
    counts, name = [line.count(mark) + 1 for line in lines], DELIMITERS.get(mark, repr(mark))
    quoted = mark != "\t" and '"' in "".join(lines)
    if not quoted and minimum <= min(counts) and max(counts) <= maximum:
        return
    for line, count, number in zip(lines, counts, numbers, strict=True):
        if quoted and '"' in line:
            count = len(_split_line(line, mark, path, number))
        if count < minimum:
            hint = " (tab, semicolon or comma would do)" if maximum == 1 and mark in DELIMITERS else ""
            expected = f"expected at least {minimum} fields separated by a {name}, got {count}{hint}"
            raise TableError(path, f"{expected}: {shortened(line)}", number)
        if count > maximum:
            problem = f"expected at most {maximum} fields, as on the first line, got {count}"
            raise TableError(path, f"{problem} (a field that contains a {name} needs quotes)", number)


def _find_columns(
    requested: Columns, first: list[str], comments: tuple[str, ...], mark: str, path: Path, line: int
) -> tuple[list[int], list[str] | None]:
    """Positions of the requested columns, and the last comment above the table if it has all their names."""
    words = [column for column in requested if isinstance(column, str)]
    names, in_comment = first, None
    if words and comments:
        fields = [field.strip() for field in comments[-1].lstrip().lstrip("#").split(mark)]
        if len(fields) == len(first) and set(words).issubset(fields):
            names = in_comment = fields
    for word in words:
        if names.count(word) != 1:
            problem = "no column" if word not in names else "more than one column"
            raise TableError(path, f"{problem} is called {word!r}; there are {', '.join(map(shortened, names))}", line)
    return [names.index(column) if isinstance(column, str) else column for column in requested], in_comment


def is_header(first: list[str], ids: list[list[str]], weight: str | None = None) -> bool:
    """Whether ``first`` names columns rather than being a line of ids. In doubt it is data, and nothing is lost.

    It is data if one of its fields is an id of a later line. Otherwise, with weights, it is a header if its weight is
    a word. Without weights it is a header if no field has the form of a later id (the same up to digits) and one of:

    - a field consists of words such as "gene", "id" or "source", and so does the other, or it has no digit;
    - no field has a digit, and all ids of later lines do.

    ``ids`` are those of the other lines, column by column; ``weight`` is that of the first line.
    """
    if weight is not None:
        wordy = weight != "" and not is_number(weight) and not _has_digit(weight)
    elif any(map(_names_a_column, first)):
        wordy = all(_names_a_column(field) or not _has_digit(field) for field in first)
    else:
        wordy = not any(map(_has_digit, first)) and all(column and all(map(_has_digit, column)) for column in ids)
    if not wordy or any(field in column for field in first for column in ids):
        return False
    with_digits = [(field, column) for field, column in zip(first, ids, strict=True) if _has_digit(field)]
    form = partial(re.sub, r"\d+", "0")
    return weight is not None or not any(form(field) in map(form, column) for field, column in with_digits)


def is_number(text: str) -> bool:
    """Whether the text is a number, nan and infinity included."""
    with contextlib.suppress(ValueError):
        return float(text) is not None
    return False


def _names_a_column(field: str) -> bool:
    """As "disease_id", "geneSymbol2" and "Gene Symbol" do."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", field)
    words = [word for word in re.findall(r"[^\W\d_]+", spaced.lower()) if len(word) > 1]  # not the a of "gene_a"
    return bool(words) and set(HEADER_WORDS.split()).issuperset(words) and sum(map(str.isdigit, field)) <= 1


def _has_digit(text: str) -> bool:
    return re.search(r"\d", text) is not None
