"""The ranking likelihoods: gpytorch's own test case, and what their generative model says."""

import itertools
import math
import unittest

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase

from mvgp.errors import InputError, SizeError
from mvgp.likelihoods import (
    BipartiteRankingLikelihood,
    GradedOrder,
    GradedRankingLikelihood,
    OrderCone,
    OrderedSimplex,
    project_levels,
    project_order,
    project_ordered_simplex,
)
from mvgp.likelihoods.distribution import log_chain_probability
from tests import randomness
from tests.likelihoods.instances import random_lists


class ListwiseTestCase(BaseLikelihoodTestCase):
    """gpytorch's test case for one list of 5 entries, with what differs for a likelihood of whole lists.

    One log-probability for a list instead of 5 for its entries; the mean of the labels has no closed form, so
    frequencies of samples are compared; gpytorch's defaults sum over the list already.
    """

    samples = 512

    def _test_log_marginal(self, batch_shape):
        self._compare("log_marginal", batch_shape)

    def _test_log_prob(self, batch_shape):
        self._compare("expected_log_prob", batch_shape)

    def _compare(self, name, batch_shape):
        likelihood = self.create_likelihood().eval()  # gpytorch's default draws jointly only when not training
        likelihood.max_plate_nesting += len(batch_shape)
        input, target = self._create_marginal_input(batch_shape), self._create_targets(batch_shape)
        with gpytorch.settings.num_likelihood_samples(self.samples):
            output = getattr(likelihood, name)(target, input)
            default = getattr(Likelihood, name)(likelihood, target, input)
        self.assertEqual(output.shape, (*batch_shape, 1))
        self.assertAllClose(output.squeeze(-1), default, rtol=0.25)

    def _test_marginal(self, batch_shape):
        likelihood = self.create_likelihood()
        input = self._create_marginal_input(batch_shape)
        with gpytorch.settings.num_likelihood_samples(4000):
            output, default = likelihood(input), Likelihood.marginal(likelihood.eval(), input)
        self.assertEqual(output.sample().shape[-len(input.sample().shape) :], input.sample().shape)
        self.assertAllClose(output.sample().mean(0), default.sample().mean(0), rtol=0.25, atol=0.25)


class TestBipartite(ListwiseTestCase, unittest.TestCase):
    seed = randomness.seed(1)

    def create_likelihood(self):
        return BipartiteRankingLikelihood(noise=1.0, list_sizes=[5])

    def _create_targets(self, batch_shape=torch.Size()):  # noqa: B008
        return torch.where(torch.rand(*batch_shape, 5) < 0.5, 1.0, -1.0)


class TestGraded(ListwiseTestCase, unittest.TestCase):
    seed = randomness.seed(1)
    samples = 64

    def create_likelihood(self):
        return GradedRankingLikelihood(3, noise=4.0, list_sizes=[5])

    def _create_targets(self, batch_shape=torch.Size()):  # noqa: B008
        return torch.tensor([0, 2, 1, 1, 2]).expand(*batch_shape, 5)


# Retargeting and loss ----------------------------------------------------------------------------


def test_retargeting_is_the_projection():
    scores, positive, weight, task = random_lists(0, 30)
    labels = torch.where(positive, 1, -1)
    ranking = BipartiteRankingLikelihood(margin=0.5)
    assert torch.equal(ranking.retarget(scores, labels, task), project_order(scores, positive, task, 0.5))
    assert torch.equal(
        ranking.retarget(scores, labels, task, weight), project_order(scores, positive, task, 0.5, weight)
    )
    simplex = BipartiteRankingLikelihood(target=OrderedSimplex(2.0))
    assert torch.equal(simplex.retarget(scores, labels, task), project_ordered_simplex(scores, positive, task, 2.0))
    level = torch.randint(0, 4, task.shape)
    graded = GradedRankingLikelihood(4, target=GradedOrder(0.3))
    assert torch.equal(graded.retarget(scores, level, task, weight), project_levels(scores, level, task, 0.3, weight))


@pytest.mark.slow
def test_the_loss_and_its_gradient():
    """Equation (9)."""
    scores, positive, weight, task = random_lists(1, 30)
    labels = torch.where(positive, 1, -1)
    ranking = BipartiteRankingLikelihood()
    inputs = scores.clone().requires_grad_()
    loss = ranking.loss(inputs, labels, task, weight)
    off = scores - ranking.retarget(scores, labels, task, weight)
    assert torch.isclose(loss, (weight * off.square()).sum() / 2)
    assert torch.allclose(torch.autograd.grad(loss, inputs)[0], weight * off)
    assert torch.autograd.gradcheck(lambda psi: ranking.loss(psi, labels, task), (inputs,), atol=1e-5)


