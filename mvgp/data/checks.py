"""The check that only pairs need: each at most once."""

from __future__ import annotations

from torch import Tensor

from ..errors import InputError


def check_no_duplicates(key: Tensor, order: Tensor, num_cols: int) -> None:
    """``key`` (T,) are sorted cell numbers m N + n; ``order`` (T,) where each stood before sorting."""
    same = key[1:] == key[:-1]
    if same.any():
        # of all repeated entries, name the one that comes first in the user's own order
        later = order[1:][same]
        pick = int(later.argmin())
        place = int(same.nonzero()[pick])
        pair = (int(key[place]) // num_cols, int(key[place]) % num_cols)
        first, second = sorted((int(order[place]), int(order[place + 1])))
        raise InputError(f"duplicate pair {pair}: entry {second} repeats entry {first}; observe each pair once")
