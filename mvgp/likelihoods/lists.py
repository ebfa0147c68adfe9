"""RankingLists: T entries grouped by task and by relevance level, once, for any number of projections.

Long vectors are worked on in segments, each small enough for the cache and for a single thread: elementwise work on a
few hundred thousand numbers is so short that waking other threads costs more than it saves. On other devices than a CPU
a vector is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import shown
from ..errors import InputError
from ..tensor_checks import as_reals, as_tensor, check_vector, check_weights, check_whole, plain_tensor, refuse_where


def check_task(task: Any, name: str = "task") -> Tensor:
    """(T,) int64 task of each entry."""
    return check_whole(check_vector(as_tensor(task, name), name), name)


def check_scores(scores: Any, length: int) -> Tensor:
    """(T,) floating-point scores on which gradients may flow; that they are finite is seen by the search."""
    values = _floating(scores, "scores")
    if values.dim() != 1 or values.numel() != length:
        raise InputError(f"scores: expected shape ({length},), one for each entry of task, got {tuple(values.shape)}")
    return values


def check_many_scores(scores: Any, name: str = "scores") -> Tensor:
    """(..., T) finite floating-point scores on which gradients may flow, T at least 1."""
    values = _floating(scores, name)
    if values.dim() == 0 or values.shape[-1] == 0:
        raise InputError(f"{name}: expected shape (..., T) with T at least 1, got {tuple(values.shape)}")
    refuse_where(~torch.isfinite(values), values, name, "a finite number")
    return values


def check_labels(labels: Any, length: int, name: str = "labels") -> Tensor:
    """(..., T) numbers."""
    values = as_tensor(labels, name)
    if values.dim() == 0 or values.shape[-1] != length:
        raise InputError(f"{name}: expected {length} of them, got shape {tuple(values.shape)}")
    if values.dtype == torch.bool:
        raise InputError(f"{name}: expected numbers, got booleans")
    return values


def check_weight(weight: Any, length: int, *, keep_gradient: bool = False) -> Tensor | None:
    """(T,) finite positive float64 weights, or None; a gradient is kept if the caller carries it, else refused."""
    if weight is None:
        return None
    return check_weights(weight, length, name="weight", each="entry", keep_gradient=keep_gradient)


def check_targets(targets: Any, scores: Tensor) -> Tensor:
    """(T,) what a target set made of ``scores`` (T,): finite numbers in the same form."""
    if not isinstance(targets, Tensor):
        raise InputError(f"retarget: expected targets as a tensor, got {shown(targets)}")
    if targets.shape != scores.shape:
        raise InputError(f"retarget: expected targets of shape {tuple(scores.shape)}, got {tuple(targets.shape)}")
    if targets.dtype != scores.dtype or targets.device != scores.device:
        expected, actual = (f"{tensor.dtype} on {tensor.device}" for tensor in (scores, targets))
        raise InputError(f"retarget: expected targets of {expected}, as the scores are, got {actual}")
    plain = plain_tensor(targets, "retarget").detach()
    refuse_where(~torch.isfinite(plain), plain, "retarget", "a finite target")
    return targets


def _floating(scores: Any, name: str) -> Tensor:
    values = plain_tensor(scores, name) if isinstance(scores, Tensor) else as_tensor(scores, name)
    return values if values.is_floating_point() else as_reals(values, name)


def _same_length(values: Tensor, task: Tensor, name: str) -> Tensor:
    """The values on the device of the tasks, one for each."""
    if values.numel() != task.numel():
        raise InputError(f"{name}: expected {task.numel()} entries, one for each of task, got {values.numel()}")
    return values.to(task.device)


SEGMENT = 32_767  # torch hands vectors from 32,768 entries on to several threads


def segments(vector: Tensor) -> Iterator[slice]:
    """Slices that cover ``vector`` (n,)."""
    size = vector.numel()
    length = SEGMENT if vector.device.type == "cpu" else max(size, 1)
    for at in range(0, size, length):
        yield slice(at, min(at + length, size))


def is_ascending(vector: Tensor) -> bool:
    """Whether no entry is smaller than the one before it."""
    later, earlier = vector[1:], vector[:-1]
    return all(bool((later[segment] >= earlier[segment]).all()) for segment in segments(later))


def split_indices(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where ``mask`` (n,) is true and where it is not, each ascending; several times quicker than ``nonzero``."""
    nothing = torch.zeros(0, dtype=torch.long, device=mask.device)
    ones, zeros = [nothing], [nothing]
    for segment in segments(mask):
        here = mask[segment].long()
        rank = here.cumsum(0)  # true entries up to and including each
        count, own = int(rank[-1]), torch.arange(here.numel(), device=mask.device)
        behind = own - rank + count  # a false entry goes behind all true ones
        target = behind + here * (rank - 1 - behind)
        order = torch.empty_like(own).scatter_(0, target, own + segment.start)
        ones.append(order[:count])
        zeros.append(order[count:])
    return torch.cat(ones), torch.cat(zeros)


