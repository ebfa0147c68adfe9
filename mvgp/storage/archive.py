"""Archives: a tree of plain values and tensors in one safetensors file, in which nothing can run code.

The tree is JSON in the metadata of the file, under the key ``mvgp``: a tensor stands there as the name of its array, a
number that is not finite as a word. Equal tensors are stored once, and are one tensor when read. The metadata begin
with the SHA-256 of the whole file, taken with zeros in place of its digits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import IO, Any

import gpytorch
import numpy as np
import torch
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from ..errors import InputError, StorageError
from ..version import __version__
from .fields import Budget
from .files import NotRegularError, open_regular, parse_json, replacing

Tree = dict[str, Any]

FORMAT = "mvgp-posterior"
VERSION = 2  # raised with every change that an older mvgp would misread
EXPECTED = f"expected a saved posterior (safetensors, version {VERSION})"
KEYS = {"sha256", "format", "version", "written_by", "fortran_order", "content"}
START = b'{"__metadata__":{"mvgp":"{\\"sha256\\":\\"'  # of every header; the digits follow
LENGTH = 8  # bytes of the header's length, before the header
DIGITS = slice(LENGTH + len(START), LENGTH + len(START) + 64)  # where the checksum stands in a file
ZEROS = b"0" * 64
OFFSETS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d{1,20}\s*,\s*(\d{1,20})')  # of an array; the second is its end
TYPES = {"float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "bool": "BOOL"}  # safetensors' names
MAX_DIMENSIONS = 8
MAX_SIZE = 2**47  # of one dimension
MAX_DEPTH = 100  # parts inside parts
ARRAY, NUMBER = "$array", "$number"
USUAL = Budget()
WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@contextlib.contextmanager
def wrap_storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors inside into a :class:`~mvgp.errors.StorageError` that names the file, unless there is no file."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str):  # ``open`` takes a number for a file that is open already
        raise InputError(f"path: expected the path of a file, a text or a pathlib.Path, got {path!r:.100}")
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


def write(path: str | os.PathLike[str], content: Tree) -> None:
    """Write a tree; the file appears whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    transposed: list[str] = []
    names: dict[tuple[Any, ...], str] = {}  # by what is in them

    def store(where: str, tensor: Tensor) -> str:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout != torch.strided or dtype not in TYPES:
            raise InputError(f"{where}: expected a dense tensor of {', '.join(TYPES)}, got {dtype}, {tensor.layout}")
        fortran = _is_fortran(tensor)
        array = (_reversed(tensor) if fortran else tensor).detach().cpu().contiguous().numpy()
        name = names.setdefault((dtype, array.shape, fortran, hashlib.sha256(array.data).digest()), where)
        if name not in arrays:
            arrays[name] = array
            transposed.extend([name] * fortran)
        return name

    text = {
        "sha256": ZEROS.decode(),
        "format": FORMAT,
        "version": VERSION,
        "written_by": {"mvgp": __version__, "torch": torch.__version__, "gpytorch": gpytorch.__version__},
        "fortran_order": transposed,  # filled by the next
        "content": _to_json(content, store, ""),
    }
    data = save_arrays(arrays, {"mvgp": json.dumps(text, separators=(",", ":"), allow_nan=False)})
    assert data[LENGTH : DIGITS.start] == START
    with replacing(os.fspath(path)) as file:
        file.write(data[: DIGITS.start] + checksum(data))
        file.write(memoryview(data)[DIGITS.stop :])


def checksum(data: bytes) -> bytes:
    """The SHA-256 of a file's bytes with zeros where its digits are, in hexadecimal digits."""
    view, digest = memoryview(data), hashlib.sha256(data[: DIGITS.start] + ZEROS)
    digest.update(view[DIGITS.stop :])
    return digest.hexdigest().encode()


def read(path: str | os.PathLike[str], budget: Budget = USUAL) -> Tree:
    """The tree of an archive, everything in it checked first."""
    with open_regular(path) as file:
        data, length = _read_bytes(file, budget)
    text = _parse_header(data[LENGTH : LENGTH + length], budget)
    arrays = load_arrays(data)
    del data
    transposed = text["fortran_order"]
    if not isinstance(transposed, list) or not all(isinstance(name, str) and name in arrays for name in transposed):
        raise StorageError(f"manifest: expected names of arrays as fortran_order, got {transposed!r:.200}")
    tensors = {}
    for name in list(arrays):
        array = arrays.pop(name)
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise StorageError(f"array {name:.100}: expected bytes 0 and 1 for booleans, got others")
        tensor = torch.tensor(array)  # a copy, aligned as torch does
        tensors[name] = _reversed(tensor) if name in transposed else tensor
    tree: Tree = _from_json(text["content"], tensors)  # Fields refuse what is none
    return tree


