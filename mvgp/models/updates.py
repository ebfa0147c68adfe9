"""What the solver of a mean starts from when a posterior is given other data: the old mean."""

from __future__ import annotations

from dataclasses import replace

from ..mean.low_rank import MeanSolution
from ..mean.problem import Certificate, MeanProblem
from ..mean.ridge import RidgeSolution, kernel_product
from ..posteriors.gaussian import GaussianPosterior, TracePosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.updates import moved_coefficients


def moved_solution(posterior: GaussianPosterior, problem: MeanProblem) -> MeanSolution | RidgeSolution | None:
    """The mean of a posterior given other data under the same prior, as a start for ``problem``."""
    if isinstance(posterior.coefficients, SparseCoefficients):
        before = posterior.coefficients
        alpha = moved_coefficients(before.pattern, before.values, problem.pattern)
        certificate = Certificate(0.0, 0.0, 1.0, 0, 0, "start")
        return RidgeSolution(alpha, kernel_product([problem])(alpha), certificate)
    solution = posterior.solution if isinstance(posterior, TracePosterior) else None
    if not isinstance(solution, MeanSolution) or solution.mean.rank == 0:
        return None
    psi = solution.mean.psi(problem)
    return replace(solution, psi=psi, loss=problem.loss(psi))
