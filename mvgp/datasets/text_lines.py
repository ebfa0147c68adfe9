"""The lines of a text file, compressed or not, or a clear word on why it is none."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import IO, Any

from ..errors import InputError
from ..storage.regular import NotRegularError, open_regular
from .table_error import TableError

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
