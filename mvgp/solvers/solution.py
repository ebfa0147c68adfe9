"""MeanSolution: what every solver of the mean returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .certificate import Certificate
from .losses import LossValue
from .low_rank import LowRank


@dataclass(frozen=True)
class MeanSolution:
    """A fitted mean with its evidence.

    :param mean: B.
    :param psi: (T,) at the observed pairs.
    :param loss: the loss there.
    :param certificate: the evidence.
    :param spare: (N, p) right images of directions that nearly entered; they speed up a warm start.
    :param lipschitz: curvature met on the way, likewise.
    """

    mean: LowRank
    psi: Tensor
    loss: LossValue
    certificate: Certificate
    spare: Tensor
    lipschitz: float
