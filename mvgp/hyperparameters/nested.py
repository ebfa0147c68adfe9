"""Nested cross-validation: how well a model does whose penalty was chosen without the test data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks import check_seed, check_whole_number, shown, whole
from ..errors import InputError
from ..likelihoods.losses import Data
from ..models.trace_gp import TraceGP
from .scoring import Score, resolve_metric
from .splits import Split, make_splits
from .validation import Choice, check_model, choose

if TYPE_CHECKING:
    import pandas as pd


def nested_cross_validation(
    model: TraceGP,
    data: Data,
    outer_folds: int | Sequence[Split] = 5,
    *,
    outer_share: float = 0.2,
    folds: int = 1,
    by: str = "pairs",
    metric: str | Callable[[Any, Data, Data], Any] = "MAP@100",
    seed: int = 0,
    **options: Any,
) -> NestedResult:
    """Choose, refit and score on each outer fold; the choice sees the outer training part only.

    :param model: the recipe; its own strength and trace share are not used.
    :param data: all of it, test data included.
    :param outer_folds: K, 1 for one split, or the splits themselves.
    :param outer_share: that is held out when ``outer_folds`` is 1.
    :param folds: of the inner cross-validation, within each outer training part; 1 for one split.
    :param by: "pairs" or "rows", for outer and inner splits alike.
    :param metric: what is maximised, and what the outer folds are judged by.
    :param seed: of the outer splits; each inner choice has one of its own that follows from it.
    :param options: the other arguments of :func:`choose`: ``trace_shares``, ``strengths``, ``patience``, ``negatives``
        and so on.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> from mvgp.hyperparameters import nested_cross_validation
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3), (3, 0)], 4))
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3], shape=(4, 4))
        >>> model = mvgp.TraceGP(mvgp.MatrixGP(kernel, kernel), BipartiteRankingLikelihood())
        >>> inner = {"trace_shares": [0.8], "strengths": [0.5, 0.1], "metric": "AUC", "progress": False}
        >>> len(nested_cross_validation(model, links, outer_folds=2, **inner).folds)
        2

    """
    check_model(model)
    if whole(folds) is None:
        raise InputError(f"folds: expected a whole number, as splits would hold outer test data, got {shown(folds)}")
    folds, seed = check_whole_number(folds, "folds"), check_seed(seed)
    splits = make_splits(data, by, outer_folds, outer_share, seed)
    judge = resolve_metric(metric, model.likelihood, data)
    outer = []
    for at, split in enumerate(splits):
        choice = choose(
            model,
            split.train,
            folds=folds,
            by=by,
            metric=metric,
            seed=seed + 1 + at,
            **options,
        )
        posterior = choice.refit(split.train)
        outer.append(OuterFold(choice, judge(posterior, split.train, split.held_out)))
    return NestedResult(judge.name, tuple(outer))


@dataclass(frozen=True, eq=False, repr=False)
class NestedResult:
    """What nested cross-validation found.

    :param metric: its name.
    :param folds: one for each outer fold.
    """

    metric: str
    folds: tuple[OuterFold, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """The metric on each outer fold's held-out part."""
        return tuple(fold.score.value for fold in self.folds)

    @property
    def mean(self) -> float:
        """Average over outer folds."""
        return statistics.fmean(self.scores)

    @property
    def standard_error(self) -> float:
        """Of the average over outer folds; over tasks if there is one fold."""
        if len(self.folds) == 1:
            return self.folds[0].score.standard_error
        return statistics.stdev(self.scores) / math.sqrt(len(self.folds))

    def to_frame(self) -> pd.DataFrame:
        """One line for each outer fold, as a pandas frame."""
        import pandas as pd

        lines = []
        for at, fold in enumerate(self.folds):
            chosen = fold.choice.chosen
            line = {"fold": at, "trace_share": chosen.trace_share, "strength": chosen.strength}
            lines.append({**line, "validation": chosen.mean, self.metric: fold.score.value})
        return pd.DataFrame(lines)

    def __repr__(self) -> str:
        return f"NestedResult({self.metric} {self.mean:.4g} +- {self.standard_error:.2g} over {len(self.folds)} folds)"


@dataclass(frozen=True, eq=False)
class OuterFold:
    """One outer fold.

    :param choice: made within its training part, with the whole table.
    :param score: of the model refitted to the training part, on the held-out part.
    """

    choice: Choice
    score: Score
