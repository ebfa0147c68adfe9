"""How time and memory grow: one fit from cold to a smooth matrix of low rank on random graphs."""

from __future__ import annotations

from collections.abc import Callable

import mvgp

from .problems import gaussian, planted
from .soft_impute import soft_impute

STRENGTH = 0.3  # of the penalty, relative to the one that gives zero


def trace_gp(shape: list[int], observed: int, rank: int) -> Callable[[], dict]:
    """The low-rank mean, trace norm alone."""
    problem = planted(shape, observed, rank, held_out=10)
    model = mvgp.TraceGP(problem.prior, gaussian(problem.noise_std**2), strength=STRENGTH, trace_share=1.0)

    def run() -> dict:
        posterior = model.fit(problem.data)
        return {"rank": posterior.rank, "relative_gap": posterior.certificate.relative_gap}

    return run


def full_gp(shape: list[int], observed: int, rank: int) -> Callable[[], dict]:
    """Fit, and the means of all cells."""
    problem = planted(shape, observed, rank, held_out=10)
    model = mvgp.FullGP(problem.prior, gaussian(problem.noise_std**2))

    def run() -> dict:
        posterior = model.fit(problem.data)
        posterior.scores()
        return {"residual": posterior.solve_report.residual, "iterations": posterior.solve_report.iterations}

    return run


def factor_gp(shape: list[int], observed: int, rank: int, steps: int) -> Callable[[], dict]:
    """So many steps from one start, told the right rank."""
    problem = planted(shape, observed, rank, held_out=10)
    model = mvgp.FactorGP(problem.prior, gaussian(problem.noise_std**2), rank, restarts=1, max_iterations=steps)

    def run() -> dict:
        return {"rank": model.fit(problem.data).rank}

    return run


def plain_soft_impute(shape: list[int], observed: int, rank: int) -> Callable[[], dict]:
    """Without kernels."""
    problem = planted(shape, observed, rank, held_out=10)

    def run() -> dict:
        ((_, _, found),) = soft_impute(problem.data, [STRENGTH])
        return {"rank": found}

    return run
