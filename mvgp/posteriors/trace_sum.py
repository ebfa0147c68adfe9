r"""The trace-constrained posterior of a sum of terms: :math:`\psi = b + \sum_q G_{Mq} B_q G_{Nq}^T`, equation (12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import InputError
from ..mean.additive import AdditiveSolution
from ..mean.low_rank import LowRank
from ..mean.problem import Certificate, SpectralElasticNet
from .gaussian import TracePosterior
from .sums import TermMean


@dataclass(frozen=True)
class TraceTerm(TermMean):
    r"""The posterior mean of one term of a sum, :math:`b_q + G_{Mq} B_q G_{Nq}^T`.

    :param prior: the term, with its own prior mean.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: the representer coefficients of its mean.
    :param penalty: of the term.
    :param mean_factors: its mean in dual coordinates, up to the prior mean; None without a trace norm.
    """

    penalty: SpectralElasticNet
    mean_factors: LowRank | None

    @property
    def rank(self) -> int | None:
        """Of the term's mean; None for a ridge term, which has no low rank."""
        return None if self.mean_factors is None else self.mean_factors.rank

    @property
    def trace_norm(self) -> float:
        """||B_q||_*"""
        return float(self._low_rank().values.double().sum())

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """(M, R) and (N, R): their product is the term's mean, up to its prior mean."""
        mean = self._low_rank()
        return mean.left_image * mean.values.sqrt(), mean.right_image * mean.values.sqrt()

    def _low_rank(self) -> LowRank:
        if self.mean_factors is None:
            raise InputError("a ridge term (trace_share = 0) has no low rank; use scores or mean")
        return self.mean_factors


class TraceSumPosterior(TracePosterior):
    r"""The posterior of :class:`mvgp.TraceGP` under a sum of terms, :math:`\psi = b + \sum_q G_{Mq} B_q G_{Nq}^T`.

    The mean solves equation (12), the covariance is equation (3).

    :param certificate: of the mean of all terms, equation (13); its rank is the sum of the terms' ranks.
    :param penalties: of each term.
    :param means: of each term in dual coordinates; None for a ridge term.
    :param solution: what a neighbouring problem can start from; None for a posterior from a file.
    :param evidence_scale: see :mod:`~mvgp.posteriors.gaussian`.
    """

    def __init__(
        self,
        *parts: Any,
        certificate: Certificate,
        penalties: Sequence[SpectralElasticNet],
        means: Sequence[LowRank | None],
        solution: AdditiveSolution | None = None,
        evidence_scale: float | None = None,
    ) -> None:
        evidence: dict[str, Any] = {"solution": solution, "evidence_scale": evidence_scale}
        super().__init__(*parts, certificate=certificate, penalty=penalties[0], mean_factors=None, **evidence)
        self.penalties, self.means = tuple(penalties), tuple(means)

    @property
    def terms(self) -> tuple[TraceTerm, ...]:
        """The mean of each term: ``mean``, ``scores``, ``rank``, ``factors``, ``penalty``. They add up to the mean."""
        parts = zip(self.prior.terms, self._terms, self._coefficients, self.penalties, self.means, strict=True)
        return tuple(TraceTerm(*part) for part in parts)

    @property
    def trace_norm(self) -> float:
        """The sum of the trace norms of the terms that have one."""
        return sum(term.trace_norm for term in self.terms if term.rank is not None)

    @property
    def factors(self) -> Any:
        """Of each term: (M, R) and (N, R), or None for a ridge term."""
        return tuple(None if term.rank is None else term.factors for term in self.terms)
