"""What a model goes on with when its posterior is given other data: its settings then, and the old mean."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from ..mean.low_rank import MeanSolution
from ..mean.problem import Certificate, MeanProblem
from ..mean.ridge import RidgeSolution, kernel_product
from ..posteriors.gaussian import GaussianPosterior, TracePosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.updates import moved_coefficients
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP


def remembered(model: Any, prior: MatrixGP | SumGP) -> Any:
    """A copy of a model as it is now around ``prior``, a snapshot of its own: what a posterior goes on with."""
    memo: dict[int, Any] = {id(model.prior): prior}
    parts = getattr(model, "likelihood", None)
    for values in () if parts is None else (*parts.parameters(), *parts.buffers()):
        if not values.is_leaf:  # torch copies no others
            memo[id(values)] = values.detach().clone()
    return copy.deepcopy(model, memo)


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
