"""Large axes: a trace-norm fit with a hundred thousand rows, the time of a step as T grows, a large grid, and the first answer of the command line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from torch import Tensor

import mvgp
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import LowRank, MeanProblem, SpectralElasticNet
from mvgp.mean.conjugate import conjugate_steps
from mvgp.mean.low_rank import Iterate, StepOperator, random_images, subspace_pass

from .defaults import botorch_settings
from .grid import latent_kronecker
from .problems import Grid, gaussian, grid, peak_gib

DEGREE, NOISE_STD = 6, 0.5
STEPS = 4


@dataclass(frozen=True)
class Large:
    """Cells of a planted matrix of low rank, smooth on random graphs; its entries have standard deviation 1."""

    kernels: list[DiffusionKernel]
    rows: Tensor
    cols: Tensor
    truth: Tensor
    values: Tensor  # with noise


def _kernels(shape: list[int], dtype: torch.dtype) -> list[DiffusionKernel]:
    def graph(size: int, seed: int) -> Graph:
        return Graph(np.random.default_rng(seed).integers(0, size, (DEGREE * size // 2, 2)), size)

    return [DiffusionKernel(graph(size, seed), dtype=dtype) for seed, size in enumerate(shape, 1)]


def _cells(shape: list[int], count: int) -> tuple[Tensor, Tensor]:
    """Distinct cells, row by row; no list of all cells is made."""
    rng = np.random.default_rng(0)
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        found = np.unique(np.concatenate([found, rng.integers(0, shape[0] * shape[1], count + count // 20)]))
    chosen = torch.from_numpy(np.sort(rng.permutation(found)[:count]))
    return chosen // shape[1], chosen % shape[1]


@torch.no_grad()
def _planted(shape: list[int], count: int, rank: int, dtype: torch.dtype) -> Large:
    kernels, (rows, cols) = _kernels(shape, dtype), _cells(shape, count)
    generator = torch.Generator().manual_seed(0)
    left, right = (
        kernel.operator()._matmul(torch.randn(size, rank, generator=generator).to(dtype))
        for kernel, size in zip(kernels, shape, strict=True)
    )
    truth = torch.cat([(left[r] * right[c]).sum(1) for r, c in zip(rows.split(2**18), cols.split(2**18), strict=True)])
    truth = truth / truth.std()
    noise = torch.randn(count, generator=generator).to(dtype)
    return Large(kernels, rows, cols, truth, truth + NOISE_STD * noise)


def trace_fit(
    shape: list[int], observed: int, rank: int, held_out: int, strength: float, tolerance: float, precision: str
) -> Callable[[], dict]:
    """From cold to a certificate, trace norm alone; the rank is the solver's. Errors on cells that were held out."""
    dtype, size = getattr(torch, precision), (shape[0], shape[1])
    problem = _planted(shape, observed + held_out, rank, dtype)
    apart = torch.randperm(observed + held_out, generator=torch.Generator().manual_seed(1)) < held_out
    seen = ~apart
    data = mvgp.ObservedMatrix(problem.rows[seen], problem.cols[seen], problem.values[seen], size)
    prior = mvgp.MatrixGP(*problem.kernels, dtype=dtype)
    likelihood = gaussian(NOISE_STD**2).to(dtype)
    model = mvgp.TraceGP(prior, likelihood, strength=strength, trace_share=1.0, tolerance=tolerance)
    before = peak_gib()

    def run() -> dict:
        began = time.perf_counter()
        posterior = model.fit(data)
        fitted = time.perf_counter() - began
        off = posterior.mean(problem.rows[apart], problem.cols[apart]) - problem.truth[apart]
        proof = posterior.certificate
        return {
            "fit": fitted,
            "gap": proof.relative_gap,
            "failure": proof.failure_probability,
            "rank": proof.rank,
            "steps": proof.iterations,
            "rmse": float(off.square().mean().sqrt()),
            "before_gib": before,
            "peak_gib": peak_gib(),
        }

    return run


