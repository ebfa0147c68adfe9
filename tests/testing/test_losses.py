"""Losses of ours keep the contract of a loss; mutants break it."""

import pytest
import torch
from gpytorch.likelihoods import BernoulliLikelihood, LaplaceLikelihood, PoissonLikelihood

from mvgp.likelihoods import (
    BiasedSquaredLoss,
    ConvexValue,
    LogisticLikelihood,
    LogPoissonLikelihood,
    Loss,
    PointwiseLoss,
    RetargetedLoss,
    SquaredLoss,
)
from mvgp.likelihoods.pointwise import density_of
from mvgp.testing import LossContract, run_contract
from tests import randomness

T = 6


def numbers(seed, low=0.2, high=1.5):
    generator = randomness.generator(seed)
    return low + (high - low) * torch.rand(T, generator=generator, dtype=torch.float64)


def pointwise(likelihood, values, variance):
    spread = numbers(1) if variance else None
    return lambda: PointwiseLoss(density_of(likelihood, values), numbers(2), spread, numbers(3) - 0.8)


LABELS = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
COUNTS = torch.tensor([0.0, 3.0, 1.0, 0.0, 12.0, 2.0], dtype=torch.float64)
LOSSES = {
    "squared": lambda: SquaredLoss(numbers(0), numbers(1)),
    "retargeted": lambda: RetargetedLoss(lambda psi: psi.clamp(min=1.0), numbers(1)),
    "biased": lambda: BiasedSquaredLoss(
        numbers(0), numbers(1), torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 0, 1]), (3, 2), 0.5, 0.3
    ),
    "probit": pointwise(BernoulliLikelihood(), LABELS, True),
    "probit, v = 0": pointwise(BernoulliLikelihood(), LABELS, False),
    "logistic": pointwise(LogisticLikelihood(), LABELS, True),
    "logistic, v = 0": pointwise(LogisticLikelihood(), LABELS, False),
    "log poisson": pointwise(LogPoissonLikelihood(), COUNTS, True),
    "log poisson, v = 0": pointwise(LogPoissonLikelihood(), COUNTS, False),
    "softplus poisson": pointwise(PoissonLikelihood(), COUNTS, True),
    "laplace noise": pointwise(LaplaceLikelihood().double(), numbers(4), True),
}


def contract(make):
    return type("Rules", (LossContract,), {"make_loss": lambda self: make(), "length": T})


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_of_ours(kind):
    result = run_contract(contract(LOSSES[kind]))
    assert result.holds, result
    assert not result.skipped


class Huber(Loss):
    """The example of the documents, with switches that break it."""

    def __init__(self, bend=1.0, sign=1.0, lowest=0.0, slope=1.0):
        self.bend, self.sign, self.lowest, self.slope = bend, sign, lowest, slope

    @property
    def curvature(self):
        return self.bend

    def __call__(self, psi):
        off = psi - numbers(0)
        value = torch.where(off.abs() < 1, off.square() / 2, off.abs() - 0.5).sum()
        return ConvexValue(
            self.sign * float(value), self.sign * self.slope * off.clamp(-1, 1), psi=psi, lowest=self.lowest
        )


def test_a_loss_of_ones_own():
    assert run_contract(contract(Huber)).holds
    assert run_contract(contract(lambda: Huber(lowest=-float("inf")))).skipped


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (lambda: Huber(bend=0.2), "test_the_curvature_is_a_bound"),
        (lambda: Huber(sign=-1.0), "test_it_is_convex"),
        (lambda: Huber(slope=0.5), "test_the_gradient_is_that_of_the_value"),
        (lambda: Huber(lowest=5.0), "test_the_conjugate_is_one"),
    ],
)
def test_mutants(mutant, rule):
    assert rule in run_contract(contract(mutant)).broken
