r"""The posteriors of FullGP and TraceGP, whose covariance can be rescaled to the maximum marginal likelihood.

Multiply the prior's covariance and the noise by a number s. A plain posterior keeps its mean, and so does the
trace-constrained one with :math:`\sqrt{s}\, l_1` and :math:`s\, l_2` in equation (5); the covariance becomes
:math:`s S`. For a ranking the data fix s only through the marginal likelihood: scores have the scale of the chosen
margin, the prior that of the kernels. The evidence bound depends on s through

.. math:: -\tfrac T2 \log s - \tfrac{1}{2 s} \left( (r - \psi_T)^T D^{-1} (r - \psi_T) + \|\psi - b\|_K^2 \right)

with r the observed values, or the retargeted scores of a ranking. Its maximum is at s = the bracket divided by T; for
the plain posterior that is :math:`(r - b)^T (K_{TT} + D)^{-1} (r - b) / T`, the maximum
of the marginal likelihood.
"""

from __future__ import annotations

import copy
from typing import Any, Self

from torch import Tensor

from ..checks import check_positive
from ..errors import InputError
from ..linalg.conjugate_gradients import SolveReport
from ..mean.certificate import Certificate, MeanSolution
from ..mean.penalties import Penalty
from ..mean.problem import LowRank
from ..mean.ridge import RidgeSolution
from .covariance import NoCovariance, ScaledCovariance, unscaled
from .gaussian import GaussianPosterior
from .predictive import Predictions


class ScalablePosterior(Predictions, GaussianPosterior):
    r"""The posterior of :class:`mvgp.FullGP` or :class:`mvgp.TraceGP`.

    Its covariance can be given another scale, :math:`s S`; the mean does not depend on it.
    """

    _evidence_scale: float | None = None

    @property
    def scale(self) -> float:
        """By which covariance and noise are multiplied; 1 for a posterior as it was fitted."""
        return unscaled(self.conditional)[1]

    @property
    def noise(self) -> float | None:
        """Noise variance of an observation with weight 1, at this scale; None if it is not known."""
        return super().noise if self._noise is None else self.scale * self._noise

    @property
    def evidence_scale(self) -> float:
        """The scale of largest evidence bound, relative to the prior as it was given."""
        if self.sites is not None:
            raise InputError("evidence_scale: a pointwise likelihood fixes the scale of the latent values; it is 1")
        if self._evidence_scale is None:
            raise InputError("evidence_scale: this posterior is from a file that was written without it; fit it again")
        return self._evidence_scale

    def rescaled(self, scale: float) -> Self:
        """The same mean with ``scale`` times the covariance S of the prior as it was given.

        :param scale: positive; :attr:`evidence_scale` maximises the marginal likelihood.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (2, 4))
            >>> data = mvgp.ObservedMatrix([0, 1], [0, 1], [3.0, -3.0], (2, 4))
            >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
            >>> posterior = mvgp.FullGP(mvgp.MatrixGP(two, four), likelihood).fit(data)
            >>> wide = posterior.rescaled(4.0)
            >>> float(wide.mean([0], [0]) - posterior.mean([0], [0])), float(wide.variance([0], [1]))
            (0.0, 4.0)

        """
        scale = check_positive(scale, "scale")
        other = copy.copy(self)
        if not isinstance(self.conditional, NoCovariance):
            other.conditional = ScaledCovariance(unscaled(self.conditional)[0], scale)
        return other

    def calibrated(self) -> Self:
        """The same mean, the covariance rescaled to the maximum marginal likelihood: :attr:`evidence_scale` times S.

        Ranks need it: P(in the top k) compares differences of the mean, whose scale is the likelihood's margin, with
        standard deviations, whose scale is the kernels'.
        """
        return self.rescaled(self.evidence_scale)


class FullPosterior(ScalablePosterior):
    r"""The exact posterior, equations (2) and (3).

    .. math:: \psi = b + K_{*T} (K_{TT} + D)^{-1} (r - b_T), \qquad S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}

    :param solve_report: how well the linear system of the mean was solved; None for a ranking, which has a certificate.
    :param certificate: of a ranking: how far its mean is from the optimum; None otherwise.
    :param evidence_scale: see :mod:`~mvgp.posteriors.fitted`.
    """

    def __init__(
        self,
        *parts: Any,
        solve_report: SolveReport | None = None,
        certificate: Certificate | None = None,
        evidence_scale: float | None = None,
    ) -> None:
        super().__init__(*parts)
        self._evidence_scale = evidence_scale
        self.solve_report, self.certificate = solve_report, certificate


class TracePosterior(ScalablePosterior):
    r"""The mean :math:`\psi = b + G_M B G_N^T` solves the spectral elastic net (5); the covariance is equation (3).

    :param certificate: of the mean: duality gap, iterations, rank.
    :param penalty: the penalty it solves.
    :param mean_factors: the mean in dual coordinates, up to prior mean and biases; None without a trace norm.
    :param solution: what a neighbouring problem can start from; None for a posterior from a file.
    :param evidence_scale: see :mod:`~mvgp.posteriors.fitted`.
    """

    def __init__(
        self,
        *parts: Any,
        certificate: Certificate,
        penalty: Penalty,
        mean_factors: LowRank | None,
        solution: MeanSolution | RidgeSolution | None = None,
        evidence_scale: float | None = None,
    ) -> None:
        super().__init__(*parts)
        self._evidence_scale = evidence_scale
        self.certificate, self.penalty = certificate, penalty
        self.mean_factors, self.solution = mean_factors, solution

    @property
    def rank(self) -> int:
        """Rank of the mean (before prior mean and biases)."""
        return self.certificate.rank

    @property
    def trace_norm(self) -> float:
        """||B||_*: the radius of the ball whose constraint form, equation (6), has the same mean."""
        if self.mean_factors is None:
            raise InputError("without a trace norm (trace_share = 0) the mean is not of low rank")
        return float(self.mean_factors.values.double().sum())

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """(M, R) and (N, R): their product is the mean, up to prior mean and biases."""
        if self.mean_factors is None:
            raise InputError("without a trace norm (trace_share = 0) the mean is not of low rank; use scores or mean")
        mean = self.mean_factors
        return mean.left_image * mean.values.sqrt(), mean.right_image * mean.values.sqrt()
