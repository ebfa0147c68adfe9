"""Archives: a tree of plain values and tensors in an uncompressed zip, which nothing in it can make run code.

``manifest.json`` comes first, then ``arrays/<name>.npy``. Equal tensors are stored once, and are one tensor when read.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from typing import IO

import gpytorch
import torch
from torch import Tensor

from ..errors import StorageError
from .atomic import replacing
from .manifest import Manifest, parse, render
from .npy import Member, make_member, read_member
from .regular import open_regular
from .seal import OPEN, check_seal, seal
from .tree import Tree, full, plain

MANIFEST = "manifest.json"
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


def read(path: str | os.PathLike[str]) -> Tree:
    """The tree of an archive, everything in it checked first."""
    with open_regular(path) as file:
        return _read(file)


@contextlib.contextmanager
def told(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors inside become :class:`~mvgp.errors.StorageError` with the path, unless there is no file at all."""
    try:
        yield
    except FileNotFoundError:
        raise
    except StorageError as error:
        raise StorageError(f"{os.fspath(path)}: {error}") from error
    except Exception as error:  # bytes can be wrong in more ways than there are names for
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(f"{os.fspath(path)}: expected a saved posterior, got {reason}") from error


def _read(file: IO[bytes]) -> Tree:
    size = check_seal(file)
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        _check_members(infos, size)
        if not infos or infos[0].filename != MANIFEST:
            raise StorageError(f"expected {MANIFEST} as the first member, got {[i.filename for i in infos[:1]]}")
        manifest = parse(archive.read(infos[0]))
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
