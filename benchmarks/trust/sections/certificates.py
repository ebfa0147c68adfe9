"""Certified means beside an independent solver: no certificate may claim a gap below the true one."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from linear_operator import to_linear_operator

from benchmarks.trust.plan import Found, Line, generator
from mvgp.errors import MvgpError
from mvgp.likelihoods import SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import MeanProblem, SpectralElasticNet, TraceBall, solve_dense, solve_hybrid, solve_proximal
from tests.oracles import conic_optimum

ACCURACY = 1e-7  # of the interior-point solver, relative to its optimum, beyond its own tolerance of 1e-10


def covariance(rng: np.random.Generator, size: int) -> torch.Tensor:
    """Smooth, rough or nearly singular, positive definite for the factors of the reference."""
    root = rng.normal(size=(size, size)) * 10.0 ** -np.linspace(0, rng.uniform(0, 3), size)
    return torch.from_numpy(10 ** rng.uniform(-1, 1) * (root @ root.T / size + 10 ** rng.uniform(-4, 0) * np.eye(size)))


def drawn(rng: np.random.Generator) -> tuple[MeanProblem, tuple[torch.Tensor, torch.Tensor], Any]:
    """A problem, its kernels and a penalty."""
    shape = int(rng.integers(1, 6)), int(rng.integers(1, 8))
    kernels = covariance(rng, shape[0]), covariance(rng, shape[1])
    size = shape[0] * shape[1]
    cells = torch.from_numpy(np.sort(rng.choice(size, rng.integers(1, size + 1), replace=False)))
    targets = torch.from_numpy(rng.normal(size=len(cells)) * 10 ** rng.uniform(-1, 1))
    weights = torch.from_numpy(10 ** rng.uniform(-1, 1, len(cells))) if rng.random() < 0.5 else None
    pattern = Pattern(cells // shape[1], cells % shape[1], shape)
    operators = [to_linear_operator(kernel) for kernel in kernels]
    problem = MeanProblem(operators[0], operators[1], pattern, SquaredLoss(targets, weights))
    alpha = float(rng.choice([1.0, 0.9, 0.5, 0.1]))
    if rng.random() < 0.25:
        penalty: Any = TraceBall(10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-2, 0) * (1 - alpha))
    else:
        penalty = SpectralElasticNet(10 ** rng.uniform(-2, 1), alpha)
    return problem, kernels, penalty


def optimum(problem: MeanProblem, kernels: tuple[torch.Tensor, torch.Tensor], penalty: Any) -> float:
    """By an interior-point solver."""
    loss: Any = problem.loss
    weights = torch.ones_like(loss.targets) if loss.weights is None else loss.weights
    parts = (*kernels, problem.pattern.rows, problem.pattern.cols, loss.targets, weights)
    if isinstance(penalty, TraceBall):
        return conic_optimum(*parts, ridge=penalty.ridge, radius=penalty.radius)
    return conic_optimum(*parts, ridge=penalty.ridge, trace=penalty.trace)


def means(first: int, count: int, seed: int) -> Found:
    """One problem for each number, by one of the solvers; singular values exact, or bounded from random vectors."""
    found, stated = Found(), 0.0
    for number in range(first, first + count):
        rng = generator("numerics/certificates", number, seed)
        problem, kernels, penalty = drawn(rng)
        solvers = {"proximal": solve_proximal, "random vectors": solve_proximal, "dense": solve_dense}
        if not isinstance(penalty, TraceBall):
            solvers["hybrid"] = solve_hybrid
        name = str(rng.choice(sorted(solvers)))
        options = {"exact_limit": 0} if name == "random vectors" else {}
        wrong, outcome = "", "certified"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                best = optimum(problem, kernels, penalty)
                tolerance = float(10 ** rng.uniform(-6, -2))
                certificate = solvers[name](problem, penalty, tolerance=tolerance, **options).certificate
        except MvgpError as error:
            found.add("failed", f"{number} {name}, {penalty}: {type(error).__name__}: {str(error)[:200]}")
            continue
        except Exception as error:  # the reference gave up, or a raw error of ours
            if type(error).__module__.startswith("cvxpy"):
                found.add("the reference gave up")
            else:
                found.add("failed", f"{number} {name}, {penalty}: {type(error).__name__}: {str(error)[:200]}")
            continue
        slack = ACCURACY * (abs(best) + 1e-12)
        stated += certificate.failure_probability or 0.0
        true_gap = certificate.primal - best
        if not math.isfinite(best):
            outcome = "the reference gave up"
        elif true_gap < -slack:
            wrong = f"objective {certificate.primal:.12g} below the optimum {best:.12g}"
        elif certificate.dual > best + slack:
            wrong = f"lower bound {certificate.dual:.12g} above the optimum {best:.12g}: gap {certificate.gap:.3g} for {true_gap:.3g}"
        elif not certificate.converged:
            outcome = "certified above its tolerance"
        found.reached(
            "true gap over the certified one", true_gap / certificate.gap if certificate.gap > 10 * slack else 0.0
        )
        found.add("failed" if wrong else outcome, wrong and f"{number} {name}, {penalty}, {problem.shape}: {wrong}")
    found.reached("stated probability of a failure in a unit", stated)
    return found


LINES = [Line("numerics/certificates", "certified means beside an interior-point solver", 1_000, 100, means)]