def test_the_loss_is_convex_and_blind_to_a_bias_of_each_task_for_the_cone_only():
    scores, positive, _, task = random_lists(2, 30)
    labels, shift = torch.where(positive, 1, -1), torch.randn(200, dtype=torch.float64)[task - task.min()]
    other = torch.randn_like(scores)
    for target in (OrderCone(), OrderedSimplex()):
        ranking = BipartiteRankingLikelihood(target=target)
        ends = (ranking.loss(scores, labels, task) + ranking.loss(other, labels, task)) / 2
        assert ranking.loss((scores + other) / 2, labels, task) <= ends
        same = torch.isclose(ranking.loss(scores + shift, labels, task), ranking.loss(scores, labels, task))
        assert bool(same) == target.shift_invariant


# The generative model ----------------------------------------------------------------------------


def test_two_items_have_a_closed_form():
    ranking = BipartiteRankingLikelihood(noise=0.7)
    psi, weight = torch.tensor([0.3, -0.4], dtype=torch.float64), torch.tensor([1.0, 2.0]).double()
    found = ranking.log_prob(psi, torch.tensor([1, -1]), counts=1, weight=weight)
    wanted = torch.special.log_ndtr(torch.tensor(0.7 / math.sqrt(0.7 + 0.35), dtype=torch.float64))
    assert torch.isclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize(("num_levels", "size", "accuracy"), [(2, 5, 1e-11), (3, 4, 1e-6)])
def test_probabilities_sum_to_one(num_levels, size, accuracy):
    psi = 2 * torch.randn(size, dtype=torch.float64)
    if num_levels == 2:
        ranking, labels = BipartiteRankingLikelihood(noise=0.5), [-1, 1]
    else:
        ranking, labels = GradedRankingLikelihood(num_levels, noise=0.5), range(num_levels)
    every = torch.tensor(list(itertools.product(labels, repeat=size)))
    total = ranking(psi).log_prob(every).exp().sum()
    assert abs(float(total.detach()) - 1) < accuracy


@pytest.mark.parametrize("size", [2, 40, 3000])
def test_equal_scores_make_all_labellings_alike(size):
    """log P = -log(n choose k), however long the list."""
    ranking = BipartiteRankingLikelihood(noise=0.3)
    labels = torch.where(torch.arange(size) < size // 2, 1, -1)
    found = ranking.log_prob(torch.full((size,), 2.5, dtype=torch.float64), labels, counts=size // 2)
    wanted = 2 * math.lgamma(size // 2 + 1) - math.lgamma(size + 1)
    assert math.isclose(float(found.detach()), wanted, rel_tol=1e-10)


def test_scores_far_apart():
    """Far in the right order the probability is 1; far in the wrong order the two ends meet in the middle."""
    ranking = BipartiteRankingLikelihood(noise=1.0)
    psi = torch.tensor([1000.0, -1000.0], dtype=torch.float64)
    assert abs(float(ranking.log_prob(psi, torch.tensor([1, -1]), counts=1).detach())) < 1e-10
    found = ranking.log_prob(psi, torch.tensor([-1, 1]), counts=1)
    assert torch.isclose(
        found, torch.special.log_ndtr(torch.tensor(-2000 / math.sqrt(2), dtype=torch.float64)), rtol=1e-10
    )


def test_lists_are_independent_and_one_kind_of_label_is_certain():
    ranking = BipartiteRankingLikelihood(noise=0.5)
    psi = torch.randn(9, dtype=torch.float64)
    task, labels = torch.tensor([5, 2, 5, 2, 2, 5, 8, 8, 9]), torch.tensor([1, -1, -1, 1, -1, 1, 1, 1, -1])
    together = ranking(psi, task=task, counts=[1, 2, 2, 0]).log_prob_of_lists(labels)
    alone = [
        ranking.log_prob(psi[task == t], labels[task == t], counts=int((labels[task == t] > 0).sum()))
        for t in (2, 5, 8, 9)
    ]
    assert torch.allclose(together, torch.stack(alone), atol=1e-11)
    assert together[2:].tolist() == [0.0, 0.0]
    assert ranking(psi, task=task, counts=0).log_prob(labels) == -torch.inf


def test_gradients_of_the_log_probability():
    psi = torch.randn(6, dtype=torch.float64, requires_grad=True)
    task, labels = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1, -1, -1, 1, 1, 1])
    ranking = BipartiteRankingLikelihood(noise=0.5)
    assert torch.autograd.gradcheck(lambda f: ranking(f, task=task).log_prob(labels), (psi,), atol=1e-7)
    graded = GradedRankingLikelihood(3, noise=0.5)
    levels = torch.tensor([0, 2, 1, 1, 1, 1])
    assert torch.autograd.gradcheck(lambda f: graded(f, task=task).log_prob(levels), (psi,), atol=1e-5)
    ranking(psi.detach(), task=task).log_prob(labels).backward()
    assert torch.isfinite(ranking.raw_noise.grad).all()


def test_several_levels_agree_with_two():
    psi, level = torch.randn(3, 7, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 0, 1, 0])
    scale = torch.rand(7, dtype=torch.float64) + 0.5
    ranking = BipartiteRankingLikelihood(noise=1.0)
    weight = 1 / scale.square()
    wanted = ranking(psi, weight=weight, counts=3).log_prob(2 * level - 1)
    assert torch.allclose(log_chain_probability(psi, scale, level), wanted, atol=1e-7)
    assert torch.allclose(
        GradedRankingLikelihood(2, noise=1.0)(psi, weight=weight, counts=[4, 3]).log_prob(level), wanted
    )


