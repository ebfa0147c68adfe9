"""TargetSetContract, LikelihoodContract: what mvgp relies on in a set of targets and in a ranking likelihood."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from scipy.optimize import nnls
from torch import Tensor

from ..data.observed import ObservedMatrix
from ..kernels.graph import DiffusionKernel, Graph
from ..likelihoods.lists import RankingLists
from ..likelihoods.projections import TargetSet
from ..likelihoods.ranking import RankingLikelihood
from ..models.trace_gp import TraceGP
from ..priors.matrix_gp import MatrixGP
from .contract import Contract, rounding, slopes

SEEDS = range(5)
Projection = Callable[[Tensor], Tensor]


class ExampleLists(NamedTuple):
    """Lists in no order: list 0 has the lowest level only, list 1 the highest, list 2 one entry."""

    scores: Tensor  # (T,) psi
    level: Tensor  # (T,) whole numbers from 0 on
    task: Tensor  # (T,) whole numbers, not consecutive
    weight: Tensor  # (T,) positive

    @classmethod
    def draw(cls, seed: int, num_levels: int, num_lists: int = 8) -> ExampleLists:
        """The same for the same ``seed``."""
        draw = np.random.default_rng(seed)
        sizes = draw.integers(2, 8, num_lists)
        sizes[2] = 1
        number = np.repeat(np.arange(num_lists), sizes)
        level = draw.integers(0, num_levels, len(number))
        level[number == 0], level[number == 1] = 0, num_levels - 1
        scores = draw.normal(size=len(number)) * draw.choice([0.3, 1.0, 5.0], num_lists)[number]
        weight, order = draw.uniform(0.2, 2.0, len(number)), draw.permutation(len(number))
        return cls(*(torch.from_numpy(part[order]) for part in (scores, level, 3 * number + 1, weight)))


def nearest_in_polyhedron(point: np.ndarray, above: np.ndarray, lower: np.ndarray, weight: np.ndarray) -> np.ndarray:
    r"""(n,) the r nearest to ``point`` (n,) with ``above`` (q, n) r >= ``lower`` (q,), in the norm of ``weight`` (n,).

    Least distance programming (Lawson and Hanson 1974, chapter 23): the shortest u with G u >= h follows from the
    residual of one non-negative least-squares problem, :math:`\min_{\lambda \ge 0} \|(G^T; h^T) \lambda - e_{n+1}\|`.
    """
    if len(lower) == 0:  # nothing to keep to; scipy's solver aborts the process on an empty system
        return point
    scale = 1 / np.sqrt(weight)
    system = np.vstack([(above * scale).T, lower - above @ point])  # (n + 1, q)
    expected = np.eye(len(point) + 1)[-1]
    residual = system @ nnls(system, expected, maxiter=100 * system.shape[1])[0] - expected
    if abs(residual[-1]) < 1e-12:
        raise ValueError("the inequalities contradict each other")
    return point - scale * residual[:-1] / residual[-1]


class TargetSetContract(Contract):
    r"""Rules of a :class:`~mvgp.likelihoods.TargetSet`: its map is the projection onto a closed convex set.

    The certificate (11) holds for such maps and for no others. A map P is one if and only if
    :math:`\langle \psi - P\psi, P\phi - P\psi \rangle_w \le 0` for all :math:`\psi, \phi`, and its values form a
    convex set.

    Override :meth:`make_target_set`; and :meth:`inequalities`, if the set is a polyhedron, to compare with a
    quadratic program that knows nothing of the map.

    Example:
        >>> from mvgp.likelihoods import OrderCone
        >>> from mvgp.testing import TargetSetContract, run_contract
        >>> class ConeContract(TargetSetContract):
        ...     def make_target_set(self):
        ...         return OrderCone(margin=0.5)
        >>> run_contract(ConeContract).broken
        {}

    """

    num_levels = 2  # of relevance in the lists to try it on

    def make_target_set(self) -> TargetSet:
        """The set."""
        raise NotImplementedError("override make_target_set")

    def inequalities(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """The set of one list with levels (n,) as A r >= c: A (q, n) and c (q,); an equation is two of them."""
        raise unittest.SkipTest("the set is not given by inequalities (override inequalities)")

    def _lists(self, lists: ExampleLists) -> RankingLists:
        if self.num_levels == 2:
            return RankingLists.bipartite(lists.level > 0, lists.task)
        return RankingLists.graded(lists.level, lists.task)

    def _cases(self) -> Iterator[tuple[ExampleLists, Tensor, Projection]]:
        """Lists, their weights (T,), which are 1 unless the set takes others, and a new map for them."""
        for seed in SEEDS:
            lists, target = ExampleLists.draw(seed, self.num_levels), self.make_target_set()
            for weight in [None, lists.weight] if target.supports_weights else [None]:
                metric = torch.ones_like(lists.scores) if weight is None else weight
                yield lists, metric, self.make_target_set().projection(self._lists(lists), weight)

    def test_it_says_what_it_can_do(self) -> None:
        """supports_weights and shift_invariant are booleans, projection returns a map."""
        target = self.make_target_set()
        for name in ("supports_weights", "shift_invariant"):
            actual = getattr(target, name, None)
            self.require(isinstance(actual, bool), f"{name} is True or False, got {actual!r}")
        project = next(self._cases())[2]
        self.require(callable(project), "projection(lists) returns a map psi (T,) -> r (T,)")

    def test_targets_look_like_scores(self) -> None:
        """Shape and precision of the scores, finite, and the scores are not written to."""
        for dtype in (torch.float64, torch.float32):
            for lists, _, project in self._cases():
                scores = lists.scores.to(dtype)
                before = scores.clone()
                actual = project(scores)
                self.require(actual.shape == scores.shape, f"targets are (T,), got {tuple(actual.shape)}")
                self.require(actual.dtype == dtype, f"targets have the precision of the scores, got {actual.dtype}")
                self.require(torch.isfinite(actual).all(), "targets are finite")
                self.require(torch.equal(scores, before), "scores are left as they are")

    def test_a_map_can_be_called_again(self) -> None:
        """What was projected before does not change the result."""
        for lists, _, project in self._cases():
            first = project(lists.scores).clone()
            project(-3 * lists.scores + 1)
            rule = "projecting something else in between changes nothing"
            self.require_close(project(lists.scores), first, rule, relative=1e-12)

    def test_targets_are_their_own_targets(self) -> None:
        """Projecting twice is projecting once."""
        for lists, _, project in self._cases():
            actual = project(lists.scores)
            self.require_close(project(actual), actual, "P(P(psi)) = P(psi)", relative=1e-10)

    def test_it_is_the_nearest_point(self) -> None:
        """No point of the set lies on the near side: <psi - P psi, P phi - P psi> <= 0."""
        for (psi, *_), metric, project in self._cases():
            nearest = project(psi)
            for other in (psi.flip(0), 0 * psi, 4 * psi, psi + 1):
                product = float((metric * (psi - nearest) * (project(other) - nearest)).sum())
                rule = f"P psi is the point of the set nearest to psi: <psi - P psi, P phi - P psi> = {product:.3g} > 0"
                self.require(product <= 1e-9 * float((metric * psi.square()).sum()), rule)

    def test_the_set_is_convex(self) -> None:
        """Half way between two targets nothing moves."""
        for lists, _, project in self._cases():
            middle = (project(lists.scores) + project(-lists.scores)) / 2
            self.require_close(project(middle), middle, "the middle of two targets is a target", relative=1e-10)

    def test_targets_move_no_further_than_scores(self) -> None:
        """The map is non-expansive: targets of two scores are no further apart than the scores."""
        for (psi, *_), metric, project in self._cases():
            other = psi.flip(0) + 0.1
            moved = (metric * (project(psi) - project(other)).square()).sum()
            apart = (metric * (psi - other).square()).sum()
            self.require(moved <= apart * (1 + 1e-9), "targets move no further than scores (non-expansive)")

    def test_lists_do_not_meddle_with_each_other(self) -> None:
        """Scores of one list change the targets of that list only."""
        for lists, _, project in self._cases():
            own = lists.task == lists.task[0]
            before, after = project(lists.scores), project(torch.where(own, -2 * lists.scores + 1, lists.scores))
            self.require_close(after[~own], before[~own], "targets of a list depend on that list only", relative=1e-10)

    def test_an_offset_of_a_list_goes_through_if_promised(self) -> None:
        """With shift_invariant, P(psi + constant) = P(psi) + constant; it decides whether biases are offered."""
        if not self.make_target_set().shift_invariant:
            raise unittest.SkipTest("shift_invariant is False")
        for lists, _, project in self._cases():
            offset = (lists.task % 5).double() - 2
            actual, expected = project(lists.scores + offset), project(lists.scores) + offset
            rule = "shift_invariant: P(psi + constant) = P(psi) + constant"
            self.require_close(actual, expected, rule, relative=1e-9)

    def test_weights_count_or_are_refused(self) -> None:
        """Equal weights are none; a set that takes none says so."""
        target = self.make_target_set()
        for seed in SEEDS:
            lists = ExampleLists.draw(seed, self.num_levels)
            grouped, equal = self._lists(lists), torch.full_like(lists.weight, 0.7)
            if not target.supports_weights:
                rule = "projection(lists, weight) is refused without supports_weights"
                self.require_refusal(partial(target.projection, grouped, equal), rule)
                continue
            actual, expected = (target.projection(grouped, weight)(lists.scores) for weight in (equal, None))
            self.require_close(actual, expected, "equal weights are the same as none", relative=1e-9)

    def test_it_solves_the_quadratic_program(self) -> None:
        """Against non-negative least squares on :meth:`inequalities`, list by list."""
        for lists, metric, project in self._cases():
            actual = project(lists.scores)
            for task in lists.task.unique():
                own = lists.task == task
                above, lower = (part.double().numpy() for part in self.inequalities(lists.level[own]))
                expected = nearest_in_polyhedron(lists.scores[own].numpy(), above, lower, metric[own].numpy())
                rule = "targets are the optimum of the quadratic program"
                within = 1e-6 * max(1.0, float(np.abs(expected).max()))
                self.require_close(actual[own], torch.from_numpy(expected), rule, absolute=within)
                short = float((lower - above @ actual[own].detach().numpy()).max()) if len(lower) else 0.0
                self.require(short <= rounding(actual.dtype) * 10, f"targets are in the set, off by {short:.3g}")


class LikelihoodContract(Contract):
    """Rules of a :class:`~mvgp.likelihoods.RankingLikelihood`: its targets, its loss, and its distribution of labels.

    Override :meth:`make_likelihood`, and ``labels`` if they are not -1 and +1. The set it projects onto has a
    contract of its own, :class:`~mvgp.testing.TargetSetContract`.

    Example:
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> from mvgp.testing import LikelihoodContract, run_contract
        >>> class BipartiteContract(LikelihoodContract):
        ...     def make_likelihood(self):
        ...         return BipartiteRankingLikelihood(margin=1.0, noise=0.5)
        >>> run_contract(BipartiteContract).holds
        True

    """

    labels: tuple[int, ...] = (-1, 1)  # the values of a label, the least relevant first
    accuracy = 1e-5  # of probabilities

    def make_likelihood(self) -> RankingLikelihood:
        """The likelihood, without ``list_sizes``."""
        raise NotImplementedError("override make_likelihood")

    def _example(self) -> tuple[ExampleLists, Tensor]:
        """Lists, and their labels (T,)."""
        lists = ExampleLists.draw(0, len(self.labels))
        return lists, torch.tensor(self.labels)[lists.level]

    def _losses(self) -> Iterator[tuple[RankingLikelihood, Tensor, list[Tensor], Tensor]]:
        """A likelihood, scores (T,), what its loss takes besides, and weights (T,), which are 1 at first."""
        likelihood, (lists, labels) = self.make_likelihood(), self._example()
        yield likelihood, lists.scores, [labels, lists.task], torch.ones_like(lists.scores)
        if likelihood.target.supports_weights:
            yield likelihood, lists.scores, [labels, lists.task, lists.weight], lists.weight

    def test_it_is_a_ranking_likelihood(self) -> None:
        """Recipes ask for the class."""
        actual = self.make_likelihood()
        self.require(isinstance(actual, RankingLikelihood), f"is a RankingLikelihood, got {type(actual).__name__}")

    def test_the_noise_is_a_parameter(self) -> None:
        """One positive number; what is set is what one gets; it can be learned."""
        likelihood = self.make_likelihood()
        self.require(likelihood.noise.numel() == 1 and (likelihood.noise > 0).all(), "noise is one positive number")
        likelihood.noise = 0.37
        self.require(abs(float(likelihood.noise.detach()) - 0.37) < 1e-6, "noise can be set")
        free = any(p.requires_grad for name, p in likelihood.named_parameters() if "noise" in name)
        self.require(free, "noise has a parameter that gradients reach")

    def test_entries_are_grouped_by_task(self) -> None:
        """One list for each task; a higher label is a higher level."""
        lists, labels = self._example()
        actual = self.make_likelihood().lists(labels, lists.task)
        self.require(len(actual) == len(labels), "lists(labels, task) has every entry")
        self.require(torch.equal(actual.task_ids[actual.list_of], lists.task), "each entry is in the list of its task")
        level, same = actual.cell_level[actual.cell], lists.task[:, None] == lists.task
        right = (level[:, None] > level) == (labels[:, None] > labels)
        self.require(right[same].all(), "a higher label is a higher level of the list")

    def test_targets_rank_as_the_labels_say(self) -> None:
        """In every list, no target of a lower label is above one of a higher label."""
        lists, labels = self._example()
        actual = self.make_likelihood().retarget(lists.scores, labels, lists.task)
        self.require(actual.shape == lists.scores.shape, f"retarget is (T,), got {tuple(actual.shape)}")
        higher = (lists.task[:, None] == lists.task) & (labels[:, None] > labels)
        rule = "targets of higher labels are not below those of lower ones"
        self.require((actual[:, None] >= actual - 1e-9)[higher].all(), rule)

    def test_targets_are_those_of_its_set(self) -> None:
        """retarget, retargeting and the target set's own projection agree."""
        (lists, labels), likelihood = self._example(), self.make_likelihood()
        expected = likelihood.target.projection(likelihood.lists(labels, lists.task))(lists.scores)
        for name, actual in (
            ("retarget", likelihood.retarget(lists.scores, labels, lists.task)),
            ("retargeting", likelihood.retargeting(labels, lists.task)(lists.scores)),
        ):
            self.require_close(actual, expected, f"{name} is the projection onto its target set", relative=1e-12)

    def test_the_loss_is_half_the_squared_distance(self) -> None:
        """Equation (9); zero at the targets."""
        for likelihood, psi, given, weight in self._losses():
            targets = likelihood.retarget(psi, *given)
            square = ((psi - targets).square() * weight).sum()
            actual, rest = likelihood.loss(psi, *given), float(likelihood.loss(targets, *given))
            self.require_close(actual, square / 2, "loss is half the squared distance to the targets")
            self.require(rest <= 1e-12 * float(square) + 1e-20, "the loss of the targets is 0")

    def test_the_gradient_of_the_loss(self) -> None:
        """It is w (psi - r), by autograd and by differences."""
        for likelihood, psi, given, weight in self._losses():
            point = psi.clone().requires_grad_()
            (actual,) = torch.autograd.grad(likelihood.loss(point, *given), point)
            off = psi - likelihood.retarget(psi, *given)
            self.require_close(actual, weight * off, "the gradient of loss is w (psi - r)")
            rule = "the gradient of loss is its slope"
            self.require_close(actual, slopes(likelihood.loss, psi, *given), rule, relative=1e-4, absolute=1e-4)

    def test_the_loss_is_convex(self) -> None:
        """In the middle it is at most the average of the ends."""
        likelihood, psi, given, _ = next(self._losses())
        ends = (psi, psi.flip(0), (psi + psi.flip(0)) / 2)
        first, second, middle = (likelihood.loss(at, *given) for at in ends)
        self.require(middle <= (first + second) / 2 + 1e-9 * (first + second), "the loss is convex")

    def test_probabilities_sum_to_one(self) -> None:
        """Over all labellings of a list of four."""
        scores = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64)
        labellings = torch.tensor(list(itertools.product(self.labels, repeat=4)))
        with torch.no_grad():
            total = float(self.make_likelihood()(scores).log_prob(labellings).exp().sum())
        self.require(abs(total - 1) < self.accuracy, f"probabilities of all labellings sum to 1, got {total:.6g}")

    def test_samples_have_these_probabilities(self) -> None:
        """4,000 samples of a list of two, to five standard errors."""
        scores = torch.tensor([0.3, -0.2], dtype=torch.float64)
        labellings = torch.tensor(list(itertools.product(self.labels, repeat=2)))
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            distribution = self.make_likelihood()(scores)
            samples, expected = distribution.sample((4000,)), distribution.log_prob(labellings).exp()
        self.require(samples.shape == (4000, 2), f"samples are (S, T), got {tuple(samples.shape)}")
        share = (samples[:, None, :] == labellings).all(-1).double().mean(0)
        off = (share - expected).abs() <= 5 * (expected * (1 - expected) / 4000).sqrt() + self.accuracy
        self.require(off.all(), "samples come with the probabilities of log_prob")

    def _two_lists(self) -> tuple[Tensor, Tensor]:
        """(4,) tasks and (4,) labels."""
        return torch.tensor([0, 0, 1, 1]), torch.tensor(self.labels)[torch.tensor([0, -1, -1, 0])]

    def test_the_gradient_of_the_log_probability(self) -> None:
        """By differences."""
        likelihood, (task, labels) = self.make_likelihood(), self._two_lists()
        scores = torch.tensor([0.3, -0.2, 0.9, 0.1], dtype=torch.float64)
        point = scores.clone().requires_grad_()
        (actual,) = torch.autograd.grad(likelihood.log_prob(point, labels, task), point)
        expected = slopes(likelihood.log_prob, scores, labels, task, step=1e-4)
        self.require_close(actual, expected, "the gradient of log_prob is its slope", relative=1e-3, absolute=1e-3)

    def test_an_expectation_is_of_whole_lists(self) -> None:
        """One number for each list, below log_marginal; parts of lists are refused without a promise."""
        likelihood, (task, labels) = self.make_likelihood(), self._two_lists()
        scores = MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double() + 0.5)
        rule = "expected_log_prob without list_sizes or complete_lists=True is refused"
        self.require_refusal(lambda: likelihood.expected_log_prob(labels, scores, task=task), rule)
        actual = {}
        for name in ("expected_log_prob", "log_marginal"):
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(0)
                actual[name] = getattr(likelihood, name)(labels, scores, task=task, complete_lists=True)
            self.require(actual[name].shape == (2,), f"{name} is (L,), got {tuple(actual[name].shape)}")
        below = actual["expected_log_prob"] <= actual["log_marginal"] + 1e-9
        self.require(below.all(), "E log p is at most log E p")

    def test_a_model_can_be_fitted(self) -> None:
        """TraceGP closes the duality gap, which it does only for a true projection."""
        lists, labels = self._example()
        rows, cols = lists.task // 3, torch.zeros_like(lists.task)
        for row in rows.unique():
            cols[rows == row] = torch.arange(int((rows == row).sum()))
        shape = (int(rows.max()) + 1, int(cols.max()) + 1)
        data = ObservedMatrix(rows, cols, labels.double(), shape=shape)
        kernels = [DiffusionKernel(Graph([(i, i + 1) for i in range(size - 1)], size)) for size in shape]
        model = TraceGP(MatrixGP(*kernels), self.make_likelihood(), strength=0.2, trace_share=0.8, strict=True)
        gap = model.fit(data).certificate.relative_gap
        self.require(gap <= 1e-4, f"TraceGP reaches a relative duality gap of 1e-4, got {gap:.2g}")
