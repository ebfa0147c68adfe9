"""The mean with a trace norm: the proximal solver beside its peers, one of its steps, and a path at the paper's scale."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, RetargetedLoss, SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import LowRank, MeanProblem, SpectralElasticNet, solve_hybrid, solve_proximal
from mvgp.mean.conjugate import conjugate_steps
from mvgp.mean.factored import FactoredProblem
from mvgp.mean.low_rank import Iterate, StepOperator, leading_values, random_images, subspace_pass
from mvgp.mean.problem import dual_bound, times

from .problems import peak_gib, power_law_graph, random_pairs

STEPS = 4


def _kernels(shape: list[int], links: list[int], dtype: torch.dtype) -> list:
    return [
        DiffusionKernel(power_law_graph(n, e, seed), dtype=dtype).operator().detach()
        for seed, (n, e) in enumerate(zip(shape, links, strict=True))
    ]


def _planted(kernels: list, pattern: Pattern, rank: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Scores of low rank with standard deviation 1, plus noise of half that size."""
    factors = [op._matmul(torch.randn(op.shape[-1], rank, generator=generator).to(dtype)) for op in kernels]
    factors[0] *= torch.linspace(1.5, 0.3, rank, dtype=dtype)
    truth = pattern.sample(*factors)
    return truth / truth.std() + 0.5 * torch.randn(len(truth), generator=generator).to(dtype)


def regression(shape: list[int], observed: int, links: list[int], rank: int, precision: str) -> MeanProblem:
    """Planted scores plus noise, squared loss."""
    dtype = getattr(torch, precision)
    kernels, size = _kernels(shape, links, dtype), (shape[0], shape[1])
    pattern = Pattern(*random_pairs(size, observed, seed=0), size)
    targets = _planted(kernels, pattern, rank, dtype, torch.Generator().manual_seed(0))
    return MeanProblem(*kernels, pattern, SquaredLoss(targets))


def ranking(shape: list[int], observed: int, links: list[int], rank: int, precision: str) -> MeanProblem:
    """Lists of power-law length; the upper half of each, by planted scores plus noise, is positive. Equation (9)."""
    dtype = getattr(torch, precision)
    kernels, rng, generator = _kernels(shape, links, dtype), np.random.default_rng(0), torch.Generator().manual_seed(0)
    weight = 1.0 / (rng.permutation(shape[0]) + 10.0) ** 0.6
    cells = np.zeros(0, dtype=np.int64)
    while len(cells) < observed:
        drawn = rng.choice(shape[0], size=observed, p=weight / weight.sum())
        cells = np.unique(np.concatenate([cells, drawn * shape[1] + rng.integers(shape[1], size=observed)]))
    chosen = torch.from_numpy(np.sort(rng.permutation(cells)[:observed]))
    rows, cols = chosen // shape[1], chosen % shape[1]
    pattern = Pattern(rows, cols, (shape[0], shape[1]))
    noisy = _planted(kernels, pattern, rank, dtype, generator)
    order, tasks = np.lexsort((noisy.numpy(), rows.numpy())), rows.numpy()
    place = np.empty(observed, dtype=np.int64)
    place[order] = np.arange(observed) - np.searchsorted(tasks, tasks[order])  # within the list
    labels = torch.from_numpy(np.where(2 * place >= np.bincount(tasks)[tasks], 1.0, -1.0)).to(dtype)
    retarget = BipartiteRankingLikelihood(margin=1.0).to(dtype).retargeting(labels, rows, None)
    return MeanProblem(*kernels, pattern, RetargetedLoss(retarget))


@torch.no_grad()
def largest(given: MeanProblem, observed: int, precision: str, accuracy: float) -> float:
    """The strength from which on the mean is zero."""
    start = given.loss(torch.zeros(observed, dtype=getattr(torch, precision))).gradient
    return float(leading_values(given, start, random_images(given, 16, 0), accuracy=accuracy).values[0])


class Clock:
    """Objectives, and the seconds after which they were reached."""

    def __init__(self) -> None:
        self.began, self.seen = time.perf_counter(), []

    def __call__(self, objective: float) -> None:
        self.seen.append([time.perf_counter() - self.began, float(objective)])


def proximal(strength: float, problem: dict[str, Any], **_: Any) -> Callable[[], dict]:
    given = regression(**problem)
    penalty = SpectralElasticNet(strength * largest(given, problem["observed"], problem["precision"], 1e-7), 1.0)

    @torch.no_grad()
    def run() -> dict:
        clock = Clock()
        found = solve_proximal(given, penalty, tolerance=1e-4, max_iterations=500, watch=clock)
        proof = found.certificate
        return {
            "seen": clock.seen,
            "best": proof.primal,
            "gap": proof.relative_gap,
            "rank": found.mean.rank,
            "steps": proof.iterations,
        }

    return run


