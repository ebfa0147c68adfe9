"""LikelihoodContract: what mvgp relies on in a ranking likelihood."""

from __future__ import annotations

import itertools

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..data import ObservedMatrix
from ..kernels import DiffusionKernel, Graph
from ..likelihoods import RankingLikelihood
from ..models import TraceGP
from ..priors import MatrixGP
from .contract import Contract
from .differences import slopes
from .lists import ExampleLists, example_lists


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

    def _example(self, seed: int = 0) -> tuple[ExampleLists, Tensor]:
        """Lists, and their labels (T,)."""
        lists = example_lists(seed, len(self.labels))
        return lists, torch.tensor(self.labels)[lists.level]

    def test_it_is_a_ranking_likelihood(self) -> None:
        """Recipes ask for the class."""
        found = self.make_likelihood()
        self.require(isinstance(found, RankingLikelihood), f"is a RankingLikelihood, got {type(found).__name__}")

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
        found = self.make_likelihood().lists(labels, lists.task)
        self.require(len(found) == len(labels), "lists(labels, task) has every entry")
        self.require(torch.equal(found.task_ids[found.list_of], lists.task), "each entry is in the list of its task")
        level = found.cell_level[found.cell]
        for task in lists.task.unique():
            own = lists.task == task
            right = (level[own][:, None] > level[own]) == (labels[own][:, None] > labels[own])
            self.require(right.all(), "a higher label is a higher level of the list")

    def test_targets_rank_as_the_labels_say(self) -> None:
        """In every list, no target of a lower label is above one of a higher label."""
        lists, labels = self._example()
        found = self.make_likelihood().retarget(lists.scores, labels, lists.task)
        self.require(found.shape == lists.scores.shape, f"retarget is (T,), got {tuple(found.shape)}")
        for task in lists.task.unique():
            own, value = lists.task == task, found[lists.task == task]
            higher = labels[own][:, None] > labels[own]
            rule = "targets of higher labels are not below those of lower ones"
            self.require((value[:, None] >= value - 1e-9)[higher].all(), rule)

    def test_targets_are_those_of_its_set(self) -> None:
        """retarget, retargeting and the target set's own projection agree."""
        lists, labels = self._example()
        likelihood = self.make_likelihood()
        wanted = likelihood.target.projection(likelihood.lists(labels, lists.task))(lists.scores)
        rule = "{} is the projection onto its target set"
        found = likelihood.retarget(lists.scores, labels, lists.task)
        self.require_close(found, wanted, rule.format("retarget"), relative=1e-12)
        found = likelihood.retargeting(labels, lists.task)(lists.scores)
        self.require_close(found, wanted, rule.format("retargeting"), relative=1e-12)

    def test_the_loss_is_half_the_squared_distance(self) -> None:
        """Equation (9); zero at the targets."""
        likelihood = self.make_likelihood()
        lists, labels = self._example()
        for weight in [None, lists.weight] if likelihood.target.supports_weights else [None]:
            targets = likelihood.retarget(lists.scores, labels, lists.task, weight)
            square = (lists.scores - targets).square() * (1 if weight is None else weight)
            found = likelihood.loss(lists.scores, labels, lists.task, weight)
            self.require_close(found, square.sum() / 2, "loss is half the squared distance to the targets")
            rest = float(likelihood.loss(targets, labels, lists.task, weight))
            self.require(rest <= 1e-12 * float(square.sum()) + 1e-20, "the loss of the targets is 0")

    def test_the_gradient_of_the_loss(self) -> None:
        """It is w (psi - r), by autograd and by differences."""
        likelihood = self.make_likelihood()
        lists, labels = self._example()
        for weight in [None, lists.weight] if likelihood.target.supports_weights else [None]:
            scores = lists.scores.clone().requires_grad_()
            (found,) = torch.autograd.grad(likelihood.loss(scores, labels, lists.task, weight), scores)
            off = lists.scores - likelihood.retarget(lists.scores, labels, lists.task, weight)
            self.require_close(found, off if weight is None else weight * off, "the gradient of loss is w (psi - r)")

            def loss(psi: Tensor, weight: Tensor | None = weight) -> Tensor:
                return likelihood.loss(psi, labels, lists.task, weight)

            wanted = slopes(loss, lists.scores)
            rule = "the gradient of loss is its slope"
            self.require_close(found, wanted, rule, relative=1e-4, absolute=1e-4)

    def test_the_loss_is_convex(self) -> None:
        """In the middle it is at most the average of the ends."""
        likelihood = self.make_likelihood()
        lists, labels = self._example()
        ends = [lists.scores, lists.scores.flip(0)]
        one, two, middle = (likelihood.loss(psi, labels, lists.task) for psi in (*ends, sum(ends) / 2))
        self.require(middle <= (one + two) / 2 + 1e-9 * (one + two), "the loss is convex")

    def test_probabilities_sum_to_one(self) -> None:
        """Over all labellings of a list of four."""
        scores = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64)
        every = torch.tensor(list(itertools.product(self.labels, repeat=4)))
        with torch.no_grad():
            total = float(self.make_likelihood()(scores).log_prob(every).exp().sum())
        self.require(abs(total - 1) < self.accuracy, f"probabilities of all labellings sum to 1, got {total:.6g}")

    def test_samples_have_these_probabilities(self) -> None:
        """4,000 samples of a list of two, to five standard errors."""
        scores = torch.tensor([0.3, -0.2], dtype=torch.float64)
        every = torch.tensor(list(itertools.product(self.labels, repeat=2)))
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            distribution = self.make_likelihood()(scores)
            samples, wanted = distribution.sample((4000,)), distribution.log_prob(every).exp()
        self.require(samples.shape == (4000, 2), f"samples are (S, T), got {tuple(samples.shape)}")
        share = (samples[:, None, :] == every).all(-1).double().mean(0)
        off = (share - wanted).abs() <= 5 * (wanted * (1 - wanted) / 4000).sqrt() + self.accuracy
        self.require(off.all(), "samples come with the probabilities of log_prob")

    def test_the_gradient_of_the_log_probability(self) -> None:
        """By differences."""
        likelihood = self.make_likelihood()
        scores = torch.tensor([0.3, -0.2, 0.9, 0.1], dtype=torch.float64)
        task, labels = torch.tensor([0, 0, 1, 1]), torch.tensor(self.labels)[torch.tensor([0, -1, -1, 0])]
        given = scores.clone().requires_grad_()
        (found,) = torch.autograd.grad(likelihood.log_prob(given, labels, task), given)
        wanted = slopes(lambda psi: likelihood.log_prob(psi, labels, task).detach(), scores, step=1e-4)
        self.require_close(found, wanted, "the gradient of log_prob is its slope", relative=1e-3, absolute=1e-3)

    def test_an_expectation_is_of_whole_lists(self) -> None:
        """One number for each list, below log_marginal; parts of lists are refused without a promise."""
        likelihood = self.make_likelihood()
        task, labels = torch.tensor([0, 0, 1, 1]), torch.tensor(self.labels)[torch.tensor([0, -1, -1, 0])]
        scores = MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double() + 0.5)
        rule = "expected_log_prob without list_sizes or complete_lists=True is refused"
        self.require_refusal(lambda: likelihood.expected_log_prob(labels, scores, task=task), rule)
        found = {}
        for name in ("expected_log_prob", "log_marginal"):
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(0)
                found[name] = getattr(likelihood, name)(labels, scores, task=task, complete_lists=True)
            self.require(found[name].shape == (2,), f"{name} is (L,), got {tuple(found[name].shape)}")
        below = found["expected_log_prob"] <= found["log_marginal"] + 1e-9
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
