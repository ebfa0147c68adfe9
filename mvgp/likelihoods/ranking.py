"""Ranking likelihoods: labels say which items of a task are to be ranked above which, and nothing else.

A fit uses :meth:`RankingLikelihood.data_loss`, equation (9); the generative model is in
:mod:`~mvgp.likelihoods.distribution`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.settings import num_likelihood_samples
from torch import Tensor

from ..checks import (
    check_flag,
    check_instance,
    check_not_negative,
    check_positive,
    check_whole_number,
    most_derived,
    overridden,
    refuse_gradient,
)
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..kernels.bounded import BoundedParameters
from ..priors.means import MatrixMean
from ..tensor_checks import check_whole
from .distribution import RankedLabels, RankedLevels
from .lists import RankingLists, check_labels, check_many_scores, check_scores, check_targets, check_task, check_weight
from .losses import (
    Data,
    Loss,
    RetargetedLoss,
    Retargeting,
    observed_parts,
    whole_list_offset,
)
from .projections import GradedOrder, OrderCone, TargetSet
from .thresholds import WholeListRankingLoss, WholeListRetargetedLoss


class _Loss(torch.autograd.Function):
    """Half the weighted squares of psi - r(psi), equation (9); r moves, but by the envelope theorem to no effect."""

    @staticmethod
    def forward(scores: Tensor, weight: Tensor | None, retarget: Retargeting) -> tuple[Tensor, Tensor]:
        off = scores - check_targets(retarget(scores), scores)
        return (off.square() if weight is None else weight * off.square()).sum() / 2, off

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        scores, weight, ctx.retarget = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(scores, weight, output[1])
        ctx.save_for_forward(scores, weight, output[1])

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, None]:
        _, weight, off = ctx.saved_tensors
        moved = off.new_zeros(())
        if tangents[0] is not None:
            moved = moved + ((off if weight is None else weight * off) * tangents[0]).sum()
        if tangents[1] is not None:
            moved = moved + (off.square() * tangents[1]).sum() / 2
        return moved, None

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scores, weight, off = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: in the second derivative r does move
            if ctx.needs_input_grad[1]:
                raise InputError("create_graph: second derivatives by the weights are not offered; pass them detached")
            off = scores - ctx.retarget(scores)
        to_weight = upstream[0] * off.square() / 2 if ctx.needs_input_grad[1] else None
        return upstream[0] * (off if weight is None else weight * off), to_weight, None


class RankingLikelihood(BoundedParameters, Likelihood):
    r"""Base of the list-wise likelihoods. A subclass says how labels become lists, and builds the distribution.

    Scores of a list are :math:`r_t \sim N(\psi_t, \sigma^2 / w_t)`, and labels follow from their order.

    :param target: the set of scores that count as a correct ranking.
    :param noise: sigma^2, the variance of a score with weight 1.
    :param list_sizes: how many entries the list of each task has, indexed by task (``torch.bincount(task)``); see
        :meth:`expected_log_prob`.
    :param noise_constraint: gpytorch constraint of the noise; greater than 1e-4 when left out.
    """

    has_analytic_marginal = False
    binary_labels: tuple[float, float] = (1.0, -1.0)  # of known links and of other items, where data have no labels
    closed_form = False  # whether ``lists`` puts known links over other items; next to ``lists``, where it is so

    def __init__(
        self, target: TargetSet, noise: float, list_sizes: Any = None, noise_constraint: Interval | None = None
    ) -> None:
        super().__init__()
        if not callable(getattr(target, "projection", None)):
            raise InputError(f"target: expected a TargetSet with a method projection, got {type(target).__name__}")
        self.target = target
        within = GreaterThan(1e-4) if noise_constraint is None else noise_constraint
        self._add_parameter("noise", check_positive(noise, "noise"), within, shape=(1,))
        self.register_buffer("list_sizes", None if list_sizes is None else check_task(list_sizes, "list_sizes"))

    @property
    def noise(self) -> Tensor:
        """(1,) sigma^2"""
        return self._get_parameter("noise")

    @noise.setter
    def noise(self, value: Any) -> None:
        self._set_parameter("noise", value)

    # Retargeting: equations (8) and (9) ----------------------------------------------------------

    @abstractmethod
    def lists(self, labels: Any, task: Any) -> RankingLists:
        """The entries grouped by ``task`` (T,) and label (T,)."""

    def retargeting(self, labels: Any, task: Any, weight: Any = None) -> Retargeting:
        """The map psi (T,) -> r (T,) of equation (8), grouped once: for solvers that call it many times.

        ``labels`` and ``task`` are (T,), ``weight`` is (T,) and positive, or None for 1.
        """
        lists = self.lists(labels, task)
        checked = check_weight(weight, len(lists))
        if checked is not None and not self.target.supports_weights:
            raise InputError(f"weight: {type(self.target).__name__} takes none, got weights")
        return self.target.projection(lists, checked)

    def retarget(self, scores: Any, labels: Any, task: Any, weight: Any = None) -> Tensor:
        """(T,) r: the scores of the target set nearest to ``scores`` (T,), equation (8)."""
        checked = check_scores(scores, len(check_task(task)))
        return check_targets(self.retargeting(labels, task, weight)(checked), checked)

    def loss(self, scores: Any, labels: Any, task: Any, weight: Any = None) -> Tensor:
        r"""() :math:`\tfrac12 \sum_t w_t (\psi_t - r_t(\psi))^2`, equation (9); its gradient is :math:`w (\psi - r)`.

        The gradient by a weight is :math:`\tfrac12 (\psi - r)^2`. Divided by the noise and negated the loss is, up to a
        constant, the largest log-density of any scores that rank correctly: maximum likelihood for r instead of the
        average over r in :meth:`log_prob`.
        """
        retarget = self.retargeting(labels, task, weight.detach() if isinstance(weight, Tensor) else weight)
        scores = check_scores(scores, len(check_task(task)))
        checked = check_weight(weight, scores.numel(), keep_gradient=True)
        return _Loss.apply(scores, None if checked is None else checked.to(scores), retarget)[0]

    # The loss of a fit ---------------------------------------------------------------------------

    def data_loss(self, data: Data, mean: MatrixMean) -> Loss:
        """Equation (9) on any kind of data, each row a task, in the precision and on the device of the prior mean."""
        return self.whole_list_loss(data, mean) if isinstance(data, PositiveUnlabelled) else self.pair_loss(data, mean)

    def pair_loss(self, data: ObservedMatrix, mean: MatrixMean) -> Loss:
        """:meth:`data_loss` of labelled pairs."""
        rows, cols, labels, weights = observed_parts(data, mean)
        retarget, offset = self.fit_retargeting(labels, rows, weights), mean(rows, cols)
        if bool((offset != 0).any()):
            return RetargetedLoss(lambda psi: retarget(psi + offset) - offset, weights)
        return RetargetedLoss(retarget, weights)

    def whole_list_loss(self, data: PositiveUnlabelled, mean: MatrixMean) -> Loss:
        """:meth:`data_loss` of whole lists: in closed form for the order cone, else by the target set's projection.

        The closed form stands in for methods of this likelihood and of its target set. It is used unless one of them
        has been overridden below the class that declares ``closed_form``.
        """
        self._check_loss()
        positions, offset = data.positions.to(mean.zero.device), whole_list_offset(data, mean)
        own = most_derived(self, "closed_form", "lists", "retargeting", "retarget", "fit_retargeting")
        if own == most_derived(self.target, "closed_form", "projection") == "closed_form" and self.closed_form:
            margin: float = self.target.margin  # type: ignore[attr-defined]
            return WholeListRankingLoss(positions, data.shape[1], data.weight, margin, offset)

        def retargeting_of(positive: Tensor, task: Tensor, weight: Tensor | None) -> Retargeting:
            labels = torch.where(positive, *self.binary_labels).to(mean.zero.dtype)
            return self.fit_retargeting(labels, task, weight)

        return WholeListRetargetedLoss(positions, data.shape[1], data.num_cells, data.weight, retargeting_of, offset)

    def fit_retargeting(self, labels: Tensor, task: Tensor, weight: Tensor | None) -> Retargeting:
        """The map psi (T,) -> r (T,) that a fit uses: of ``retargeting`` and ``retarget`` the one a user overrides."""
        self._check_loss()
        if most_derived(self, "retargeting", "retarget") == "retarget":
            return lambda psi: self.retarget(psi, labels, task, weight)
        return self.retargeting(labels, task, weight)

    def _check_loss(self) -> None:
        """Refuse a ``loss`` of a user's own: there would be no certificate for it."""
        if overridden(self, RankingLikelihood, "loss"):
            raise InputError(
                f"likelihood: {type(self).__name__} overrides loss, which a fit would ignore: it minimises equation "
                "(9) with the targets of retargeting. Override retargeting, retarget or lists, or give a target set"
            )

    # The generative model ------------------------------------------------------------------------

    def log_prob(self, scores: Any, labels: Any, task: Any = None, weight: Any = None, counts: Any = None) -> Tensor:
        """() log p(labels | scores) of the generative model, scores (T,); see :mod:`mvgp.likelihoods.distribution`.

        The margin of the target set has no part in it: it is a device of the loss, and with it the probabilities of all
        labellings would not sum to 1.
        """
        scores = check_many_scores(scores)
        labels = check_labels(labels, scores.shape[-1])
        return self.forward(scores, task=task, weight=weight, counts=counts).log_prob(labels)

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *params: Any, **lists: Any
    ) -> Tensor:
        """(..., L) expected log-probability of each *list*, over joint samples of its scores.

        A list-wise likelihood does not split into entries, so there is one number for each list. Their sum is what
        gpytorch's ``VariationalELBO`` wants. Batches may be made of lists, never of parts of lists: the order within
        half a list is not half of what the whole list says. Hence either give ``list_sizes`` to the constructor, and
        every call is checked against it, or promise ``complete_lists=True``.

        :param observations: (..., T) labels.
        :param function_dist: the distribution of the scores (..., T).
        :param params: ignored, as gpytorch passes inputs here.
        :param lists: ``task``, ``weight``, ``counts`` as in :meth:`forward`, and ``complete_lists``.
        """
        return self._list_log_probs(observations, function_dist, **lists).mean(0)

    def log_marginal(
        self, observations: Tensor, function_dist: MultivariateNormal, *params: Any, **lists: Any
    ) -> Tensor:
        """(..., L) logarithm of the expected probability of each list; the arguments of :meth:`expected_log_prob`."""
        samples = self._list_log_probs(observations, function_dist, **lists)
        return samples.logsumexp(0) - torch.tensor(float(samples.shape[0])).to(samples).log()

    def _list_log_probs(
        self, observations: Tensor, function_dist: MultivariateNormal, complete_lists: bool = False, **lists: Any
    ) -> Tensor:
        """(S, ..., L) log-probability of each list for S samples of its scores; lists have to be whole."""
        check_instance(function_dist, "function_dist", MultivariateNormal, "a MultivariateNormal of gpytorch")
        if not check_flag(complete_lists, "complete_lists") and self.list_sizes is None:
            raise InputError(
                "a list-wise likelihood needs whole lists: give the constructor list_sizes=torch.bincount(task) of "
                "all data so that batches can be checked, or complete_lists=True to this call"
            )
        if self.list_sizes is not None:
            sizes, task = self.list_sizes.tolist(), lists.get("task")
            task = torch.zeros(function_dist.event_shape[-1], dtype=torch.long) if task is None else check_task(task)
            for number, size in zip(*(part.tolist() for part in torch.unique(task, return_counts=True)), strict=True):
                whole = sizes[number] if 0 <= number < len(sizes) else 0
                if size != whole:
                    expected = f"its whole list of {whole} entries"
                    raise InputError(f"task {number}: expected {expected}, got {size} in this batch")
        return self._draw_likelihood_samples(function_dist, **lists).log_prob_of_lists(observations)

    def _draw_likelihood_samples(
        self, function_dist: MultivariateNormal, *params: Any, sample_shape: Any = None, **lists: Any
    ) -> RankedLevels:
        # gpytorch's own draws entries independently while training; within a list their covariance matters
        shape = torch.Size([num_likelihood_samples.value()]) if sample_shape is None else torch.Size(sample_shape)
        return self.forward(function_dist.rsample(shape), *params, **lists)

    @abstractmethod
    def forward(
        self, function_samples: Tensor, *params: Any, task: Any = None, weight: Any = None, counts: Any = None
    ) -> RankedLevels:
        """The distribution of the labels given scores (..., T).

        :param task: (T,) whole numbers; one list when left out.
        :param weight: (T,) positive: the noise of a score is sigma^2 / w; with its gradient.
        :param counts: how many entries of each level a list has, when that is known.
        """

    def _grouping(self, function_samples: Any, task: Any, weight: Any) -> tuple[Tensor, Tensor, int, Tensor]:
        """Scores (..., T), the list of each entry (T,), their number, and the standard deviation of each score (T,)."""
        scores = check_many_scores(function_samples, "function_samples")
        length = scores.shape[-1]
        task = torch.zeros(length, dtype=torch.long) if task is None else check_task(task)
        if task.numel() != length:
            raise InputError(f"task: expected {length} entries, one for each score, got {task.numel()}")
        task_ids, list_of = torch.unique(task.to(scores.device), return_inverse=True)
        checked = check_weight(weight, length, keep_gradient=True)
        variance = self.noise.to(scores).expand(length)
        scale = (variance if checked is None else variance / checked.to(scores)).sqrt()
        return scores, list_of, int(task_ids.numel()), scale


