"""Completing a smooth matrix of low rank. Settings are chosen on the same validation cells, then refitted to all that was observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

import mvgp
from mvgp.hyperparameters import split_pairs

from .problems import Planted, gaussian, planted
from .soft_impute import soft_impute

VALIDATION = 0.1  # share of the observed cells
WORSE = 2  # a path ends after so many strengths without a better one


def _error(found: torch.Tensor, wanted: mvgp.ObservedMatrix) -> float:
    """Root of the mean squared error at cells (Q,)."""
    return float((found - wanted.values).square().mean().sqrt())


def _answer(
    problem: Planted, mean: torch.Tensor, rank: int, setting: str, began: float, chosen: float, **more: float
) -> dict:
    """:param mean: (Q,) at the held-out cells; :param chosen: when the setting was."""
    return {
        "error": _error(mean, problem.held_out) / problem.noise_std,
        "rank": rank,
        "setting": setting,
        "choice_seconds": chosen - began,
        "fit_seconds": time.perf_counter() - chosen,
        **more,
    }


def trace_gp(
    shape: list[int], observed: int, rank: int, on: str, shares: list[float], strengths: list[float]
) -> Callable[[], dict]:
    problem = planted(shape, observed, rank, on=on)
    split = split_pairs(problem.data, share=VALIDATION, seed=0)[0]

    def model(share: float) -> mvgp.TraceGP:
        return mvgp.TraceGP(problem.prior, gaussian(problem.noise_std**2), trace_share=share)

    def run() -> dict:
        began = time.perf_counter()
        best = (float("inf"), 0.0, 0.0)
        for share in shares:
            seen: list[float] = []
            for point in model(share).path(split.train, strengths):
                seen.append(_error(point.posterior.mean(split.held_out.rows, split.held_out.cols), split.held_out))
                best = min(best, (seen[-1], share, point.strength))
                if _past(seen):
                    break
        _, share, strength = best
        chosen = time.perf_counter()
        *_, last = model(share).path(problem.data, [one for one in strengths if one >= strength])
        mean = last.posterior.mean(problem.held_out.rows, problem.held_out.cols)
        setting = f"trace share {share:g}, strength {strength:g}"
        gap = last.posterior.certificate.relative_gap
        return _answer(problem, mean, last.posterior.rank, setting, began, chosen, relative_gap=gap)

    return run


def plain_soft_impute(
    shape: list[int], observed: int, rank: int, on: str, strengths: list[float]
) -> Callable[[], dict]:
    problem = planted(shape, observed, rank, on=on)
    split = split_pairs(problem.data, share=VALIDATION, seed=0)[0]

    def run() -> dict:
        began = time.perf_counter()
        best, seen = (float("inf"), 0.0), []
        for strength, matrix, _ in soft_impute(split.train, strengths):
            seen.append(_error(matrix[split.held_out.rows, split.held_out.cols], split.held_out))
            best = min(best, (seen[-1], strength))
            if _past(seen):
                break
        chosen = time.perf_counter()
        *_, (_, matrix, found) = soft_impute(problem.data, [one for one in strengths if one >= best[1]])
        mean = matrix[problem.held_out.rows, problem.held_out.cols]
        return _answer(problem, mean, found, f"strength {best[1]:g}", began, chosen)

    return run


def factor_gp(
    shape: list[int], observed: int, rank: int, on: str, ranks: list[int], noises: list[float], steps: int
) -> Callable[[], dict]:
    problem = planted(shape, observed, rank, on=on)

    def fit(data: mvgp.ObservedMatrix, setting: tuple[int, float]) -> mvgp.GaussianPosterior:
        model = mvgp.FactorGP(problem.prior, gaussian(setting[1]), setting[0], restarts=1, max_iterations=steps)
        return model.fit(data)

    return _by_grid(
        problem,
        fit,
        [(one, noise) for one in ranks for noise in noises],
        lambda one: f"rank {one[0]}, noise {one[1]:g}",
    )


def full_gp(shape: list[int], observed: int, rank: int, on: str, noises: list[float]) -> Callable[[], dict]:
    problem = planted(shape, observed, rank, on=on)

    def fit(data: mvgp.ObservedMatrix, noise: float) -> mvgp.GaussianPosterior:
        return mvgp.FullGP(problem.prior, gaussian(noise)).fit(data)

    return _by_grid(problem, fit, noises, lambda noise: f"noise {noise:g}")


def _by_grid(problem: Planted, fit: Callable, settings: Sequence, text: Callable) -> Callable[[], dict]:
    split = split_pairs(problem.data, share=VALIDATION, seed=0)[0]

    def run() -> dict:
        began = time.perf_counter()
        errors = [
            _error(fit(split.train, one).mean(split.held_out.rows, split.held_out.cols), split.held_out)
            for one in settings
        ]
        best = settings[errors.index(min(errors))]
        chosen = time.perf_counter()
        posterior = fit(problem.data, best)
        mean = posterior.mean(problem.held_out.rows, problem.held_out.cols)
        return _answer(problem, mean, getattr(posterior, "rank", min(problem.data.shape)), text(best), began, chosen)

    return run


def _past(errors: list[float]) -> bool:
    """Whether the best one is some way back."""
    return len(errors) - 1 - errors.index(min(errors)) >= WORSE
