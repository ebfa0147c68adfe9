"""What the ranking likelihoods share: a noise, a target set, and whole lists."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.settings import num_likelihood_samples
from torch import Tensor

from ..checks import check_flag, check_instance, check_positive
from ..errors import InputError
from ..kernels.bounded import BoundedParameters
from .checks import check_labels, check_many_scores, check_scores, check_targets, check_task, check_weight
from .distribution import RankedLevels
from .lists import RankingLists
from .targets import Retargeting, TargetSet


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
        moved = torch.zeros_like(off[:0]).sum()
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
    :param list_sizes: how many entries the list of each task has, indexed by task; see :meth:`expected_log_prob`.
    :param noise_constraint: gpytorch constraint of the noise; greater than 1e-4 when left out.
    """

    has_analytic_marginal = False
    binary_labels: tuple[float, float] = (1.0, -1.0)  # of known links and of other items, where data have no labels

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

        :param labels: (T,).
        :param task: (T,) whole numbers.
        :param weight: (T,) positive, or None for 1.
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

        The gradient by a weight is :math:`\tfrac12 (\psi - r)^2`: r moves with both, but minimises the same sum.

        Divided by the noise and negated it is, up to a constant, the largest log-density of any scores that
        rank correctly: maximum likelihood for r instead of the average over r in :meth:`log_prob`.
        """
        retarget = self.retargeting(labels, task, weight.detach() if isinstance(weight, Tensor) else weight)
        scores = check_scores(scores, len(check_task(task)))
        checked = check_weight(weight, scores.numel(), keep_gradient=True)
        found: Tensor = _Loss.apply(scores, None if checked is None else checked.to(scores), retarget)[0]
        return found

    # The generative model ------------------------------------------------------------------------

    def log_prob(self, scores: Any, labels: Any, task: Any = None, weight: Any = None, counts: Any = None) -> Tensor:
        """() log p(labels | scores) of the generative model, scores (T,); see :mod:`mvgp.likelihoods.distribution`.

        The margin of the target set has no part in it: it is a device of the loss, and with it the probabilities of all
        labellings would not sum to 1.
        """
        scores = check_many_scores(scores)
        given = check_labels(labels, scores.shape[-1])
        found: Tensor = self.forward(scores, task=task, weight=weight, counts=counts).log_prob(given)
        return found

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *params: Any, **lists: Any
    ) -> Tensor:
        """(..., L) expected log-probability of each *list*, over joint samples of its scores.

        A list-wise likelihood does not split into entries, so there is one number for each list. Their sum is what
        gpytorch's ``VariationalELBO`` wants; it divides by the number of entries, as for any other likelihood.
        Batches may be made of lists, never of parts of lists: the order within half a list is not half of what the
        whole list says. Hence either give ``list_sizes`` to the constructor, and every call is checked against it,
        or promise ``complete_lists=True``.

        :param observations: (..., T) labels.
        :param function_dist: the distribution of the scores (..., T).
        :param params: ignored, as gpytorch passes inputs here.
        :param lists: ``task``, ``weight``, ``counts`` as in :meth:`forward`, and ``complete_lists``.
        """
        samples = self._list_log_probs(observations, function_dist, **lists)
        return samples.mean(0)

    def log_marginal(
        self, observations: Tensor, function_dist: MultivariateNormal, *params: Any, **lists: Any
    ) -> Tensor:
        """(..., L) logarithm of the expected probability of each list; the arguments of :meth:`expected_log_prob`."""
        samples = self._list_log_probs(observations, function_dist, **lists)
        return samples.logsumexp(0) - torch.tensor(float(samples.shape[0])).to(samples).log()

    def _list_log_probs(
        self, observations: Tensor, function_dist: MultivariateNormal, complete_lists: bool = False, **lists: Any
    ) -> Tensor:
        check_instance(function_dist, "function_dist", MultivariateNormal, "a MultivariateNormal of gpytorch")
        check_flag(complete_lists, "complete_lists")
        self._check_whole_lists(lists.get("task"), function_dist.event_shape[-1], complete_lists)
        return self._draw_likelihood_samples(function_dist, **lists).log_prob_of_lists(observations)

    def _check_whole_lists(self, task: Any, length: int, complete_lists: bool) -> None:
        if self.list_sizes is None:
            if not complete_lists:
                raise InputError(
                    "a list-wise likelihood needs whole lists: give the constructor list_sizes=torch.bincount(task) of "
                    "all data so that batches can be checked, or complete_lists=True to this call"
                )
            return
        given = torch.zeros(length, dtype=torch.long) if task is None else check_task(task)
        found, sizes = torch.unique(given, return_counts=True)
        for number, size in zip(found.tolist(), sizes.tolist(), strict=True):
            wanted = int(self.list_sizes[number]) if 0 <= number < len(self.list_sizes) else 0
            if size != wanted:
                raise InputError(
                    f"task {number}: expected its whole list of {wanted} entries, got {size} in this batch"
                )

    def _draw_likelihood_samples(
        self, function_dist: MultivariateNormal, *params: Any, sample_shape: Any = None, **lists: Any
    ) -> RankedLevels:
        # gpytorch's own draws entries independently while training; within a list their covariance matters
        shape = torch.Size([num_likelihood_samples.value()]) if sample_shape is None else torch.Size(sample_shape)
        found: RankedLevels = self.forward(function_dist.rsample(shape), *params, **lists)
        return found

    @abstractmethod
    def forward(
        self, function_samples: Tensor, *params: Any, task: Any = None, weight: Any = None, counts: Any = None
    ) -> RankedLevels:
        """The distribution of the labels given scores (..., T).

        :param task: (T,) whole numbers; one list when left out.
        :param weight: (T,) positive: the noise of a score is sigma^2 / w; with its gradient.
        :param counts: how many entries of each level a list has, when that is known.
        """

    def _grouping(self, scores: Tensor, task: Any, weight: Any) -> tuple[Tensor, int, Tensor]:
        """The list of each entry (T,), their number, and the standard deviation of each score (T,)."""
        length = scores.shape[-1]
        given = torch.zeros(length, dtype=torch.long) if task is None else check_task(task)
        if given.numel() != length:
            raise InputError(f"task: expected {length} entries, one for each score, got {given.numel()}")
        task_ids, list_of = torch.unique(given.to(scores.device), return_inverse=True)
        checked = check_weight(weight, length, keep_gradient=True)
        variance = self.noise.to(scores).expand(length)
        scale = (variance if checked is None else variance / checked.to(scores)).sqrt()
        return list_of, int(task_ids.numel()), scale
