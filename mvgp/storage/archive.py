"""Archives: a tree of plain values and tensors in an uncompressed zip, which nothing in it can make run code.

``manifest.json`` comes first, then ``arrays/<name>.npy``. Equal tensors are stored once, and are one tensor when read.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import gpytorch
import torch
from torch import Tensor

from ..errors import InputError, StorageError
from .atomic import replacing
from .budget import Budget
from .manifest import Manifest, parse, render
from .npy import Member, make_member, read_member
from .regular import NotRegularError, open_regular
from .seal import OPEN, check_seal, seal
from .tree import Tree, full, plain

MANIFEST = "manifest.json"
ENTRY_BYTES = 512  # of the zip's directory, the most for one member on average
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal posteriors give equal bytes


def write(path: str | os.PathLike[str], content: Tree) -> None:
    """Write a tree; the file appears whole or not at all."""
    from .. import __version__

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
