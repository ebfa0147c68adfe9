"""The trace-constrained posterior: a low-rank mean, and the covariance of the plain posterior."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from ..data import PositiveUnlabelled
from ..errors import ConvergenceError, InputError
from ..linalg.csr import Pattern
from ..priors import BiasedMean, MatrixGP
from ..solvers import (
    BiasedSquaredLoss,
    Certificate,
    MeanProblem,
    MeanSolution,
    Penalty,
    SpectralElasticNet,
    solve_dense,
    solve_hybrid,
    solve_proximal,
    solve_ridge,
)
from ..solvers.certificate import dual_bound
from ..solvers.losses import long_dot
from ..solvers.low_rank import LowRank
from ..solvers.ridge import RidgeSolution
from ..solvers.spectrum_bound import largest_value
from .coefficients import Coefficients, LowRankCoefficients, SparseCoefficients
from .full import condition, kernel_operators, whole_list_condition
from .gaussian import PosteriorCovariance
from .loss import Data, make_loss
from .scalable import ScalablePosterior

Solver = Literal["proximal", "dense", "hybrid"]


class TracePosterior(ScalablePosterior):
    r"""The mean :math:`\psi = b + G_M B G_N^T` solves the spectral elastic net (5); the covariance is equation (3).

    :param certificate: evidence for the mean: duality gap, iterations, rank.
    :param penalty: the penalty it solves.
    :param mean_factors: the mean in dual coordinates, up to prior mean and biases; None without a trace norm.
    :param solution: what a neighbouring problem can start from; None for a posterior from a file.
    :param evidence_scale: see :mod:`~mvgp.posteriors.scalable`.
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


@dataclass(frozen=True)
class TraceProblem:
    """Data and prior, ready for any penalty.

    :param prior: a copy of the prior.
    :param conditional: the covariance.
    :param problem: loss and kernels.
    :param lam_max: largest singular value of the loss's gradient at B = 0.
    :param noise: variance of an observation with weight 1.
    :param flat: whether the prior has no variance at any observed cell, so that B = 0 is best.
    """

    prior: MatrixGP
    conditional: PosteriorCovariance
    problem: MeanProblem
    lam_max: float
    noise: float
    flat: bool = False


@torch.no_grad()
def trace_problem(
    prior: MatrixGP,
    data: Data,
    likelihood: Likelihood,
    noise: Tensor,
    *,
    row_bias: float | None,
    col_bias: float | None,
    tolerance: float,
) -> TraceProblem:
    """Set up the loss; the biases are optimised out of it."""
    prior = prior.snapshot()
    ops = kernel_operators(prior, data)
    conditional = (
        whole_list_condition(ops, data, noise, tolerance=tolerance)
        if isinstance(data, PositiveUnlabelled)
        else condition(prior, data, noise, tolerance=tolerance, ops=ops)
    )
    loss = make_loss(prior, data, likelihood, ops[0].device, row_bias=row_bias, col_bias=col_bias)
    problem = MeanProblem(*ops, data.pattern.to(ops[0].device), loss)
    gradient = loss(torch.zeros(len(problem.pattern), dtype=problem.dtype, device=problem.device)).gradient
    lam_max = largest_value(problem, gradient)
    flat = lam_max == 0 and bool((gradient != 0).any())
    return TraceProblem(prior, conditional, problem, lam_max, float(noise), flat=flat)


@torch.no_grad()
def trace_posterior(
    given: TraceProblem,
    penalty: Penalty,
    *,
    solver: Solver,
    tolerance: float,
    max_iterations: int,
    strict: bool,
    start: TracePosterior | None = None,
) -> TracePosterior:
    """Solve for the mean; a certificate that misses its tolerance warns, or raises when ``strict``."""
    problem = given.problem
    coefficients: Coefficients
    solution: MeanSolution | RidgeSolution
    if given.flat:
        solution = _nothing(problem, penalty, tolerance)
        coefficients = LowRankCoefficients(solution.mean.left * solution.mean.values, solution.mean.right)
    elif isinstance(penalty, SpectralElasticNet) and penalty.trace == 0:
        if not isinstance(problem.pattern, Pattern):
            raise InputError("trace_share: the mean over whole lists needs a trace norm (trace_share > 0)")
        if penalty.ridge == 0:
            raise InputError("a penalty of zero leaves the mean undetermined; choose a positive strength")
        warm_ridge = start.solution if start and isinstance(start.solution, RidgeSolution) else None
        solution = solve_ridge(
            problem, penalty.ridge, tolerance=tolerance, max_iterations=max_iterations, start=warm_ridge
        )
        coefficients = SparseCoefficients(problem.pattern, solution.coefficients)
    else:
        warm = start.solution if start and isinstance(start.solution, MeanSolution) else None
        if solver == "proximal":
            solution = solve_proximal(problem, penalty, tolerance=tolerance, max_iterations=max_iterations, start=warm)
        elif solver == "dense":
            solution = solve_dense(problem, penalty, tolerance=tolerance, max_iterations=max_iterations)
        else:
            solution = solve_hybrid(problem, penalty, tolerance=tolerance, max_iterations=max_iterations)
        mean = solution.mean
        coefficients = LowRankCoefficients(mean.left * mean.values, mean.right)
    certificate = solution.certificate
    if not certificate.converged:
        message = (
            f"the mean's relative duality gap is {certificate.relative_gap:.1e} after {certificate.iterations} "
            f"iterations, the tolerance is {certificate.tolerance:.1e}; allow more iterations, loosen the tolerance, "
            "use float64, or approach this strength along a path"
        )
        if strict:
            raise ConvergenceError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    prior = given.prior
    if isinstance(problem.loss, BiasedSquaredLoss):
        prior = copy.deepcopy(prior)
        prior.mean_module = BiasedMean(prior.mean_module, *problem.loss.biases(solution.psi))
    posterior = TracePosterior(
        prior,
        (problem.row_op, problem.col_op),
        coefficients,
        given.conditional,
        certificate=certificate,
        penalty=penalty,
        mean_factors=solution.mean if isinstance(solution, MeanSolution) else None,
        solution=solution,
        evidence_scale=_evidence_scale(given, solution),
    )
    posterior._noise = given.noise
    return posterior


def _nothing(problem: MeanProblem, penalty: Penalty, tolerance: float) -> MeanSolution:
    """B = 0, with the certificate that it is best: the loss does not depend on B."""
    mean = LowRank.zero(problem)
    psi = mean.psi(problem)
    at = problem.loss(psi)
    dual = dual_bound(at, torch.zeros(1, dtype=problem.dtype, device=problem.device), penalty)
    certificate = Certificate(at.value, dual, tolerance, 0, 0, "flat prior")
    spare = torch.zeros(problem.shape[1], 0, dtype=problem.dtype, device=problem.device)
    return MeanSolution(mean, psi, at, certificate, spare, 0.0)


def _evidence_scale(given: TraceProblem, solution: MeanSolution | RidgeSolution) -> float:
    """What is left of the data plus the squared Hilbert norm of the mean, for each observed cell."""
    if isinstance(solution, MeanSolution):
        loss, norm = solution.loss.value, float(solution.mean.values.double().square().sum())
    else:
        loss, norm = given.problem.loss(solution.psi).value, long_dot(solution.coefficients, solution.psi)
    return (2 * float(loss) / given.noise + norm) / max(len(given.problem.pattern), 1)
