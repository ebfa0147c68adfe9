"""Runs: long vectors are worked on piece by piece, each small enough for the cache and for a single thread.

Elementwise work on a few hundred thousand numbers is so short that waking other threads costs more than it saves,
above all when another process keeps the cores busy. On other devices than a CPU a vector is one piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

RUN = 32_767  # torch hands vectors from 32,768 entries on to several threads


def pieces(vector: Tensor) -> Iterator[slice]:
    """Slices that cover ``vector`` (n,)."""
    size = vector.numel()
    length = RUN if vector.device.type == "cpu" else max(size, 1)
    for at in range(0, size, length):
        yield slice(at, min(at + length, size))


def is_ascending(vector: Tensor) -> bool:
    """Whether no entry is smaller than the one before it."""
    later, earlier = vector[1:], vector[:-1]
    return all(bool((later[piece] >= earlier[piece]).all()) for piece in pieces(later))


def split_places(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where ``mask`` (n,) is true and where it is not, each ascending; several times quicker than ``nonzero``."""
    ones, zeros = [], []
    for piece in pieces(mask):
        here = mask[piece].long()
        rank = here.cumsum(0)  # true entries up to and including each
        count, own = int(rank[-1]), torch.arange(here.numel(), device=mask.device)
        behind = own - rank + count  # a false entry goes behind all true ones
        target = behind + here * (rank - 1 - behind)
        order = torch.empty_like(own).scatter_(0, target, own + piece.start)
        ones.append(order[:count])
        zeros.append(order[count:])
    return _joined(ones, mask), _joined(zeros, mask)


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    found = torch.empty(sum(part.numel() for part in parts), dtype=torch.long, device=like.device)
    first = 0
    for part in parts:
        found[first : first + part.numel()] = part
        first += part.numel()
    return found
