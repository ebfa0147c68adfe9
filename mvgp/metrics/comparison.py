"""Is one ranking better than another? Paired tests over tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_between, check_seed, check_text, check_whole_number
from ..errors import InputError
from ..tensor_checks import as_tensor, check_vector, refuse_where
from .ranking import RankingScores

BATCH_CELLS = 2**22  # resampled numbers held at a time


def compare(
    a: RankingScores | Any,
    b: RankingScores | Any,
    metric: str = "MAP@100",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> PairedComparison:
    """Compare two rankings of the same tasks, task by task.

    :param a: :class:`~mvgp.metrics.RankingScores`, or (R,) the metric of each task, NaN where it has none.
    :param b: the other one, over the same tasks with the same held-out positives.
    :param metric: as in :meth:`RankingScores.per_task`; a name for the result when vectors are given.
    :param confidence: level of the bootstrap interval.
    :param resamples: of the bootstrap.
    :param seed: of the bootstrap.

    Example:
        >>> import mvgp.metrics
        >>> comparison = mvgp.metrics.compare([0.5, 0.7, 0.9, 0.4], [0.4, 0.5, 0.6, 0.4], "AUC")
        >>> comparison.wins, comparison.losses, comparison.ties, round(comparison.t_pvalue, 3)
        (3, 0, 1, 0.103)

    """
    confidence, seed = check_between(confidence, "confidence"), check_seed(seed)
    resamples = check_whole_number(resamples, "resamples", maximum=10**8)
    check_text(metric, "metric")
    from scipy import stats  # a third of a second, which ranking alone need not wait for

    left, right = _paired(a, b, metric)
    difference = left - right  # (D,)
    t_pvalue = wilcoxon_pvalue = 1.0  # neither test is defined when nothing differs
    if difference.any():
        same = np.ptp(difference) <= 1e-14 * np.abs(difference).max()  # the same difference everywhere
        t_pvalue = 0.0 if same else float(stats.ttest_rel(left, right).pvalue)
        wilcoxon_pvalue = float(stats.wilcoxon(left, right).pvalue)
    interval = stats.bootstrap(
        (difference,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, BATCH_CELLS // len(difference)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return PairedComparison(
        metric=metric,
        num_tasks=len(difference),
        mean_a=float(left.mean()),
        mean_b=float(right.mean()),
        difference=float(difference.mean()),
        interval=(float(interval.low), float(interval.high)),
        confidence=confidence,
        t_pvalue=t_pvalue,
        wilcoxon_pvalue=wilcoxon_pvalue,
        wins=int((difference > 0).sum()),
        losses=int((difference < 0).sum()),
    )


@dataclass(frozen=True)
class PairedComparison:
    """The difference a - b of one metric over the tasks that both have.

    :param metric: its name.
    :param num_tasks: tasks compared.
    :param mean_a: average of a.
    :param mean_b: average of b.
    :param difference: average of a - b.
    :param interval: bootstrap interval of the average difference, tasks resampled.
    :param confidence: level of the interval.
    :param t_pvalue: of the paired t-test, two-sided.
    :param wilcoxon_pvalue: of Wilcoxon's signed-rank test, two-sided; equal tasks are left out of it.
    :param wins: tasks where a is larger.
    :param losses: tasks where b is larger.
    """

    metric: str
    num_tasks: int
    mean_a: float
    mean_b: float
    difference: float
    interval: tuple[float, float]
    confidence: float
    t_pvalue: float
    wilcoxon_pvalue: float
    wins: int
    losses: int

    @property
    def ties(self) -> int:
        """Tasks where both are equal."""
        return self.num_tasks - self.wins - self.losses

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.metric}: {self.mean_a:.4f} and {self.mean_b:.4f}, difference {self.difference:+.4f} "
            f"({self.confidence:.0%} interval {low:+.4f} to {high:+.4f}) over {self.num_tasks} tasks; "
            f"{self.wins} better, {self.losses} worse, {self.ties} equal; "
            f"p = {self.t_pvalue:.2g} (t), {self.wilcoxon_pvalue:.2g} (Wilcoxon)"
        )


def _paired(a: Any, b: Any, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(D,) each: the values over the tasks that have one."""
    both = isinstance(a, RankingScores), isinstance(b, RankingScores)
    if both[0] != both[1]:
        raise InputError(f"a, b: expected two RankingScores or two vectors, got {type(a).__name__}, {type(b).__name__}")
    if all(both):
        if not torch.equal(a.tasks, b.tasks) or not torch.equal(a.num_positives, b.num_positives):
            raise InputError("a, b: expected the same tasks with the same number of held-out positives each")
        left, right = a.per_task(metric), b.per_task(metric)
    else:
        left, right = _vector(a, "a"), _vector(b, "b")
        if len(left) != len(right):
            raise InputError(f"a, b: expected one number for each task, got {len(left)} and {len(right)}")
    missing = torch.isnan(left)
    if not torch.equal(missing, torch.isnan(right)):
        at = int((missing != torch.isnan(right)).nonzero()[0])
        raise InputError(f"a, b: expected NaN in the same tasks, got {left[at].item()} and {right[at].item()} at {at}")
    kept = ~missing
    if int(kept.sum()) < 2:
        raise InputError(f"a, b: expected at least two tasks with a value, got {int(kept.sum())}")
    return left[kept].numpy(), right[kept].numpy()


def _vector(value: Any, name: str) -> Tensor:
    vector = check_vector(as_tensor(value, name), name, "a vector, one number for each task").cpu()
    if vector.dtype == torch.bool:
        raise InputError(f"{name}: expected numbers, got booleans")
    refuse_where(torch.isinf(vector), vector, name, "a finite number, or NaN for a task without one")
    return vector.to(torch.float64)
