"""Iterate: where a solver of the mean stands."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .losses import LossValue
from .low_rank import LowRank
from .penalties import Penalty
from .problem import MeanProblem


@dataclass(frozen=True)
class Iterate:
    """A mean, its loss, and what the next steps start from.

    :param mean: B.
    :param psi: (T,) at the observed pairs.
    :param at: the loss there.
    :param spare: (N, p) right images of directions next in line to enter.
    :param lipschitz: curvature of the loss met on the way.
    """

    mean: LowRank
    psi: Tensor
    at: LossValue
    spare: Tensor
    lipschitz: float

    def objective(self, penalty: Penalty) -> float:
        """Loss plus penalty."""
        return self.at.value + penalty.value(self.mean.values)

    @classmethod
    def of(cls, problem: MeanProblem, mean: LowRank, spare: Tensor, lipschitz: float) -> Iterate:
        """With psi and the loss computed."""
        psi = mean.psi(problem)
        return cls(mean, psi, problem.loss(psi), spare, lipschitz)