@dataclass(frozen=True)
class Side:
    """One side of every threshold: the entries that have to stay above it, or those that have to stay below."""

    entry: Tensor  # (n,) which of the T entries; entries of one threshold are neighbours
    threshold: Tensor  # (n,) the threshold of each, ascending
    start: Tensor  # (K + 1,) where the entries of each threshold begin


@dataclass(frozen=True)
class RankingLists:
    r"""Lists of entries to be ranked: one list for each task, in it a few relevance levels.

    A *cell* is one level of one list. A *threshold* stands between two neighbouring cells of a list: everything in the
    upper cell is at least the threshold, everything in the lower cell at most. Build it with :meth:`bipartite` or
    :meth:`graded`.

    :param task_ids: (L,) the task of each list, ascending.
    :param list_of: (T,) the list of each entry.
    :param cell: (T,) the cell of each entry.
    :param cell_list: (C,) the list of each cell.
    :param cell_level: (C,) the relevance of each cell: 0 and 1, or the levels as they were passed.
    :param below_cell: (C,) the threshold under each cell; K where there is none.
    :param above_cell: (C,) the threshold over each cell; K where there is none.
    :param threshold_list: (K,) the list of each threshold.
    :param upper: the entries above each threshold.
    :param lower: the entries below each threshold.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import RankingLists
        >>> lists = RankingLists.bipartite(torch.tensor([True, False, False]), torch.tensor([7, 7, 9]))
        >>> lists.num_lists, lists.sizes.tolist(), lists.num_positive.tolist()
        (2, [2, 1], [1, 0])

    """

    task_ids: Tensor
    list_of: Tensor
    cell: Tensor
    cell_list: Tensor
    cell_level: Tensor
    below_cell: Tensor
    above_cell: Tensor
    threshold_list: Tensor
    upper: Side
    lower: Side

    @classmethod
    def bipartite(cls, positive: Any, task: Any) -> RankingLists:
        """``positive`` (T,) over the others in every task (T,), whole numbers in any order; sorted is quickest."""
        task, positive = check_task(task), as_tensor(positive, "positive", "booleans")
        if positive.dtype != torch.bool and positive.numel():
            hint = "(labels in {+1, -1}: positive=labels > 0)"
            raise InputError(f"positive: expected booleans, got {positive.dtype} {hint}")
        positive = _same_length(check_vector(positive.bool(), "positive"), task, "positive")
        task_ids, list_of, order = _number_tasks(task)
        count = task_ids.numel()
        lists = torch.arange(count, device=task.device)
        none = torch.full_like(lists, count)
        top, bottom = split_indices(positive if order is None else positive[order])
        if order is not None:
            top, bottom = order[top], order[bottom]
        cell = torch.empty_like(list_of)  # cells 2l and 2l + 1, some of them empty
        for segment in segments(cell):
            torch.add(positive[segment], list_of[segment], alpha=2, out=cell[segment])
        return cls(
            task_ids=task_ids,
            list_of=list_of,
            cell=cell,
            cell_list=lists.repeat_interleave(2),
            cell_level=torch.tensor([0, 1], device=task.device).repeat(count),
            below_cell=torch.stack([none, lists], 1).reshape(-1),
            above_cell=torch.stack([lists, none], 1).reshape(-1),
            threshold_list=lists,
            upper=_side(top, list_of.index_select(0, top), count),
            lower=_side(bottom, list_of.index_select(0, bottom), count),
        )

    @classmethod
    def graded(cls, level: Any, task: Any) -> RankingLists:
        """Higher levels (T,) over lower ones in every task (T,), whole numbers; a list may lack some of the levels."""
        task = check_task(task)
        level = _same_length(check_task(level, "level"), task, "level")
        task_ids, list_of, _ = _number_tasks(task)
        levels, level_rank = torch.unique(level, return_inverse=True)
        base = max(levels.numel(), 1)
        keys, cell = torch.unique(list_of * base + level_rank, return_inverse=True)
        cell_list, cell_level = keys // base, levels[keys % base]
        lowest = torch.ones_like(cell_list, dtype=torch.bool)  # (C,) no cell of the same list under it
        lowest[1:] = cell_list[1:] != cell_list[:-1]
        highest = torch.ones_like(lowest)
        highest[:-1] = lowest[1:]
        count = int(cell_list.numel() - task_ids.numel())
        below = (~lowest).cumsum(0) - 1  # (C,) thresholds are numbered by the cell above them
        above_cell = torch.full_like(below, count)
        above_cell[~highest] = below[~lowest]
        below_cell = below.masked_fill(lowest, count)
        by_cell = torch.sort(cell, stable=True).indices
        sides = []
        for edge in (below_cell, above_cell):
            threshold = edge[cell[by_cell]]
            has = threshold < count
            sides.append(_side(by_cell[has], threshold[has], count))
        cells = cell, cell_list, cell_level, below_cell, above_cell
        return cls(task_ids, list_of, *cells, cell_list[~lowest], *sides)

    @classmethod
    def from_labels(cls, labels: Any, task: Any) -> RankingLists:
        """Labels (T,) in {+1, -1}; see :meth:`bipartite`."""
        task = check_task(task)
        values = _same_length(check_vector(as_tensor(labels, "labels"), "labels"), task, "labels")
        if values.dtype == torch.bool:
            raise InputError("labels: expected +1 and -1, got booleans")
        refuse_where((values != 1) & (values != -1), values, "labels", "+1 or -1")
        return cls.bipartite(values > 0, task)

    @property
    def num_lists(self) -> int:
        """L"""
        return int(self.task_ids.numel())

    @property
    def num_thresholds(self) -> int:
        """K"""
        return int(self.threshold_list.numel())

    @property
    def sizes(self) -> Tensor:
        """(L,) how many entries each list has."""
        return torch.bincount(self.list_of, minlength=self.num_lists)

    @property
    def num_positive(self) -> Tensor:
        """(L,) how many entries of each list are above its lowest level."""
        lowest = self.below_cell[self.cell] == self.num_thresholds
        return torch.bincount(self.list_of[~lowest], minlength=self.num_lists)

    def __len__(self) -> int:
        return int(self.list_of.numel())


def _number_tasks(task: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Task of each list (L,), list of each entry (T,), and the order (T,) that sorts them: None if they are."""
    order = None
    if not is_ascending(task):
        order = torch.sort(task, stable=True).indices
        task = task[order]
    task_ids, list_of = torch.unique_consecutive(task, return_inverse=True)
    if order is not None:
        list_of = torch.empty_like(list_of).index_copy_(0, order, list_of)
    return task_ids, list_of, order


def _side(entry: Tensor, threshold: Tensor, count: int) -> Side:
    start = torch.zeros(count + 1, dtype=torch.long, device=threshold.device)
    start[1:].index_add_(0, threshold, start.new_ones(1).expand(threshold.shape))
    return Side(entry, threshold, start.cumsum(0))
