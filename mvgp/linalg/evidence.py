"""What a solver returns: the answer, and the evidence for it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import Tensor

from ..errors import ConvergenceError


@dataclass(frozen=True)
class Evidence:
    """How well a linear system was solved.

    :param method: ``cholesky``, ``spectral`` or ``cg``.
    :param residual: largest relative residual ||b - A x|| / ||b|| over the right-hand sides, measured
        on the answer itself, not taken from a recurrence.
    :param tolerance: the relative residual that was asked for.
    :param iterations: products with the matrix (0 for a direct method).
    """

    method: str
    residual: float
    tolerance: float
    iterations: int = 0

    @property
    def converged(self) -> bool:
        """Whether the residual is within the tolerance."""
        return self.residual <= self.tolerance


@dataclass(frozen=True)
class Solution:
    """The answer of a linear system, with its evidence.

    :param value: (T, C).
    :param evidence: for it.
    """

    value: Tensor
    evidence: Evidence

    def checked(self, *, strict: bool = True) -> Solution:
        """Itself, if the tolerance was met.

        A miss raises :class:`~mvgp.errors.ConvergenceError`, whatever the method.

        :param strict: False to warn instead.
        """
        found = self.evidence
        if found.converged:
            return self
        steps = f" after {found.iterations} iterations" if found.iterations else ""
        message = (
            f"{found.method} ended with relative residual {found.residual:.2e}{steps}, the tolerance is "
            f"{found.tolerance:.2e}; raise the noise, allow more iterations, use float64, or accept a larger tolerance"
        )
        if strict:
            raise ConvergenceError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return self
