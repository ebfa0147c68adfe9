"""One tensor as a ``.npy`` member of an archive: written in its own order, checked before it is read."""

from __future__ import annotations

import hashlib
import io
import math
import struct
import warnings
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, StorageError

TYPES = {  # by torch's name: what a header calls it, and the type itself
    "float32": ("<f4", torch.float32),
    "float64": ("<f8", torch.float64),
    "int32": ("<i4", torch.int32),
    "int64": ("<i8", torch.int64),
    "bool": ("|b1", torch.bool),
}
PREFIX = 10  # bytes before the text of a header: magic, version, length
CHUNK = 2**22  # bytes read or written at a time
MOST_DIMENSIONS = 8
LARGEST = 2**47  # of one dimension


@dataclass(frozen=True)
class ArrayEntry:
    """What the manifest says about an array.

    :param dtype: a key of TYPES.
    :param shape: its shape.
    :param fortran_order: whether the first index is the fastest; products depend on it in their last bit.
    :param sha256: of the whole member.
    """

    dtype: str
    shape: tuple[int, ...]
    fortran_order: bool
    sha256: str

    @property
    def num_bytes(self) -> int:
        """Of its numbers."""
        return math.prod(self.shape) * np.dtype(TYPES[self.dtype][0]).itemsize

    def described(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "fortran_order": self.fortran_order,
            "sha256": self.sha256,
        }

    @classmethod
    def checked(cls, given: Any, name: str) -> ArrayEntry:
        """From the manifest."""
        if not isinstance(given, dict) or set(given) != {"dtype", "shape", "fortran_order", "sha256"}:
            raise StorageError(f"array {name}: expected dtype, shape, fortran_order and sha256, got {given!r:.200}")
        dtype, shape = given["dtype"], given["shape"]
        if not isinstance(dtype, str) or dtype not in TYPES:
            raise StorageError(f"array {name}: expected dtype {', '.join(TYPES)}, got {dtype!r:.50}")
        if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < LARGEST for size in shape):
            raise StorageError(f"array {name}: expected a shape of whole numbers, got {shape!r:.100}")
        if len(shape) > MOST_DIMENSIONS:
            raise StorageError(f"array {name}: expected at most {MOST_DIMENSIONS} dimensions, got {len(shape)}")
        digits = given["sha256"]
        if not isinstance(given["fortran_order"], bool) or not isinstance(digits, str) or not digits.isalnum():
            raise StorageError(f"array {name}: expected a flag fortran_order and a text sha256, got {given!r:.200}")
        return cls(dtype, tuple(shape), given["fortran_order"], digits)


@dataclass(frozen=True)
class Member:
    """A tensor, ready to be written.

    :param entry: what the manifest will say.
    :param header: the bytes of its header.
    :param numbers: (B,) the bytes of its numbers.
    """

    entry: ArrayEntry
    header: bytes
    numbers: np.ndarray

    @property
    def size(self) -> int:
        """Bytes of the whole member."""
        return len(self.header) + self.numbers.size

    def write(self, to: IO[bytes]) -> None:
        """Write the header and the numbers."""
        to.write(self.header)
        for start in range(0, self.numbers.size, CHUNK):
            to.write(self.numbers[start : start + CHUNK].data)


def make_member(tensor: Tensor, name: str) -> Member:
    """Of a tensor in any place, dense in either order; refused unless its type is one of TYPES."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or dtype not in TYPES:
        raise InputError(f"{name}: expected a dense tensor of {', '.join(TYPES)}, got {dtype}, {tensor.layout}")
    found = tensor.detach().cpu()
    fortran = _is_fortran(found)
    rows_first = found.permute(*reversed(range(found.dim()))) if fortran else found
    array = rows_first.contiguous().reshape(-1).numpy()
    array = np.ascontiguousarray(array, dtype=TYPES[dtype][0])  # little-endian
    text = io.BytesIO()
    shape = tuple(int(size) for size in found.shape)
    np.lib.format.write_array_header_1_0(text, {"descr": TYPES[dtype][0], "fortran_order": fortran, "shape": shape})
    numbers, digest = array.view(np.uint8), hashlib.sha256(text.getvalue())
    digest.update(numbers.data)
    return Member(ArrayEntry(dtype, shape, fortran, digest.hexdigest()), text.getvalue(), numbers)


def read_member(source: IO[bytes], size: int, entry: ArrayEntry, name: str) -> Tensor:
    """The tensor; nothing is allocated before type, shape and size agree.

    :param size: bytes of the member.
    """
    start = source.read(PREFIX)
    if len(start) < PREFIX or start[:8] != b"\x93NUMPY\x01\x00":
        raise StorageError(f"array {name}: expected a .npy header of version 1.0, got {start!r}")
    (length,) = struct.unpack("<H", start[8:])
    header = start + source.read(length)
    shape, fortran, dtype = _parsed(header, name)
    expected = (entry.shape, entry.fortran_order, TYPES[entry.dtype][0])
    if (shape, fortran, dtype.str) != expected:
        raise StorageError(
            f"array {name}: expected {expected} as in the manifest, got {(shape, fortran, dtype.str)!r:.200}"
        )
    if size != len(header) + entry.num_bytes:
        raise StorageError(
            f"array {name}: expected {len(header) + entry.num_bytes} bytes for {shape!r:.100}, got {size}"
        )
    memory = torch.empty(shape[::-1] if fortran else shape, dtype=TYPES[entry.dtype][1])
    numbers, digest = memory.reshape(-1).numpy().view(np.uint8), hashlib.sha256(header)
    filled = 0
    while filled < numbers.size:
        part = source.read(min(CHUNK, numbers.size - filled))
        if not part:
            raise StorageError(f"array {name}: expected {numbers.size} bytes of numbers, got {filled}")
        numbers[filled : filled + len(part)] = np.frombuffer(part, dtype=np.uint8)
        digest.update(part)
        filled += len(part)
    source.read(1)  # the end of a member is where its checksum is compared
    if digest.hexdigest() != entry.sha256:
        raise StorageError(f"array {name}: expected sha256 {entry.sha256:.80}, got {digest.hexdigest()}")
    if dtype == np.bool_ and numbers.size and numbers.max() > 1:
        raise StorageError(f"array {name}: expected bytes 0 and 1 for booleans, got {numbers.max()}")
    return memory.permute(*reversed(range(memory.dim()))) if fortran else memory


def _is_fortran(tensor: Tensor) -> bool:
    """Whether the strides grow with the index; where there is no difference, they do not."""
    wide = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return tensor.numel() > 0 and len(wide) > 1 and wide == sorted(wide) and wide[0] < wide[-1]


def _parsed(header: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    source = io.BytesIO(header[8:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.lib.format.read_array_header_1_0(source)
    except Exception as error:  # text from anywhere goes into numpy's parser, which evaluates literals only
        raise StorageError(
            f"array {name}: expected a .npy header, got one that numpy refuses ({str(error)!r:.200})"
        ) from error
