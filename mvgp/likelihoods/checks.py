"""Checks of lists to be ranked. Each names the first entry that offends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import as_reals, as_tensor, check_vector, check_weights, check_whole, plain_tensor, refuse_where, shown
from ..errors import InputError


def check_task(task: Any, name: str = "task") -> Tensor:
    """(T,) int64 task of each entry."""
    return check_whole(check_vector(as_tensor(task, name), name), name)


def check_level(level: Any, task: Tensor) -> Tensor:
    """(T,) int64 relevance of each entry."""
    return _same_length(check_task(level, "level").to(task.device), task, "level")


def check_positive_entries(positive: Any, task: Tensor) -> Tensor:
    """(T,) bool."""
    given = as_tensor(positive, "positive", "booleans")
    if given.dtype != torch.bool and given.numel():
        raise InputError(f"positive: expected booleans, got {given.dtype} (labels in {{+1, -1}}: positive=labels > 0)")
    return _same_length(check_vector(given.bool(), "positive").to(task.device), task, "positive")


def check_labels_of_lists(labels: Any, task: Tensor) -> Tensor:
    """(T,) bool from labels in {+1, -1}."""
    given = _same_length(check_vector(as_tensor(labels, "labels"), "labels").to(task.device), task, "labels")
    if given.dtype == torch.bool:
        raise InputError("labels: expected +1 and -1, got booleans")
    refuse_where((given != 1) & (given != -1), given, "labels", "+1 or -1")
    return given > 0


def check_scores(scores: Any, length: int) -> Tensor:
    """(T,) floating-point scores on which gradients may flow; that they are finite is seen by the search."""
    given = _floating(scores, "scores")
    if given.dim() != 1 or given.numel() != length:
        raise InputError(f"scores: expected shape ({length},), one for each entry of task, got {tuple(given.shape)}")
    return given


def check_many_scores(scores: Any, name: str = "scores") -> Tensor:
    """(..., T) finite floating-point scores on which gradients may flow, T at least 1."""
    given = _floating(scores, name)
    if given.dim() == 0 or given.shape[-1] == 0:
        raise InputError(f"{name}: expected shape (..., T) with T at least 1, got {tuple(given.shape)}")
    refuse_where(~torch.isfinite(given), given, name, "a finite number")
    return given


def check_labels(labels: Any, length: int, name: str = "labels") -> Tensor:
    """(..., T) numbers."""
    given = as_tensor(labels, name)
    if given.dim() == 0 or given.shape[-1] != length:
        raise InputError(f"{name}: expected {length} of them, got shape {tuple(given.shape)}")
    if given.dtype == torch.bool:
        raise InputError(f"{name}: expected numbers, got booleans")
    return given


def check_weight(weight: Any, length: int, *, keep_gradient: bool = False) -> Tensor | None:
    """(T,) finite positive float64 weights, or None; a gradient is kept if the caller carries it, else refused."""
    if weight is None:
        return None
    return check_weights(weight, length, name="weight", each="entry", keep_gradient=keep_gradient)


def check_targets(found: Any, scores: Tensor) -> Tensor:
    """(T,) what a target set made of ``scores`` (T,): finite numbers in the same form."""
    if not isinstance(found, Tensor):
        raise InputError(f"retarget: expected targets as a tensor, got {shown(found)}")
    if found.shape != scores.shape:
        raise InputError(f"retarget: expected targets of shape {tuple(scores.shape)}, got {tuple(found.shape)}")
    if found.dtype != scores.dtype or found.device != scores.device:
        wanted, came = (f"{one.dtype} on {one.device}" for one in (scores, found))
        raise InputError(f"retarget: expected targets of {wanted}, as the scores are, got {came}")
    plain = plain_tensor(found, "retarget").detach()
    refuse_where(~torch.isfinite(plain), plain, "retarget", "a finite target")
    return found


def _floating(scores: Any, name: str) -> Tensor:
    given = plain_tensor(scores, name) if isinstance(scores, Tensor) else as_tensor(scores, name)
    return given if given.is_floating_point() else as_reals(given, name)


def _same_length(given: Tensor, task: Tensor, name: str) -> Tensor:
    if given.numel() != task.numel():
        raise InputError(f"{name}: expected {task.numel()} entries, one for each of task, got {given.numel()}")
    return given