def factored_lbfgs(strength: float, problem: dict[str, Any], rank: int, steps: int) -> Callable[[], dict]:
    """B = X Z^T of a given rank by L-BFGS; the certificate is computed after the last step, and is part of the time."""
    given = regression(**problem)
    penalty = SpectralElasticNet(strength * largest(given, problem["observed"], problem["precision"], 1e-7), 1.0)

    @torch.no_grad()
    def run() -> dict:
        factored = FactoredProblem(given)
        x, z = factored.random(rank, 0.1, torch.Generator().manual_seed(0))
        clock = Clock()
        x, z, value, evaluations = factored.minimise(x, z, penalty.trace, 0.0, max_iterations=steps, watch=clock)
        images = factored.row_root._matmul(x), factored.col_root._matmul(z)
        at = given.loss(given.pattern.sample(*images))
        block = torch.cat([images[1], random_images(given, 16, 1)], dim=1)
        bound = dual_bound(at, leading_values(given, at.gradient, block, accuracy=1e-6).values, penalty)
        gap = float((value - bound) / value)
        return {"seen": clock.seen, "best": float(value), "gap": gap, "rank": rank, "steps": evaluations}

    return run


def one_step(shape: list[int], observed: int, rank: int) -> Callable[[], dict]:
    """Conjugate-gradient steps on the factors: kernel products, sampled and sparse products, line search."""
    with torch.no_grad():
        links = [3 * shape[0], min(30 * shape[1], shape[1] * (shape[1] - 1) // 8)]
        given = regression(shape, observed, links, min(20, rank), "float32")
        theta = given.loss(torch.zeros(observed)).gradient
        found = subspace_pass(given, StepOperator(given, theta), random_images(given, rank, 0))
        mean = LowRank(-found.left, found.right, found.values, -found.left_image, found.right_image)
        now = Iterate.of(given, mean, found.right_image[:, :0], 0.1)
        penalty = SpectralElasticNet(0.2 * float(found.values[0]), 1.0)

    @torch.no_grad()
    def run() -> dict:
        conjugate_steps(given, penalty, now, found, steps=STEPS)
        return {}

    return run


class Floor:
    """Seconds inside the products that no method of this kind can do without: kernel, sampled and sparse ones."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0
        MeanProblem.rows_times = self._timed(MeanProblem.rows_times)
        MeanProblem.cols_times = self._timed(MeanProblem.cols_times)
        Pattern.sample = self._timed(Pattern.sample)
        timed = self._timed(times)
        for name, module in list(sys.modules.items()):  # wherever it was imported by name
            if name.startswith("mvgp.") and getattr(module, "times", None) is times:
                module.times = timed

    def _timed(self, function: Callable) -> Callable:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            self._depth += 1
            out = function(*arguments, **options)
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - began
            return out

        return call


def path(kind: str, share: float, points: int, max_rank: int, seconds: float, problem: dict) -> Callable[[], dict]:
    """Strengths from 1 to 1e-3, each certified to 1e-3, until one has more than ``max_rank`` ranks or time is up."""
    given = {"ranking": ranking, "regression": regression}[kind](**problem)
    top = largest(given, problem["observed"], problem["precision"], 1e-6)
    floor = Floor()

    @torch.no_grad()
    def run() -> dict:
        began, solution, found = time.perf_counter(), None, []
        floor.seconds = 0.0
        for k in range(points):
            strength = 1e-3 ** (k / (points - 1))
            penalty = SpectralElasticNet(strength * top, share)
            solution = solve_proximal(given, penalty, tolerance=1e-3, start=solution, max_iterations=400)
            proof, spent = solution.certificate, time.perf_counter() - began
            found.append(
                {
                    "strength": strength,
                    "rank": proof.rank,
                    "steps": proof.iterations,
                    "gap": proof.relative_gap,
                    "certified": proof.converged,
                    "seconds": spent,
                    "floor": floor.seconds,
                }
            )
            if spent > seconds or proof.rank > max_rank:
                break
        return {"points": found, "peak_gib": peak_gib()}

    return run


def cold(solver: str, kind: str, strength: float, problem: dict) -> Callable[[], dict]:
    """One strength from cold, trace norm alone, to 1e-3; ``solver`` "proximal" or "hybrid"."""
    given = {"ranking": ranking, "regression": regression}[kind](**problem)
    penalty = SpectralElasticNet(strength * largest(given, problem["observed"], problem["precision"], 1e-6), 1.0)

    @torch.no_grad()
    def run() -> dict:
        if solver == "proximal":
            found = solve_proximal(given, penalty, tolerance=1e-3)
        else:
            found = solve_hybrid(given, penalty, tolerance=1e-3, max_iterations=60, local_iterations=20)
        return {"gap": found.certificate.relative_gap, "rank": found.mean.rank}

    return run
