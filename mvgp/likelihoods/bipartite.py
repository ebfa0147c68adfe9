"""BipartiteRankingLikelihood: positives and negatives in each task."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval
from torch import Tensor

from ..checks import check_not_negative, check_whole, refuse_gradient
from ..errors import InputError
from .checks import check_many_scores
from .distribution import RankedLabels
from .lists import RankingLists
from .ranking_likelihood import RankingLikelihood
from .targets import OrderCone, TargetSet


class BipartiteRankingLikelihood(RankingLikelihood):
    r"""Labels +1 and -1 say which items of a task are to be ranked above which, and nothing else.

    The generative model: scores :math:`r = \psi + \epsilon` with :math:`\epsilon \sim N(0, \sigma^2)`; labels of a task
    are impossible as soon as some negative has a larger r than some positive. Training by maximum
    likelihood of r moves each target to where the ranking allows (:meth:`retarget`, equation (8)); what remains
    is :meth:`loss`, equation (9). :meth:`log_prob` and :meth:`forward` average over r instead.

    :param margin: of the default target set, :class:`~mvgp.likelihoods.OrderCone`.
    :param noise: sigma^2.
    :param target: another target set; it has its own margin.
    :param list_sizes: how many entries the list of each task has, indexed by task (``torch.bincount(task)``).
    :param noise_constraint: gpytorch constraint of the noise.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> ranking = BipartiteRankingLikelihood(margin=1.0, noise=0.1)
        >>> psi, labels, task = torch.tensor([0.0, 1.0]), torch.tensor([1, -1]), torch.tensor([0, 0])
        >>> ranking.retarget(psi, labels, task).tolist()
        [1.0, 0.0]
        >>> float(ranking.loss(psi, labels, task))
        1.0

    """

    def __init__(
        self,
        margin: float = 1.0,
        noise: float = 0.1,
        target: TargetSet | None = None,
        *,
        list_sizes: Any = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        if target is not None and check_not_negative(margin, "margin") != 1.0:
            raise InputError(
                f"margin: a target set has its own; give one of the two, got margin {margin!r} and a target"
            )
        super().__init__(OrderCone(margin) if target is None else target, noise, list_sizes, noise_constraint)

    def lists(self, labels: Any, task: Any) -> RankingLists:
        """The entries grouped by ``task`` (T,) and ``labels`` (T,) in {+1, -1}."""
        return RankingLists.from_labels(labels, task)

    def forward(
        self, function_samples: Tensor, *params: Any, task: Any = None, weight: Any = None, counts: Any = None
    ) -> RankedLabels:
        """The distribution of the labels given scores (..., T).

        :param task: (T,) whole numbers; one list when left out.
        :param weight: (T,) positive: the noise of a score is sigma^2 / w.
        :param counts: the number of positives of each list, a number or (L,) in ascending order of tasks; when left out
            it is uniform on 0, ..., n.
        """
        function_samples = check_many_scores(function_samples, "function_samples")
        list_of, num_lists, scale = self._grouping(function_samples, task, weight)
        both = None
        if counts is not None:
            refuse_gradient(counts, "counts")
            sizes = torch.bincount(list_of, minlength=num_lists)
            given = check_whole(counts, "counts").to(sizes.device)
            if tuple(given.shape) not in ((), (1,), (num_lists,)):
                shape = tuple(given.shape)
                raise InputError(f"counts: expected a number, or one for each of {num_lists} lists, got shape {shape}")
            positives = given.expand(num_lists)
            bad = (positives < 0) | (positives > sizes)
            if bad.any():
                at = int(bad.nonzero()[0])
                raise InputError(f"counts[{at}]: expected 0 to {int(sizes[at])} positives, got {int(positives[at])}")
            both = torch.stack([sizes - positives, positives], -1)
        return RankedLabels(function_samples, list_of, num_lists, scale, 2, both)
