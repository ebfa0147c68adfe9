"""Score: the value of a metric, and how certain it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import InputError


@dataclass(frozen=True)
class Score:
    """One metric of one fit, larger is better.

    :param value: the average over tasks (weighted where tasks have weights), or the number itself.
    :param standard_error: of the average over tasks; NaN with fewer than two tasks.
    :param tasks: (R,) row of each task that has a value; None where there are no tasks.
    :param per_task: (R,) its values.
    """

    value: float
    standard_error: float
    tasks: Tensor | None = field(default=None, compare=False, repr=False)
    per_task: Tensor | None = field(default=None, compare=False, repr=False)


def score_over_tasks(name: str, tasks: Tensor, values: Tensor, weights: Tensor | None = None) -> Score:
    """The average over tasks, those with NaN left out.

    With weights its standard error treats the sum over a task as one draw: it is that of a ratio of two sums.

    :param name: of the metric, for messages.
    :param tasks: (R,).
    :param values: (R,).
    :param weights: (R,) positive; all 1 when left out.
    """
    kept = ~torch.isnan(values)
    if not bool(kept.any()):
        raise InputError(f"{name}: expected at least one held-out task with a value, got none of {len(values)}")
    tasks, values = tasks[kept].cpu(), values[kept].double().cpu()
    weights = torch.ones_like(values) if weights is None else weights[kept].double().cpu()
    total, count = weights.sum(), len(values)
    value = (weights * values).sum() / total
    error = math.nan
    if count > 1:
        error = float(((weights * (values - value)).square().sum() * count / (count - 1)).sqrt() / total)
    if not math.isfinite(value):
        raise InputError(f"{name}: expected a finite value, got {float(value)}")
    return Score(float(value), error, tasks, values)


def score_over_rows(name: str, rows: Tensor, values: Tensor, weights: Tensor) -> Score:
    """The weighted average over entries, each row a task.

    :param rows: (Q,) of each entry.
    :param values: (Q,).
    :param weights: (Q,) positive.
    """
    tasks, place = rows.cpu().unique(return_inverse=True)
    sums = torch.zeros(2, len(tasks), dtype=torch.float64)
    sums.index_add_(1, place, torch.stack([weights * values, weights]).double().cpu())
    return score_over_tasks(name, tasks, sums[0] / sums[1], sums[1])
