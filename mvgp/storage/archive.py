"""Archives: a tree of plain values and tensors in an uncompressed zip, which nothing in it can make run code.

``manifest.json`` comes first, then ``arrays/<name>.npy``. Equal tensors are stored once, and are one tensor when read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import gpytorch
import torch
from torch import Tensor

from ..errors import InputError, StorageError
from .budget import Budget, Tree, full, plain
from .files import NotRegularError, open_regular, replacing
from .npy import ArrayEntry, Member, make_member, read_member

WORD = b"mvgp sha256 "
LENGTH = 64  # hexadecimal digits
OPEN = WORD + b"0" * LENGTH  # the comment of a file that is yet to be sealed
CHUNK = 2**22


def seal(file: IO[bytes]) -> None:
    """Fill in the digits of a file that ends with OPEN."""
    digits = _digest(file)
    file.seek(-LENGTH, os.SEEK_END)
    file.write(digits)


def check_seal(file: IO[bytes]) -> int:
    """The file's size, if its seal is whole."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begin = file.read(4)
    if size == 0:
        raise StorageError("expected a saved posterior, got an empty file")
    if begin != b"PK\x03\x04":
        raise StorageError(f"expected a saved posterior (a zip), got a file that begins with {begin!r}")
    file.seek(max(0, size - len(OPEN)))
    end = file.read()
    if not end.startswith(WORD) or len(end) != len(OPEN):
        raise StorageError("expected the seal of mvgp at the end, got none: it is cut short, or not a saved posterior")
    found = _digest(file)
    sealed = end[len(WORD) :]
    if sealed != found:
        raise StorageError(f"expected sha256 {sealed!r} as sealed, got {found!r}: it is damaged or was changed")
    return size


def _digest(file: IO[bytes]) -> bytes:
    """Of everything but the last digits."""
    left = file.seek(0, os.SEEK_END) - LENGTH
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0:
        part = file.read(min(CHUNK, left))
        if not part:
            break
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()


