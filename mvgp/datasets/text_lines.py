"""The lines of a text file, compressed or not, or a clear word on why it is none."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from ..errors import InputError
from .table_error import TableError

LONGEST_LINE = 1_000_000  # characters; beyond this it is no table
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


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    r"""Every line of a UTF-8 text file without its end; ``\n``, ``\r\n`` and ``\r`` end a line.

    Gzip is told by the first two bytes. A byte-order mark is dropped.

    :param path: the file.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a file, got {path!r}")
    place = Path(path)
    content = _content(place)
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


def _content(place: Path) -> bytes:
    """Decompressed."""
    if place.is_dir():
        raise TableError(place, "expected a file, got a directory")
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        raise TableError(place, "there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise TableError(place, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if content.startswith(GZIP):
        try:
            return gzip.decompress(content)
        except EOFError:
            raise TableError(place, "the gzip file is truncated: its end is missing") from None
        except (OSError, zlib.error) as error:
            raise TableError(place, f"the gzip file is damaged: {error}") from None
    if place.suffix.lower() == ".gz":
        kind = "an empty file" if not content else f"a file that begins with {content[:4]!r}"
        raise TableError(place, f"expected a gzip file, as its name says, got {kind}")
    return content


def _line_of(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1