def _read_bytes(file: IO[bytes], budget: Budget) -> tuple[bytes, int]:
    """The bytes of a file whose checksum is right, and the length of its header; sizes are checked first."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(DIGITS.start)
    if not start:
        raise StorageError("expected a saved posterior, got an empty file")
    if start.startswith(b"PK\x03\x04"):
        raise _refuse_zip(start + file.read(1000))
    if start[LENGTH:] != START:
        raise StorageError(f"{EXPECTED}, got a file that begins with {start[:40]!r}")
    budget.allows("file_bytes", size, "file")
    length = int.from_bytes(start[:LENGTH], "little")
    if length > size - LENGTH:
        raise StorageError(f"expected a header of {length} bytes, got a file of {size}: it is cut short or damaged")
    budget.allows("manifest_bytes", length, "manifest")
    ends = OFFSETS.findall(start + file.read(max(0, LENGTH + length - len(start))))
    whole = LENGTH + length + max(map(int, ends), default=0)
    if size > whole + 2**20:  # before the rest is read, which may be a hole of gigabytes; less is found below
        raise StorageError(f"expected {whole} bytes by the header, got {size}: it is cut short, damaged or was changed")
    file.seek(0)
    data = file.read(size)
    expected, computed = data[DIGITS], checksum(data)
    if expected != computed:
        raise StorageError(f"expected sha256 {expected!r}, got {computed!r}: it is cut short, damaged or was changed")
    return data, length


def _refuse_zip(start: bytes) -> StorageError:
    """For files of version 1, which were zips; they say near their start which mvgp wrote them."""
    writer = re.search(rb'"version": (\d{1,9}),\s+"written_by": {\s+"mvgp": "([\w.+]{1,40})"', start)
    if writer is None:
        return StorageError(f"{EXPECTED}, got a zip")
    version, mvgp = (part.decode() for part in writer.groups())
    return StorageError(
        f"expected a file of version {VERSION}, got version {version}, written by mvgp {mvgp} as a zip: fit the model "
        f"again and save it, or load the file with the mvgp that wrote it"
    )


def _parse_header(header: bytes, budget: Budget) -> Tree:
    """The checked metadata: format and version first, so that a newer file is called that."""
    # each value but the first follows one of these; those inside a text count as well
    budget.allows("values", sum(header.count(mark) for mark in (b",", b"[", b"{")), "manifest")
    entries = _parse(header)
    metadata = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
    if not isinstance(metadata, dict) or set(metadata) != {"mvgp"} or not isinstance(metadata["mvgp"], str):
        raise StorageError(f"manifest: expected metadata with the one key 'mvgp', got {metadata!r:.100}")
    text = _parse(metadata["mvgp"])
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        got = text.get("format") if isinstance(text, dict) else text
        raise StorageError(f"manifest: expected format {FORMAT!r}, got {got!r:.100}")
    version = text.get("version")
    if type(version) is not int or version < 1:
        raise StorageError(f"manifest: expected a positive whole number as version, got {version!r:.100}")
    if version > VERSION:
        raise StorageError(f"written by a newer mvgp: version {version}, this one reads up to {VERSION}")
    if version < VERSION or set(text) != KEYS:
        raise StorageError(f"manifest: expected version {VERSION} with {sorted(KEYS)}, got {sorted(text)!r:.200}")
    budget.allows("arrays", len(entries), "manifest")
    for name, entry in entries.items():
        _check_entry(name, entry)
    return text


def _parse(text: bytes | str) -> Any:
    try:
        return parse_json(text, max_depth=MAX_DEPTH)
    except ValueError as error:
        raise StorageError(f"manifest: expected JSON, got {error!s:.200}") from error


def _check_entry(name: str, entry: Any) -> None:
    """Type and shape of an array; safetensors compares them with its offsets, and those with the file."""
    where = f"array {name:.100}: expected"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise StorageError(f"{where} dtype, shape and data_offsets, got {entry!r:.200}")
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in list(TYPES.values()):
        raise StorageError(f"{where} dtype {', '.join(TYPES)}, got {dtype!r:.50}")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < MAX_SIZE for size in shape):
        raise StorageError(f"{where} a shape of whole numbers, got {shape!r:.100}")
    if len(shape) > MAX_DIMENSIONS:
        raise StorageError(f"{where} at most {MAX_DIMENSIONS} dimensions, got {len(shape)}")


def _to_json(tree: Any, store: Callable[[str, Tensor], str], where: str) -> Any:
    """The tree as JSON can hold it; ``store`` takes a tensor and its place, and returns the name of its array."""
    if isinstance(tree, Tensor):
        return {ARRAY: store(where, tree)}
    if isinstance(tree, dict):
        return {key: _to_json(value, store, f"{where}.{key}" if where else key) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_to_json(value, store, f"{where}.{index}") for index, value in enumerate(tree)]
    if isinstance(tree, float) and not math.isfinite(tree):
        return {NUMBER: str(float(tree))}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{where}: {type(tree).__name__} is not a plain value")


def _from_json(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of :func:`_to_json`."""
    if isinstance(tree, list):
        return [_from_json(value, tensors) for value in tree]
    if not isinstance(tree, dict):
        return tree
    for key, known, expected in (
        (ARRAY, tensors, f"the name of one of its {len(tensors)} arrays"),
        (NUMBER, WORDS, f"one of {', '.join(WORDS)}"),
    ):
        if set(tree) == {key}:
            if not isinstance(tree[key], str) or tree[key] not in known:
                raise StorageError(f"content: expected {expected}, got {tree[key]!r:.100}")
            return known[tree[key]]
    return {key: _from_json(value, tensors) for key, value in tree.items()}


def _is_fortran(tensor: Tensor) -> bool:
    """Whether the first index is the fastest, on which the last bit of products depends; not where none is."""
    wide = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return tensor.numel() > 0 and len(wide) > 1 and wide == sorted(wide) and wide[0] < wide[-1]


def _reversed(tensor: Tensor) -> Tensor:
    """The same numbers, indices in reverse order."""
    return tensor.permute(*reversed(range(tensor.dim())))
