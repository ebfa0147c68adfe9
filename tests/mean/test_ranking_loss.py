"""The loss with its targets optimised out: value, gradient, conjugate."""

import pytest
import torch

from mvgp.errors import InputError
from mvgp.likelihoods import OrderProjection, RankingLists, SimplexProjection
from mvgp.likelihoods.losses import RetargetedLoss, SquaredLoss
from tests import randomness


def cases():
    generator = randomness.generator(0)
    psi = torch.randn(40, dtype=torch.float64, generator=generator)
    positive = torch.rand(40, generator=generator) < 0.4
    task = torch.arange(40) // 10
    weights = torch.rand(40, dtype=torch.float64, generator=generator) + 0.1
    simplex = SimplexProjection(RankingLists.bipartite(positive, task))
    return psi, [
        RetargetedLoss(OrderProjection(positive, task, 1.0)),
        RetargetedLoss(OrderProjection(positive, task, 1.0, weights), weights),
        RetargetedLoss(simplex),
    ]


@pytest.mark.parametrize("number", range(3))
def test_the_gradient_is_that_of_the_value(number):
    psi, losses = cases()
    loss, direction = losses[number], torch.randn_like(psi)
    slope = (loss(psi + 1e-6 * direction).value - loss(psi - 1e-6 * direction).value) / 2e-6
    assert abs(slope - float(loss(psi).gradient @ direction)) < 1e-6


@pytest.mark.parametrize("number", range(3))
def test_the_conjugate_meets_fenchel(number):
    """f(psi) + f*(theta) = <psi, theta> at the gradient, and f(other) + f*(c theta) >= <other, c theta> for every c."""
    psi, losses = cases()
    loss = losses[number]
    found = loss(psi)
    assert abs(found.value + found.conjugate(1.0) - float(psi @ found.gradient)) < 1e-10
    for scale in (0.0, 0.3, 0.9):
        for _ in range(20):
            other = psi + torch.randn_like(psi)
            assert loss(other).value + found.conjugate(scale) >= scale * float(other @ found.gradient) - 1e-10


def test_fixed_targets_are_the_squared_loss():
    psi, targets, weights = torch.randn(7), torch.randn(7), torch.rand(7) + 0.5
    ours, theirs = RetargetedLoss(lambda psi: targets, weights), SquaredLoss(targets, weights)
    assert ours.curvature == theirs.curvature
    one, other = ours(psi), theirs(psi)
    assert (one.value, one.linear, one.quadratic) == (other.value, other.linear, other.quadratic)
    assert torch.equal(one.gradient, other.gradient)
    assert RetargetedLoss(lambda psi: psi).curvature == 1.0


def test_targets_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"retarget: expected targets of shape \(3,\), got \(2,\)"):
        RetargetedLoss(lambda psi: psi[:2])(torch.zeros(3))
