import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import PrecomputedKernel
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.ranking.mixture import Mixture
from tests import randomness


def posterior(values, scale=1.0):
    kernels = [PrecomputedKernel(scale * torch.eye(size, dtype=torch.float64)) for size in (2, 4)]
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(0.5, dtype=torch.float64)
    data = mvgp.ObservedMatrix([0, 0, 1], [0, 1, 3], values, (2, 4))
    return mvgp.FullGP(mvgp.MatrixGP(*kernels), likelihood).fit(data)


PARTS = [posterior([1.0, -1.0, 2.0]), posterior([3.0, 0.0, 2.0]), posterior([-2.0, 1.0, 0.0], 1.5)]


def test_moments_are_those_of_a_random_part():
    """E[x] = E[E[x | part]], and the same for squares."""
    mixture, cols = Mixture(PARTS), torch.arange(4)
    means = torch.stack([one.mean([0] * 4, cols) for one in PARTS])
    squares = means.square() + torch.stack([one.variance([0] * 4, cols) for one in PARTS])
    torch.testing.assert_close(mixture.scores([0])[0], means.mean(0))
    torch.testing.assert_close(mixture.std(0, cols), (squares.mean(0) - means.mean(0).square()).sqrt())


def test_top_probability_is_the_average_and_adds_up_to_k():
    mixture = Mixture(PARTS)
    found = mixture.top_probability(0, 2, exclude=([0], [1]), seed=randomness.seed(3))
    parts = torch.stack([one.top_probability(0, 2, exclude=([0], [1]), seed=randomness.seed(3)) for one in PARTS])
    assert torch.allclose(found, parts.mean(0))
    assert found[1] == 0
    assert float(found.sum()) == pytest.approx(2)


def test_a_single_part_is_itself():
    one = Mixture(PARTS[:1])
    assert torch.allclose(one.scores(), PARTS[0].scores())
    assert torch.allclose(one.std(1, [0, 3]) ** 2, PARTS[0].variance([1, 1], [0, 3]))


def test_refusals():
    with pytest.raises(InputError, match="at least one"):
        Mixture([])
    ranker = Popularity().fit(mvgp.PositiveUnlabelled([0, 1], [1, 2], (2, 4)))
    assert not Mixture([ranker]).has_uncertainty
    with pytest.raises(InputError, match="no uncertainty"):
        Mixture([ranker]).std(0, [1])
