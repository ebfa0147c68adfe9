"""Distinct random numbers, in several groups at once."""

from __future__ import annotations

import numpy as np


def draw_distinct(rng: np.random.Generator, sizes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From each group g, ``counts[g]`` distinct numbers of [0, ``sizes[g]``), every such set equally likely.

    Memory is a few times what is returned. A group that gives more than half of its numbers draws those it keeps.

    :param sizes: (G,).
    :param counts: (G,), none above its size.
    :returns: (C,) group and (C,) number, sorted; C is the sum of ``counts``.
    """
    most = 2 * counts > sizes  # (G,)
    group, number = _few(rng, sizes, np.where(most, sizes - counts, counts))
    listed = np.flatnonzero(most)
    if len(listed) == 0:
        return group, number
    whole_group = np.repeat(listed, sizes[listed])
    begin = np.cumsum(sizes[listed]) - sizes[listed]  # (L,)
    whole_number = np.arange(len(whole_group)) - np.repeat(begin, sizes[listed])
    kept = most[group]
    place = np.zeros(len(sizes), dtype=np.int64)
    place[listed] = begin
    taken = np.ones(len(whole_group), dtype=bool)
    taken[place[group[kept]] + number[kept]] = False
    group = np.concatenate([group[~kept], whole_group[taken]])
    number = np.concatenate([number[~kept], whole_number[taken]])
    order = np.lexsort((number, group))
    return group[order], number[order]


def _few(rng: np.random.Generator, sizes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by drawing what is still missing until nothing is: as one by one with repeats ignored."""
    begin = np.cumsum(sizes) - sizes  # (G,) of each group in one long line of numbers
    found = np.zeros(0, dtype=np.int64)
    missing = counts.astype(np.int64)
    group = np.zeros(0, dtype=np.int64)
    while missing.any():
        wanted = np.repeat(np.arange(len(sizes)), missing)
        drawn = begin[wanted] + rng.integers(sizes[wanted])
        found = np.unique(np.concatenate([found, drawn]))
        group = np.searchsorted(begin, found, side="right") - 1
        missing = counts - np.bincount(group, minlength=len(sizes))
    return group, found - begin[group]