def _target_or_cone(target: TargetSet | None, margin: float, cone: type[OrderCone]) -> TargetSet:
    """The target set, or the default one with this margin; not both."""
    if target is None:
        return cone(margin)
    if check_not_negative(margin, "margin") != 1.0:
        raise InputError(f"margin: a target set has its own; give one of the two, got margin {margin!r} and a target")
    return target


class BipartiteRankingLikelihood(RankingLikelihood):
    r"""Labels +1 and -1 say which items of a task are to be ranked above which, and nothing else.

    Scores are :math:`r = \psi + \epsilon` with :math:`\epsilon \sim N(0, \sigma^2)`; labels of a task are impossible as
    soon as some negative has a larger r than some positive. Maximum likelihood of r moves each target to where the
    ranking allows (:meth:`retarget`, equation (8)); what remains is :meth:`loss`, equation (9). :meth:`log_prob` and
    :meth:`forward` average over r instead.

    :param margin: of the default target set, :class:`~mvgp.likelihoods.OrderCone`.
    :param target: another target set; it has its own margin.

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

    closed_form = True

    def __init__(
        self,
        margin: float = 1.0,
        noise: float = 0.1,
        target: TargetSet | None = None,
        *,
        list_sizes: Any = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        super().__init__(_target_or_cone(target, margin, OrderCone), noise, list_sizes, noise_constraint)

    def lists(self, labels: Any, task: Any) -> RankingLists:
        """The entries grouped by ``task`` (T,) and ``labels`` (T,) in {+1, -1}."""
        return RankingLists.from_labels(labels, task)

    def forward(
        self, function_samples: Tensor, *params: Any, task: Any = None, weight: Any = None, counts: Any = None
    ) -> RankedLabels:
        """The distribution of the labels given scores (..., T); see :meth:`RankingLikelihood.forward`.

        :param counts: the number of positives of each list, a number or (L,) in ascending order of tasks; when left out
            it is uniform on 0, ..., n.
        """
        scores, list_of, num_lists, scale = self._grouping(function_samples, task, weight)
        both = None
        if counts is not None:
            refuse_gradient(counts, "counts")
            sizes = torch.bincount(list_of, minlength=num_lists)
            counts = check_whole(counts, "counts").to(sizes.device)
            if tuple(counts.shape) not in ((), (1,), (num_lists,)):
                shape = tuple(counts.shape)
                raise InputError(f"counts: expected a number, or one for each of {num_lists} lists, got shape {shape}")
            positives = counts.expand(num_lists)
            bad = (positives < 0) | (positives > sizes)
            if bad.any():
                at = int(bad.nonzero()[0])
                raise InputError(f"counts[{at}]: expected 0 to {int(sizes[at])} positives, got {int(positives[at])}")
            both = torch.stack([sizes - positives, positives], -1)
        return RankedLabels(scores, list_of, num_lists, scale, 2, both)


class GradedRankingLikelihood(RankingLikelihood):
    """Labels 0, 1, ..., K - 1 say which items of a task are to be ranked above which, and nothing else.

    As :class:`~mvgp.likelihoods.BipartiteRankingLikelihood`, which it is for K = 2 but for the names of the labels.

    :param num_levels: K >= 2.
    :param margin: of the default target set, :class:`~mvgp.likelihoods.GradedOrder`; for each step between levels.
    :param target: another target set; it has its own margin.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import GradedRankingLikelihood
        >>> ranking = GradedRankingLikelihood(num_levels=3, margin=1.0)
        >>> psi, levels, task = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0])
        >>> ranking.retarget(psi, levels, task).tolist()
        [-1.0, 0.0, 1.0]

    """

    binary_labels = (1.0, 0.0)
    closed_form = True

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
        super().__init__(_target_or_cone(target, margin, GradedOrder), noise, list_sizes, noise_constraint)
        self.num_levels = check_whole_number(num_levels, "num_levels", 2)

    def lists(self, labels: Any, task: Any) -> RankingLists:
        """The entries grouped by ``task`` (T,) and ``labels`` (T,), whole numbers from 0 to K - 1."""
        lists = RankingLists.graded(labels, task)
        bad = lists.cell_level[(lists.cell_level < 0) | (lists.cell_level >= self.num_levels)]
        if bad.numel():
            raise InputError(f"labels: expected whole numbers from 0 to {self.num_levels - 1}, got {int(bad[0])}")
        return lists

    def forward(
        self, function_samples: Tensor, *params: Any, task: Any = None, weight: Any = None, counts: Any = None
    ) -> RankedLevels:
        """The distribution of the levels given scores (..., T); see :meth:`RankingLikelihood.forward`.

        :param counts: (L, K) how many entries of each level a list has; when left out all possibilities are alike.
        """
        scores, list_of, num_lists, scale = self._grouping(function_samples, task, weight)
        if counts is not None:
            counts = check_whole(counts, "counts").to(scores.device)
            shape, levels = tuple(counts.shape), self.num_levels
            if shape not in [(levels,), (1, levels), (num_lists, levels)] or bool((counts < 0).any()):
                raise InputError(f"counts: expected ({num_lists}, {levels}) counts, got shape {shape}")
            counts = counts.expand(num_lists, self.num_levels)
        return RankedLevels(scores, list_of, num_lists, scale, self.num_levels, counts)
