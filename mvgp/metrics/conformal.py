r"""conformal: how long a list must be to hold a held-out link with a given probability, by split-conformal ranks.

Let :math:`R_1, \dots, R_n` be the ranks of held-out links, one of each row, and R that of a link of another row. If all
n + 1 are exchangeable, then for the k-th smallest of the n,

.. math:: P\big(R \le R_{(k)}\big) \ge 1 - a \quad\text{with}\quad k = \lceil (n + 1)(1 - a) \rceil,

whatever the ranker and whatever n: of n + 1 exchangeable numbers, a given one is among the k smallest with probability
at least k / (n + 1). The + 1 is what makes it hold for small n. Where k > n nothing shorter than the whole row will do.

What is assumed: rows of a group are exchangeable, and so are the links of a row. The guarantee is for a random link of
a random row of the group, not for each row by itself. One link of each row is drawn: with all of them, rows with many
links would decide, and links of one row are not independent (Dunn, Wasserman and Ramdas, *Distribution-free prediction
sets for two-layer hierarchical models*, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_between, check_seed, check_whole_number, without_gradient
from ..errors import InputError
from ..tensor_checks import as_tensor, check_list
from .ranking import CHUNK_CELLS, Ranker, TaskItems, _block, _check_disjoint, _DenseScores

EDGES = (1, 2, 6)  # known links from which a row is in the next group


def conformal_length(ranks: Any, level: float) -> float:
    r"""The split-conformal length: the :math:`\lceil (n + 1) \text{level} \rceil`-th smallest of n ranks, or infinity.

    :param ranks: (n,) of held-out links, one of each row; may be empty.
    :param level: between 0 and 1.

    Example:
        >>> from mvgp.metrics.conformal import conformal_length
        >>> conformal_length([7, 1, 30, 2], 0.8), conformal_length([7, 1, 30, 2], 0.9)
        (30.0, inf)

    """
    level = check_between(level, "level")
    values = as_tensor(ranks, "ranks").flatten().double()
    if not bool(torch.isfinite(values).all()) or bool((values < 1).any()):
        raise InputError("ranks: expected finite numbers from 1, got others")
    place = math.ceil(round((len(values) + 1) * level, 9))  # 10 * 0.7 is 7, not a little more
    return float(values.sort().values[place - 1]) if place <= len(values) else math.inf


@dataclass(frozen=True, eq=False)
class LinkRanks:
    """Ranks of held-out links, one line for each.

    :param rows: (H,) ascending.
    :param ranks: (H,) from 1, among the columns that are not known; equal scores in the order of the columns.
    :param known: (H,) known links of the row.
    :param candidates: (H,) columns of the row that are not known.
    """

    rows: Tensor
    ranks: Tensor
    known: Tensor
    candidates: Tensor

    def one_per_row(self, seed: int = 0) -> Tensor:
        """(R,) places of one link of each row, drawn at random."""
        return draw_one(self.rows, seed)


@without_gradient
def link_ranks(scores: Any, held_out: Any, *, known: Any = None) -> LinkRanks:
    """The rank of each held-out link among the columns that are not known.

    :param scores: (M, N) tensor or array, or anything with ``shape`` and ``scores(rows)``.
    :param held_out: links that were not fitted: an ``ObservedMatrix`` or a pair (rows, cols).
    :param known: links that were fitted; they are no candidates.

    Example:
        >>> from mvgp.metrics.conformal import link_ranks
        >>> link_ranks([[0.9, 0.1, 0.5, 0.3]], ([0, 0], [2, 3]), known=([0], [0])).ranks.tolist()
        [1, 2]

    """
    ranker = scores if isinstance(scores, Ranker) and not isinstance(scores, type) else _DenseScores(scores)
    shape = (int(ranker.shape[0]), int(ranker.shape[1]))
    hidden, visible = TaskItems(held_out, shape, "held_out"), TaskItems(known, shape, "known")
    _check_disjoint(hidden, visible, shape[1])
    rows = hidden.counts.nonzero().squeeze(1)
    parts = []
    for part in rows.split(max(1, CHUNK_CELLS // shape[1])):
        block = torch.from_numpy(_block(ranker, part, shape[1]))
        parts.append(listed(block, visible.of(part), hidden.of(part))[1])
    row = torch.repeat_interleave(torch.arange(shape[0]), hidden.counts)
    ranks = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)
    return LinkRanks(row, ranks, visible.counts[row], shape[1] - visible.counts[row])


def listed(
    scores: Tensor, known: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], kept: int = 0
) -> tuple[Tensor, Tensor]:
    """(R, kept) columns of the first places, known ones last of all, and (H,) ranks, from 1, of some cells.

    Equal scores, in single precision, are in the order of the columns.

    :param scores: (R, N) finite.
    :param known: rows and columns of cells that are no candidates.
    :param wanted: rows, ascending, and columns of the cells whose ranks are asked for.
    """
    values = scores.float().contiguous() + 0.0  # no negative zero
    bits = values.view(torch.int32).long()
    keys = torch.where(bits >= 0, -bits, bits + 2**31)  # ascending where scores descend
    keys[known] = 2**31
    keys = keys * 2**31 + torch.arange(scores.shape[1])  # distinct
    cells = keys[wanted]
    ordered = torch.from_numpy(np.sort(keys.numpy(), axis=1))  # several times faster than an argsort
    order = ordered[:, :kept] % 2**31
    parts = cells.split(torch.bincount(wanted[0], minlength=len(scores)).tolist())
    ranks = [torch.searchsorted(line, part) + 1 for line, part in zip(ordered, parts, strict=True)]
    return order, torch.cat(ranks)


def draw_one(units: Tensor, seed: int = 0) -> Tensor:
    """(U,) ascending places of one entry of each distinct unit, drawn at random among those of the unit."""
    generator = torch.Generator().manual_seed(check_seed(seed))
    shuffled = torch.randperm(len(units), generator=generator)
    order = shuffled[units[shuffled].argsort(stable=True)]
    first = torch.ones(len(order), dtype=torch.bool)
    first[1:] = units[order].diff() != 0
    return order[first].sort().values


@dataclass(frozen=True, eq=False)
class ConformalLengths:
    """Lengths of lists that hold a held-out link with probability ``level``, by the known links of the row.

    :param level: the probability.
    :param edges: known links from which a row is in the next group, ascending.
    :param lengths: for each group; infinity is the whole row, where a group has too few rows.
    :param num_rows: for each group: rows with held-out links, of which one link each was drawn.

    Example:
        >>> import torch
        >>> from mvgp.metrics.conformal import conformal
        >>> scores = torch.arange(200.0).reshape(10, 20)
        >>> lengths = conformal(scores, (range(10), [19] * 5 + [16] * 5), level=0.8)
        >>> lengths.of(0), lengths.of(3)
        (4.0, inf)
        >>> print(lengths)
        a held-out link is in the list with probability at least 80 %, if the list has
        no known link     4 columns  (10 rows)
        1 known link      the whole row: 0 rows are too few
        2 to 5            the whole row: 0 rows are too few
        6 and more        the whole row: 0 rows are too few

    """

    level: float
    edges: tuple[int, ...]
    lengths: tuple[float, ...]
    num_rows: tuple[int, ...]

    def of(self, num_known: int) -> float:
        """The length for a row with so many known links."""
        return self.lengths[sum(check_whole_number(num_known, "num_known", 0) >= edge for edge in self.edges)]

    def __str__(self) -> str:
        lines = [f"a held-out link is in the list with probability at least {100 * self.level:g} %, if the list has"]
        for name, length, count in zip(group_names(self.edges), self.lengths, self.num_rows, strict=True):
            few = f"the whole row: {count:,} rows are too few"
            lines.append(f"{name:<16}  " + (few if math.isinf(length) else f"{length:,.0f} columns  ({count:,} rows)"))
        return "\n".join(lines)


def group_names(edges: Sequence[int]) -> tuple[str, ...]:
    """Of groups of rows by known links: "no known link", "1 known link", "2 to 5", "6 and more" for 1, 2, 6."""
    bounds = [0, *edges]
    names = []
    for low, high in zip(bounds, [*bounds[1:], None], strict=True):
        if high is None:
            names.append(f"{low} and more")
        elif high - low > 1:
            names.append(f"{low} to {high - 1}")
        else:
            names.append("no known link" if low == 0 else "1 known link" if low == 1 else f"{low} known links")
    return tuple(names)


def conformal(
    scores: Any, held_out: Any, *, known: Any = None, level: float = 0.9, edges: Any = EDGES, seed: int = 0
) -> ConformalLengths:
    """The shortest lists that hold a held-out link with probability ``level``, by the known links of a row.

    The ranker must not have seen the held-out links. See :mod:`mvgp.metrics.conformal` for what is guaranteed.

    :param scores: (M, N) tensor or array, or anything with ``shape`` and ``scores(rows)``.
    :param held_out: links that were not fitted: an ``ObservedMatrix``, whose entries above 0 count, or a pair (rows,
        cols).
    :param known: links that were fitted, in the same form; they are no candidates.
    :param level: the probability.
    :param edges: known links from which a row is in the next group; () for a single group.
    :param seed: of the link that is drawn of each row.

    Example:
        >>> import torch
        >>> from mvgp.metrics.conformal import conformal
        >>> scores = torch.arange(200.0).reshape(10, 20)
        >>> conformal(scores, (range(10), range(10, 20)), level=0.5, edges=()).lengths
        (6.0,)

    """
    level = check_between(level, "level")
    checked = tuple(check_whole_number(edge, "edges") for edge in check_list(edges, "edges", "whole numbers"))
    if list(checked) != sorted(set(checked)):
        raise InputError(f"edges: expected ascending numbers, got {checked}")
    ranked = link_ranks(scores, held_out, known=known)
    drawn = ranked.one_per_row(seed)
    groups = torch.bucketize(ranked.known[drawn], torch.tensor(checked, dtype=torch.long), right=True)
    each = [ranked.ranks[drawn][groups == group] for group in range(len(checked) + 1)]
    lengths = tuple(conformal_length(ranks, level) for ranks in each)
    return ConformalLengths(level, checked, lengths, tuple(len(ranks) for ranks in each))