def test_three_levels_by_simulation_and_a_limit():
    psi, level = torch.tensor([0.5, 0.0, 0.3, -0.2], dtype=torch.float64), torch.tensor([2, 1, 1, 0])
    graded = GradedRankingLikelihood(3, noise=1.0)
    distribution = graded(psi, counts=[[1, 2, 1]])
    share = (distribution.sample((100_000,)) == level).all(-1).double().mean()
    assert abs(float(distribution.log_prob(level).detach().exp() - share)) < 0.005
    with pytest.raises(SizeError, match="needs a grid of"):
        graded(psi * 1e6).log_prob(level)


@pytest.mark.parametrize("counts", [None, [2, 1]])
def test_samples_have_the_probabilities_they_should(counts):
    psi, task = torch.tensor([0.5, 0.0, -0.3, 0.2, 1.0], dtype=torch.float64), torch.tensor([4, 1, 4, 1, 1])
    distribution = BipartiteRankingLikelihood(noise=0.5)(psi, task=task, counts=counts)
    samples = distribution.sample((40_000,))
    assert samples.shape == (40_000, 5)
    found, times = samples.unique(dim=0, return_counts=True)
    assert torch.allclose(distribution.log_prob(found).exp(), times.double() / 40_000, atol=0.01)
    if counts is not None:
        assert (samples[:, task == 1].eq(1).sum(1) == 2).all()
        assert (samples[:, task == 4].eq(1).sum(1) == 1).all()


def test_counts_of_several_levels_are_uniform():
    distribution = GradedRankingLikelihood(3)(torch.zeros(2))
    samples = distribution.sample((20_000,))
    counts = torch.stack([(samples == level).sum(1) for level in range(3)], 1)
    _, times = counts.unique(dim=0, return_counts=True)
    assert len(times) == 6  # ways to write 2 as a sum of 3 counts
    assert (times / 20_000 - 1 / 6).abs().max() < 0.015
    assert distribution.expand((7,)).sample().shape == (7, 2)


# Inside gpytorch ---------------------------------------------------------------------------------


def normal(size, correlation=0.0):
    eye = torch.eye(size, dtype=torch.float64)
    return MultivariateNormal(torch.zeros_like(eye[0]), (1 - correlation) * eye + correlation)


def test_parts_of_lists_are_refused():
    task, labels = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1, -1, -1, 1, -1])
    ranking = BipartiteRankingLikelihood(list_sizes=torch.bincount(task))
    assert ranking.expected_log_prob(labels, normal(5), task=task).shape == (2,)
    assert ranking.expected_log_prob(labels[3:], normal(2), task=task[3:]).shape == (1,)  # a batch of whole lists
    with pytest.raises(InputError, match="task 0: expected its whole list of 3 entries, got 2 in this batch"):
        ranking.expected_log_prob(labels[1:], normal(4), task=task[1:])
    with pytest.raises(InputError, match="task 7: expected its whole list of 0 entries, got 1"):
        ranking.log_marginal(labels[:1], normal(1), task=[7])
    unaware = BipartiteRankingLikelihood()
    with pytest.raises(InputError, match="needs whole lists"):
        unaware.expected_log_prob(labels, normal(5), task=task)
    assert unaware.log_marginal(labels, normal(5), task=task, complete_lists=True).shape == (2,)


def test_covariance_within_a_list_counts():
    """Scores that rise and fall together leave only the noise to shuffle them."""
    labels, ranking = torch.tensor([1, -1]), BipartiteRankingLikelihood(noise=1e-3, list_sizes=[2]).train()
    with gpytorch.settings.num_likelihood_samples(2000):
        tight = ranking.expected_log_prob(labels, normal(2, 1 - 1e-5), counts=1)
        loose = ranking.expected_log_prob(labels, normal(2), counts=1)
    assert abs(float(tight.detach()) - math.log(0.5)) < 0.05
    assert float(loose.detach()) < -10


