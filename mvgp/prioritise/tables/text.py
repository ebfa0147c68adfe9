"""Whether the first line of a table is a header, told from what is in it."""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from pathlib import Path
from typing import IO, Any

from ...errors import InputError
from ...storage.files import NotRegularError, open_regular


class TableError(InputError):
    """A file is not the table that was expected.

    :param path: the file.
    :param message: what was expected and what came.
    :param line: its number, from 1; none if it is about the whole file.
    """

    def __init__(self, path: str | os.PathLike[str], message: str, line: int | None = None) -> None:
        self.path, self.line = Path(path), line
        super().__init__(f"{path}: {message}" if line is None else f"{path}, line {line}: {message}")


def shown_field(text: str, limit: int = 40) -> str:
    """Quoted, and cut when it is long."""
    return repr(text) if len(text) <= limit else repr(text[:limit]) + "..."


def some(ids: list[str] | set[str], count: int = 3) -> str:
    """A few of the ids, the first in sorted order."""
    listed = sorted(ids)
    return ", ".join(map(shown_field, listed[:count])) + (", ..." if len(listed) > count else "")


LONGEST_LINE = 1_000_000  # characters; beyond this it is no table
MAX_BYTES = 2**30  # of a table, unless another number is given
CHUNK = 2**20
GZIP = b"\x1f\x8b"
FOREIGN = {  # first bytes of what people hand over by mistake
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"%PDF": "a PDF document",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


def read_lines(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> list[str]:
    r"""Every line of a UTF-8 text file without its end; ``\n``, ``\r\n`` and ``\r`` end a line.

    Gzip is told by the first two bytes. A byte-order mark is dropped. Reading stops where it is clear that this is no
    table: behind the largest size, in a line that does not end, at a zero byte.

    :param path: the file, a regular one.
    :param max_bytes: the largest size, after decompression.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a file, got {path!r}")
    place = Path(path)
    content = _content(place, check_max_bytes(max_bytes))
    for start, kind in FOREIGN.items():
        if content.startswith(start):
            raise TableError(place, f"expected UTF-8 text, plain or gzip'd, got {kind}")
    content = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    zero = content.find(b"\0")
    if zero >= 0:
        raise TableError(place, "expected text, got a zero byte: this is a binary file", _line_of(content, zero))
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"expected UTF-8 text, got byte 0x{content[error.start]:02x} that is none"
        raise TableError(place, found, _line_of(content, error.start)) from None
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise TableError(place, f"expected at most {LONGEST_LINE} characters, got {len(line)}", number)
    return lines[:-1] if lines[-1] == "" else lines


def check_max_bytes(given: Any) -> int:
    """A size that a table may have."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InputError(f"max_bytes: expected a positive whole number of bytes, got {given!r}")
    return given


def _content(place: Path, most: int) -> bytes:
    """Decompressed, at most so many bytes."""
    with _opened(place) as file:
        begin = file.read(len(GZIP))
        file.seek(0)
        if begin == GZIP:
            return _decompressed(file, place, most)
        try:
            content = _bounded(file, place, most, "of text")
        except OSError as error:
            raise TableError(place, f"cannot be read: {error.strerror or error}") from None
    if place.suffix.lower() == ".gz":
        kind = "an empty file" if not content else f"a file that begins with {content[:4]!r}"
        raise TableError(place, f"expected a gzip file, as its name says, got {kind}")
    return content


def _decompressed(file: IO[bytes], place: Path, most: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=file) as inside:
            return _bounded(inside, place, most, "of decompressed text")
    except EOFError:
        raise TableError(place, "the gzip file is truncated: its end is missing") from None
    except (OSError, zlib.error) as error:
        raise TableError(place, f"the gzip file is damaged: {error}") from None


def _opened(place: Path) -> IO[bytes]:
    try:
        return open_regular(place)
    except FileNotFoundError:
        raise TableError(place, "there is no such file") from None
    except (IsADirectoryError, NotRegularError) as error:
        raise TableError(place, str(error.strerror)) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise TableError(place, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _bounded(file: IO[bytes] | gzip.GzipFile, place: Path, most: int, what: str) -> bytes:
    """All of a file, or as much of it as shows that it is no table."""
    parts: list[bytes] = []
    size, unended = 0, 0  # bytes, all of them and since the last end of a line
    while part := file.read(CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise TableError(place, f"expected at most {most:,} bytes {what} (max_bytes, --max-size), got more")
        ended = max(part.rfind(b"\n"), part.rfind(b"\r"))
        unended = len(part) - 1 - ended if ended >= 0 else unended + len(part)
        if unended > LONGEST_LINE * 4:  # bytes of a letter, at most
            line = b"".join(parts).replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
            raise TableError(place, f"expected at most {LONGEST_LINE} characters, got at least {unended} bytes", line)
        if b"\0" in part:
            break  # no text
    return b"".join(parts)


def _line_of(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1


DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma"}  # the earlier wins where several would do
SAMPLE = 1000  # lines that are looked at


def find_delimiter(lines: list[str]) -> str:
    """The first of tab, semicolon and comma that is in every line; failing that, the one in most of them.

    :param lines: without comments and blank ones, at least one.
    """
    sample = lines[:SAMPLE]
    counts = {mark: sum(mark in line for line in sample) for mark in DELIMITERS}
    return max(DELIMITERS, key=lambda mark: counts[mark])


def split_fields(line: str, delimiter: str, path: Path, number: int) -> list[str]:
    """The fields without their quotes.

    With tabs, a field that begins and ends with a quote is unquoted, and any other quote is an ordinary character. With
    other delimiters quotes are those of CSV files; a field does not go on in the next line.
    """
    if '"' not in line:
        return line.split(delimiter)
    if delimiter == "\t":
        return [_unquoted(field.strip()) for field in line.split(delimiter)]
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True))
    except csv.Error:
        raise TableError(
            path, f"expected every quote to be closed on its line, got {shown_field(line)}", number
        ) from None


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"':
        return field[1:-1].replace('""', '"')
    return field


DIGIT, DIGITS = re.compile(r"\d"), re.compile(r"\d+")
LISTED = """
    accession approved associated association code col column combined curie database disease diseases disorder drug
    edge ensembl entrez entity first from gene genes hgnc hpo id identifier ids index item items key label left mesh
    mim movie name names ncbi node nodes number object official omim phenotype preferred primary product protein
    proteins right row rows score second source subject symbol symbols target task tasks term text title to type
    umls uniprot user users value weight
"""
COLUMN_WORDS = frozenset(LISTED.split())


def is_header(first: list[str], ids: list[list[str]], weight: str | None = None) -> bool:
    """Whether ``first`` names columns rather than being a line of ids.

    It is none if one of its fields is an id of a later line. With weights it then is a header if its weight is a word.
    Without weights it is one if none of its fields is built like a later id (the same up to digits) and they are words:
    either one of them consists of words such as "gene", "id" or "source" and the other too or is without a digit, or
    each is without a digit in a column of ids that all have some. In doubt it is data, and nothing is lost.

    :param first: the ids of the first line.
    :param ids: those of the other lines, column by column.
    :param weight: of the first line, in a table with weights.
    """
    if weight is not None:
        wordy = weight != "" and not is_number(weight) and not _has_digit(weight)
    elif any(map(_names_a_column, first)):
        wordy = all(_names_a_column(field) or not _has_digit(field) for field in first)
    else:
        wordy = not any(map(_has_digit, first)) and all(column and all(map(_has_digit, column)) for column in ids)
    if not wordy or any(field in column for field in first for column in ids):
        return False
    digits = [(field, column) for field, column in zip(first, ids, strict=True) if _has_digit(field)]
    return weight is not None or not any(_form(field) in map(_form, column) for field, column in digits)


def is_number(text: str) -> bool:
    """Also nan and infinity, which are no weights but no names either."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names_a_column(field: str) -> bool:
    """As "disease_id", "geneSymbol2" and "Gene Symbol" do."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", field)
    words = re.findall(r"[^\W\d_]+", spaced.lower())
    known = COLUMN_WORDS.issuperset(word for word in words if len(word) > 1)  # single letters: "gene_a"
    return known and any(len(word) > 1 for word in words) and sum(map(str.isdigit, field)) <= 1


def _has_digit(text: str) -> bool:
    return DIGIT.search(text) is not None


def _form(text: str) -> str:
    return DIGITS.sub("0", text)