def step(shape: list[int], observed: int, rank: int) -> Callable[[], dict]:
    """Conjugate-gradient steps on the factors, single precision; the sides and the rank stay as T grows."""
    with torch.no_grad():
        problem = _planted(shape, observed, rank, torch.float32)
        ops = [kernel.operator().detach() for kernel in problem.kernels]
        pattern = Pattern(problem.rows, problem.cols, (shape[0], shape[1]))
        given = MeanProblem(*ops, pattern, SquaredLoss(problem.values))
        theta = given.loss(torch.zeros(observed)).gradient
        found = subspace_pass(given, StepOperator(given, theta), random_images(given, rank, 0))
        mean = LowRank(-found.left, found.right, found.values, -found.left_image, found.right_image)
        now = Iterate.of(given, mean, found.right_image[:, :0], 0.1)
        penalty = SpectralElasticNet(0.2 * float(found.values[0]), 1.0)

    @torch.no_grad()
    def run() -> dict:
        conjugate_steps(given, penalty, now, found, steps=STEPS)
        return {"peak_gib": peak_gib()}

    return run


def _block(problem: Grid, count: int) -> tuple[Tensor, Tensor]:
    side = round(count**0.5)
    return problem.cells(side, side)


def grid_full(shape: list[int], count: int, accuracy: float) -> Callable[[], dict]:
    """Fit and the mean of all cells, then some variances to an accuracy, which is proved for each."""
    problem = grid(shape)

    def run() -> dict:
        began = time.perf_counter()
        posterior = mvgp.FullGP(problem.prior, gaussian()).fit(problem.data)
        mean = posterior.scores()
        fitted = time.perf_counter()
        variance = posterior.variance(*_block(problem, count), accuracy=accuracy)
        asked = time.perf_counter()
        residual = posterior.solve_report.residual
        return {
            "mean_seconds": fitted - began,
            "variance_seconds": asked - fitted,
            "residual": residual,
            "mean_norm": float(mean.norm()),
            "variance": variance.tolist(),
            "peak_gib": peak_gib(),
        }

    return run


def grid_botorch(shape: list[int], count: int) -> Callable[[], dict]:
    """BoTorch's model under its documented iterative settings; the block of variances is one posterior."""
    problem = grid(shape)
    side = round(count**0.5)

    def run() -> dict:
        began = time.perf_counter()
        with torch.no_grad(), botorch_settings(), latent_kronecker(problem).use_iterative_methods():
            with gpytorch.settings.skip_posterior_variances(True):
                latent_kronecker(problem).posterior(problem.x).mean.sum()
            fitted = time.perf_counter()
            rows, cols = problem.block(side, side)
            variance = latent_kronecker(problem).posterior(problem.x[rows], problem.t[cols]).variance.flatten()
        return {
            "mean_seconds": fitted - began,
            "variance_seconds": time.perf_counter() - fitted,
            "variance": variance.tolist(),
            "peak_gib": peak_gib(),
        }

    return run


def start_up(rounds: int) -> Callable[[], dict]:
    """Seconds of ``mvgp --help``, and of the imports that no command line of this kind can do without; the best of some."""
    start = "import sys; from mvgp.prioritise.cli import main; sys.argv[0] = 'mvgp'; sys.exit(main())"
    commands = {  # and the status that each ends with
        "help": ([sys.executable, "-c", start, "--help"], 0),
        "imports": ([sys.executable, "-c", "import typer, rich"], 0),
        "mistake": ([sys.executable, "-c", start, "rank", "--no-such-option"], 2),
    }

    def run() -> dict:
        found: dict[str, float] = {}
        for _ in range(rounds):
            for name, (command, status) in commands.items():
                began = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != status:
                    raise RuntimeError(f"{name}: ended with status {done.returncode}: {done.stderr[-300:]}")
                found[name] = min(found.get(name, float("inf")), time.perf_counter() - began)
        return found

    return run