@pytest.mark.slow
def test_a_variational_gp_learns_a_ranking():
    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            strategy = gpytorch.variational.VariationalStrategy(
                self,
                points,
                gpytorch.variational.CholeskyVariationalDistribution(len(points)),
                learn_inducing_locations=False,
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.RBFKernel()
            self.covar_module.lengthscale = 0.1  # and fixed: the points stay apart, their covariance well-conditioned
            self.covar_module.raw_lengthscale.requires_grad_(False)

        def forward(self, x):
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    task, labels = torch.arange(12) % 2, torch.where(x > 0.6, 1, -1)
    model, ranking = Model(x).double(), BipartiteRankingLikelihood(noise=0.1, list_sizes=torch.bincount(task))
    mll = gpytorch.mlls.VariationalELBO(ranking, model, num_data=12)
    optimizer = torch.optim.Adam([*model.parameters(), *ranking.parameters()], lr=0.1)
    with gpytorch.settings.num_likelihood_samples(8):
        for _ in range(30):
            optimizer.zero_grad()
            loss = -mll(model(x), labels, task=task)
            loss.backward()
            optimizer.step()
    score = model.eval()(x).mean.detach()
    assert score[x > 0.6].min() > score[x < 0.6].max()
    assert float(ranking.noise.detach()) != pytest.approx(0.1)


def test_noise_is_a_constrained_parameter():
    ranking = BipartiteRankingLikelihood(noise=0.25)
    assert ranking.noise.item() == pytest.approx(0.25)
    ranking.noise = 0.5
    assert ranking.noise.item() == pytest.approx(0.5)
    assert [name for name, _ in ranking.named_parameters()] == ["raw_noise"]
    other = BipartiteRankingLikelihood()
    other.load_state_dict(ranking.state_dict())
    assert other.noise.item() == pytest.approx(0.5)


def test_single_precision():
    ranking, psi = BipartiteRankingLikelihood(), torch.randn(20)
    labels = torch.where(torch.arange(20) < 8, 1, -1)
    task = torch.arange(20) % 2
    assert ranking.retarget(psi, labels, task).dtype == torch.float32
    assert ranking(psi, task=task).sample().dtype == torch.float32
    found = ranking(psi, task=task).log_prob(labels)
    assert found.dtype == torch.float32
    assert torch.isclose(found.double(), ranking(psi.double(), task=task).log_prob(labels), rtol=1e-4)


def test_bad_input():
    ranking, psi, task = BipartiteRankingLikelihood(), torch.zeros(2), torch.zeros(2).long()
    with pytest.raises(InputError, match=r"labels\[1\]: expected \+1 or -1, got 0"):
        ranking.loss(psi, torch.tensor([1, 0]), task)
    with pytest.raises(InputError, match="labels: expected \\+1 and -1, got booleans"):
        ranking.loss(psi, torch.tensor([True, False]), task)
    with pytest.raises(InputError, match="labels: expected \\+1 and -1, got 0"):
        ranking(psi).log_prob(torch.tensor([1, 0]))
    with pytest.raises(InputError, match="labels: expected 2 of them"):
        ranking(psi).log_prob(torch.tensor([1, -1, 1]))
    with pytest.raises(InputError, match=r"counts\[0\]: expected 0 to 2 positives, got 3"):
        ranking(psi, counts=3)
    with pytest.raises(InputError, match="task: expected 2 entries, one for each score, got 1"):
        ranking(psi, task=[0])
    with pytest.raises(InputError, match="noise: expected a positive finite number, got -1"):
        BipartiteRankingLikelihood(noise=-1)
    with pytest.raises(InputError, match="margin: a target set has its own"):
        BipartiteRankingLikelihood(margin=2.0, target=OrderCone(1.0))
    with pytest.raises(InputError, match="target: expected a TargetSet"):
        BipartiteRankingLikelihood(target="cone")
    with pytest.raises(InputError, match="weight: OrderedSimplex takes none"):
        BipartiteRankingLikelihood(target=OrderedSimplex()).loss(psi, torch.tensor([1, -1]), task, [1.0, 2.0])
    with pytest.raises(InputError, match="weight: OrderedSimplex takes none"):
        OrderedSimplex().projection(ranking.lists([1, -1], task), torch.ones(2))
    with pytest.raises(InputError, match="num_levels: expected a whole number of at least 2, got 1"):
        GradedRankingLikelihood(1)
    graded = GradedRankingLikelihood(3)
    with pytest.raises(InputError, match="labels: expected whole numbers from 0 to 2, got 3"):
        graded.loss(psi, [0, 3], task)
    with pytest.raises(InputError, match="levels: expected whole numbers from 0 to 2, got 3"):
        graded(psi).log_prob(torch.tensor([0, 3]))
    with pytest.raises(InputError, match="counts: list 0 has 2 entries"):
        graded(psi, counts=[1, 1, 1])
    with pytest.raises(InputError, match=r"counts: expected \(1, 3\) counts"):
        graded(psi, counts=[1, 1])
