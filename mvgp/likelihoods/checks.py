"""Checks of lists to be ranked. Each names the first entry that offends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import as_tensor, check_whole
from ..errors import InputError


def check_task(task: Any) -> Tensor:
    """(T,) int64 task of each entry."""
    return _whole_numbers(task, "task")


def check_level(level: Any, task: Tensor) -> Tensor:
    """(T,) int64 relevance of each entry."""
    return _same_length(_whole_numbers(level, "level").to(task.device), task, "level")


def check_positive(positive: Any, task: Tensor) -> Tensor:
    """(T,) bool."""
    given = as_tensor(positive, "positive")
    if given.dtype != torch.bool and given.numel():
        raise InputError(f"positive: expected booleans, got {given.dtype} (labels in {{+1, -1}}: positive=labels > 0)")
    return _same_length(_vector(given.bool(), "positive").to(task.device), task, "positive")


def check_labels_of_lists(labels: Any, task: Tensor) -> Tensor:
    """(T,) bool from labels in {+1, -1}."""
    given = _same_length(_vector(as_tensor(labels, "labels"), "labels").to(task.device), task, "labels")
    if given.dtype == torch.bool:
        raise InputError("labels: expected +1 and -1, got booleans")
    bad = (given != 1) & (given != -1)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"labels[{at}]: expected +1 or -1, got {given[at].item()}")
    return given > 0


def check_scores(scores: Any, length: int) -> Tensor:
    """(T,) floating-point scores on which gradients may flow; that they are finite is seen by the search."""
    given = scores if isinstance(scores, Tensor) else as_tensor(scores, "scores")
    if given.is_complex():
        raise InputError(f"scores: expected real numbers, got {given.dtype}")
    if not given.is_floating_point():
        given = given.double()
    if given.dim() != 1 or given.numel() != length:
        raise InputError(f"scores: expected shape ({length},), one for each entry of task, got {tuple(given.shape)}")
    return given


def check_finite(scores: Tensor, name: str = "scores") -> None:
    """Refuse NaN and infinity."""
    bad = ~torch.isfinite(scores)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"{name}[{at}]: expected a finite number, got {scores[at].item()}")


def check_weight(weight: Any, length: int) -> Tensor | None:
    """(T,) finite positive float64 weights, or None."""
    if weight is None:
        return None
    given = _vector(as_tensor(weight, "weight"), "weight").double()
    if given.numel() != length:
        raise InputError(f"weight: expected {length} numbers, one for each entry, got {given.numel()}")
    bad = ~(torch.isfinite(given) & (given > 0))
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"weight[{at}]: expected a positive finite number, got {given[at].item()}")
    return given


def check_margin(margin: Any) -> float:
    """A finite number that is not negative."""
    return _number(margin, "margin", lowest=0.0, open_=False)


def check_total(total: Any) -> float:
    """A finite positive number."""
    return _number(total, "total", lowest=0.0, open_=True)


def check_noise(noise: Any) -> float:
    """A finite positive number."""
    return _number(noise, "noise", lowest=0.0, open_=True)


def _number(given: Any, name: str, lowest: float, open_: bool) -> float:
    wanted = "a positive finite number" if open_ else "a finite number that is not negative"
    try:
        found = float(given)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected {wanted}, got {given!r}") from None
    if not (lowest < found if open_ else lowest <= found) or found == float("inf"):
        raise InputError(f"{name}: expected {wanted}, got {given!r}")
    return found


def _vector(given: Tensor, name: str) -> Tensor:
    if given.dim() != 1:
        raise InputError(f"{name}: expected a vector, got shape {tuple(given.shape)}")
    return given


def _same_length(given: Tensor, task: Tensor, name: str) -> Tensor:
    if given.numel() != task.numel():
        raise InputError(f"{name}: expected {task.numel()} entries, one for each of task, got {given.numel()}")
    return given


def _whole_numbers(given: Any, name: str) -> Tensor:
    found = _vector(as_tensor(given, name), name)
    if found.numel() == 0:
        return found.long()
    if found.dtype == torch.bool:
        raise InputError(f"{name}: expected whole numbers, got {found.dtype}")
    return check_whole(found, name)