FORMAT = "mvgp-posterior"
VERSION = 1  # raised with every change that an older mvgp would misread
NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
DEEPEST = 100  # parts inside parts
KEYS = {"format", "version", "written_by", "arrays", "content", "sha256"}


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` says.

    :param arrays: entries by name.
    :param content: the tree, tensors by name.
    """

    arrays: dict[str, ArrayEntry]
    content: Any


def render(manifest: Manifest, written_by: dict[str, str]) -> bytes:
    """The text of ``manifest.json``, with its own SHA-256."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": written_by,
        "arrays": {name: entry.described() for name, entry in manifest.arrays.items()},
        "content": manifest.content,
    }
    return json.dumps({**body, "sha256": _array_digest(body)}, indent=1, allow_nan=False).encode()


def parse(text: bytes, budget: Budget) -> Manifest:
    """The checked manifest: format and version first, so that a newer file is called that."""
    # each value but the first follows one of these; those inside a text count as well
    budget.allows("values", sum(text.count(mark) for mark in (b",", b"[", b"{")), "manifest")
    try:
        found = json.loads(text.decode(), object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"manifest: expected JSON, got {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        got = found.get("format") if isinstance(found, dict) else found
        raise StorageError(f"manifest: expected format {FORMAT!r}, got {got!r:.100}")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise StorageError(f"manifest: expected a positive whole number as version, got {version!r:.100}")
    if version > VERSION:
        raise StorageError(f"written by a newer mvgp: version {version}, this one reads up to {VERSION}")
    if set(found) != KEYS:
        raise StorageError(f"manifest: expected {', '.join(sorted(KEYS))}, got {sorted(found)!r:.200}")
    _check_depth(found)
    digest = found.pop("sha256")
    if digest != _array_digest(found):
        raise StorageError(f"manifest: expected sha256 {digest!r:.80}, got {_array_digest(found)}")
    entries = found["arrays"]
    if isinstance(entries, dict):
        budget.allows("arrays", len(entries), "manifest")
    if not isinstance(entries, dict) or not all(NAME.fullmatch(name) for name in entries):
        raise StorageError(f"manifest: expected arrays by names of letters, digits, _ and dots, got {entries!r:.200}")
    return Manifest({name: ArrayEntry.checked(entry, name) for name, entry in entries.items()}, found["content"])


def _array_digest(body: dict[str, Any]) -> str:
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"manifest: expected finite numbers, got {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


def _check_depth(tree: Any) -> None:
    """Parts inside parts, level by level, so that deep ones end no stack."""
    level = [tree]
    for _ in range(DEEPEST):
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise StorageError(f"manifest: expected parts inside one another up to {DEEPEST} deep, got deeper ones")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key that occurs twice")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word}, which is no JSON")


MANIFEST = "manifest.json"
ENTRY_BYTES = 512  # of the zip's directory, the most for one member on average
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal posteriors give equal bytes


def write(path: str | os.PathLike[str], content: Tree) -> None:
    """Write a tree; the file appears whole or not at all."""
    from ..version import __version__

    members: dict[str, Member] = {}
    names: dict[str, str] = {}  # by what is in them

    def put(where: str, tensor: Tensor) -> str:
        member = make_member(tensor, where)
        name = names.setdefault(member.entry.sha256, where)
        members.setdefault(name, member)
        return name

    tree = plain(content, put)
    manifest = Manifest({name: member.entry for name, member in members.items()}, tree)
    written_by = {"mvgp": __version__, "torch": torch.__version__, "gpytorch": gpytorch.__version__}
    text = render(manifest, written_by)
    with replacing(os.fspath(path)) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = OPEN
            archive.writestr(_info(MANIFEST, len(text)), text)
            for name, member in members.items():
                with archive.open(_info(_path(name), member.size), "w") as place:
                    member.write(place)
        seal(file)


def read(path: str | os.PathLike[str], budget: Budget | None = None) -> Tree:
    """The tree of an archive, everything in it checked first.

    :param budget: limits; the usual ones when left out.
    """
    with open_regular(path) as file:
        return _read(file, budget or Budget())


@contextlib.contextmanager
def told(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors inside become :class:`~mvgp.errors.StorageError` with the path, unless there is no file at all."""
    name = _checked_path(path)
    try:
        yield
    except FileNotFoundError:
        raise
    except StorageError as error:
        raise StorageError(f"{name}: {error}") from error
    except NotRegularError as error:
        raise StorageError(f"{name}: {error.strerror}") from error
    except Exception as error:  # bytes can be wrong in more ways than there are names for
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(f"{name}: expected a saved posterior, got {reason:.1000}") from error


def _checked_path(path: Any) -> str:
    """The path as a text; numbers are no paths, though ``open`` takes them for files that are open already."""
    found = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(found, str):
        raise InputError(f"path: expected the path of a file, a text or a pathlib.Path, got {path!r:.100}")
    return found


def _read(file: IO[bytes], budget: Budget) -> Tree:
    size = file.seek(0, os.SEEK_END)
    budget.allows("file_bytes", size, "file")
    check_seal(file)
    _check_directory(file, size, budget)
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        _check_members(infos, size)
        if not infos or infos[0].filename != MANIFEST:
            raise StorageError(f"expected {MANIFEST} as the first member, got {[i.filename for i in infos[:1]]}")
        budget.allows("manifest_bytes", infos[0].file_size, MANIFEST)
        manifest = parse(archive.read(infos[0]), budget)
        expected = {MANIFEST, *(_path(name) for name in manifest.arrays)}
        found = {info.filename: info for info in infos}
        if set(found) != expected:
            raise StorageError(
                f"expected the members that the manifest lists, got {len(found)}: "
                f"missing {sorted(expected - set(found))!r:.200}, unknown {sorted(set(found) - expected)!r:.200}"
            )
        arrays = {}
        for name, entry in manifest.arrays.items():
            info = found[_path(name)]
            with archive.open(info) as member:
                arrays[name] = read_member(member, info.file_size, entry, name)
    tree = full(manifest.content, arrays)
    if not isinstance(tree, dict):
        raise StorageError(f"content: expected named parts, got {type(tree).__name__}")
    return tree


def _check_directory(file: IO[bytes], size: int, budget: Budget) -> None:
    """The zip's own directory holds no more than the budget allows; known from its last record, before it is read."""
    record, locator, large = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
    at = size - len(OPEN) - record.size
    found = _unpacked(file, record, at)
    if found is None or found[0] != b"PK\x05\x06":
        raise StorageError("expected a saved posterior, got BadZipFile: no directory before the seal")
    length = found[5]
    where = _unpacked(file, locator, at - locator.size)
    if where is not None and where[0] == b"PK\x06\x07":  # beyond four gigabytes
        wide = _unpacked(file, large, at - locator.size - large.size)
        if wide is None or wide[0] != b"PK\x06\x06":
            raise StorageError("expected a saved posterior, got BadZipFile: no directory of a large zip")
        length = wide[8]
    if length > ENTRY_BYTES * (budget.arrays + 1):
        budget.allows("arrays", length // ENTRY_BYTES, "file")


def _unpacked(file: IO[bytes], kind: struct.Struct, at: int) -> tuple[Any, ...] | None:
    """A record at a place of the file, or None if there is no room for one."""
    if at < 0:
        return None
    file.seek(at)
    return kind.unpack(file.read(kind.size))


def _check_members(infos: list[zipfile.ZipInfo], size: int) -> None:
    """Distinct names, nothing compressed or encrypted, no more bytes than the file has."""
    names = set()
    for info in infos:
        if info.filename in names:
            raise StorageError(f"expected each member once, got {info.filename!r:.100} twice")
        names.add(info.filename)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
            raise StorageError(f"expected members that are stored as they are, got {info.filename!r:.100} otherwise")
    total = sum(info.file_size for info in infos)
    if total > size:
        raise StorageError(f"expected members of at most {size} bytes, the file's size, got {total}")


def _path(name: str) -> str:
    return f"arrays/{name}.npy"


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.file_size, info.external_attr = size, 0o644 << 16
    return info
