"""PairRanker: scores of every cell from coefficients on the observed pairs, and no uncertainty."""

from __future__ import annotations

from linear_operator import LinearOperator

from ..linalg import PairIndex
from ..posteriors.coefficients import SparseCoefficients
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.no_covariance import NoCovariance
from ..priors import MatrixGP
from ..solvers.certificate import Certificate

REASON = (
    "a support vector machine has scores (mean, scores) but no variance, covariance or samples; "
    "for those fit FullGP or TraceGP"
)


class PairRanker(GaussianPosterior):
    r"""The result of :class:`~mvgp.models.PairwiseSVM`: :math:`f(m, n) = b + k_M(m) A k_N(n)^T`.

    It answers as a posterior does wherever only the mean is asked for (``mean``, ``scores``, new inputs, metrics); the
    rest is an error.

    :param prior: a copy of the prior as it was when fitted, its mean the bias b.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: A, on the observed pairs.
    :param pairs: the observed pairs.
    :param bias: b.
    :param certificate: evidence: duality gap, iterations, solver.
    """

    def __init__(
        self,
        prior: MatrixGP,
        ops: tuple[LinearOperator, LinearOperator],
        coefficients: SparseCoefficients,
        pairs: PairIndex,
        *,
        bias: float,
        certificate: Certificate,
    ) -> None:
        super().__init__(prior, ops, coefficients, NoCovariance(pairs, REASON))
        self.bias, self.certificate = bias, certificate
