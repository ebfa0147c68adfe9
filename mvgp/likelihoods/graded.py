"""GradedRankingLikelihood: several levels of relevance in each task."""

from __future__ import annotations

from typing import Any

from gpytorch.constraints import Interval
from torch import Tensor

from ..checks import check_not_negative, check_whole, check_whole_number
from ..errors import InputError
from .checks import check_many_scores
from .distribution import RankedLevels
from .lists import RankingLists
from .ranking_likelihood import RankingLikelihood
from .targets import GradedOrder, TargetSet


class GradedRankingLikelihood(RankingLikelihood):
    """Labels 0, 1, ..., K - 1 say which items of a task are to be ranked above which, and nothing else.

    As :class:`~mvgp.likelihoods.BipartiteRankingLikelihood`, which it is for K = 2 but for the names of the labels.

    :param num_levels: K >= 2.
    :param margin: of the default target set, :class:`~mvgp.likelihoods.GradedOrder`; for each step between levels.
    :param noise: sigma^2.
    :param target: another target set; it has its own margin.
    :param list_sizes: how many entries the list of each task has, indexed by task (``torch.bincount(task)``).
    :param noise_constraint: gpytorch constraint of the noise.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import GradedRankingLikelihood
        >>> ranking = GradedRankingLikelihood(num_levels=3, margin=1.0)
        >>> psi, levels, task = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0])
        >>> ranking.retarget(psi, levels, task).tolist()
        [-1.0, 0.0, 1.0]

    """

    binary_labels = (1.0, 0.0)

    def __init__(
        self,
        num_levels: int,
        margin: float = 1.0,
        noise: float = 0.1,
        target: TargetSet | None = None,
        *,
        list_sizes: Any = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        num_levels = check_whole_number(num_levels, "num_levels", 2)
        if target is not None and check_not_negative(margin, "margin") != 1.0:
            raise InputError(
                f"margin: a target set has its own; give one of the two, got margin {margin!r} and a target"
            )
        super().__init__(GradedOrder(margin) if target is None else target, noise, list_sizes, noise_constraint)
        self.num_levels = num_levels

    def lists(self, labels: Any, task: Any) -> RankingLists:
        """The entries grouped by ``task`` (T,) and ``labels`` (T,), whole numbers from 0 to K - 1."""
        lists = RankingLists.graded(labels, task)
        bad = (lists.cell_level < 0) | (lists.cell_level >= self.num_levels)
        if bad.any():
            at = int(lists.cell_level[bad][0])
            raise InputError(f"labels: expected whole numbers from 0 to {self.num_levels - 1}, got {at}")
        return lists

    def forward(
        self, function_samples: Tensor, *params: Any, task: Any = None, weight: Any = None, counts: Any = None
    ) -> RankedLevels:
        """The distribution of the levels given scores (..., T).

        :param task: (T,) whole numbers; one list when left out.
        :param weight: (T,) positive: the noise of a score is sigma^2 / w.
        :param counts: (L, K) how many entries of each level a list has; when left out all possibilities are alike.
        """
        function_samples = check_many_scores(function_samples, "function_samples")
        list_of, num_lists, scale = self._grouping(function_samples, task, weight)
        given = None
        if counts is not None:
            given = check_whole(counts, "counts").to(function_samples.device)
            fits = given.dim() in (1, 2) and given.shape[-1] == self.num_levels and given.shape[0] in (1, num_lists)
            if not (fits or tuple(given.shape) == (self.num_levels,)) or bool((given < 0).any()):
                raise InputError(
                    f"counts: expected ({num_lists}, {self.num_levels}) counts, got shape {tuple(given.shape)}"
                )
            given = given.expand(num_lists, self.num_levels)
        return RankedLevels(function_samples, list_of, num_lists, scale, self.num_levels, given)
