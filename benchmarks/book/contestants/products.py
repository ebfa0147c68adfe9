"""Products that everything else is made of: with a graph kernel, with the covariance of observed pairs, solves with it, and the machine's own rates."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import numpy as np
import torch
from linear_operator.operators import KroneckerProductLinearOperator, MaskedLinearOperator
from scipy.sparse.linalg import LinearOperator, minres
from torch import Tensor

import mvgp
from mvgp.kernels import DiffusionKernel
from mvgp.linalg import PairIndex, PairLinearOperator, cost
from mvgp.linalg.pairs import BLOCK, NARROW, Pattern

from .problems import NOISE, gaussian, grid, power_law_graph, random_pairs

CHECKED = 200  # entries that are compared
BLOCK_ASKED = (10, 10)  # cells whose means are compared


def _graph_problem(nodes: int, links: int, columns: int, precision: str) -> tuple[DiffusionKernel, Tensor]:
    dtype = getattr(torch, precision)
    kernel = DiffusionKernel(power_law_graph(nodes, links, seed=0), dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    return kernel, torch.randn(nodes, columns, dtype=dtype, generator=generator)


def chebyshev(nodes: int, links: int, columns: int, precision: str) -> Callable[[], dict]:
    """A polynomial of the Laplacian."""
    kernel, right = _graph_problem(nodes, links, columns, precision)
    op = kernel.operator().detach()

    @torch.no_grad()
    def run() -> dict:
        return {"entries": op._matmul(right)[:CHECKED, 0].tolist()}

    return run


def dense_kernel(nodes: int, links: int, columns: int, precision: str) -> Callable[[], dict]:
    """The same kernel as a dense matrix, which is formed before the clock starts."""
    kernel, right = _graph_problem(nodes, links, columns, precision)
    with torch.no_grad():
        dense = kernel.operator().to_dense()

    def run() -> dict:
        return {"entries": (dense @ right)[:CHECKED, 0].tolist()}

    return run


def _pair_problem(shape: list[int], observed: int) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    points = [torch.randn(size, 3, dtype=torch.float64, generator=generator) for size in shape]
    rows, cols = random_pairs((shape[0], shape[1]), observed, seed=1)
    right = torch.randn(observed, 1, dtype=torch.float64, generator=generator)
    return [torch.exp(-torch.cdist(x, x)) for x in points], rows, cols, right


def pair_operator(shape: list[int], observed: int) -> Callable[[], dict]:
    kernels, rows, cols, right = _pair_problem(shape, observed)
    op = PairLinearOperator(*kernels, PairIndex(rows, cols, (shape[0], shape[1])))
    with torch.no_grad():
        op._matmul(right)  # chooses its plan

    @torch.no_grad()
    def run() -> dict:
        return {"entries": op._matmul(right)[:CHECKED, 0].tolist(), "expected_seconds": op.plan.seconds}

    return run


def masked_kronecker(shape: list[int], observed: int) -> Callable[[], dict]:
    """linear_operator's own: the product on the whole grid, then the observed part of it."""
    kernels, rows, cols, right = _pair_problem(shape, observed)
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[rows, cols] = True
    op = MaskedLinearOperator(KroneckerProductLinearOperator(*kernels), mask.flatten(), mask.flatten())

    @torch.no_grad()
    def run() -> dict:
        return {"entries": op._matmul(right)[:CHECKED, 0].tolist()}

    return run


def rates(size: int, nodes: int, links: int, shape: list[int], observed: int, rank: int) -> Callable[[], dict]:
    """Multiply-adds a second of each basic operation, and what the cost model has for it."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    square, vector, some = random(size, size), random(size, 1), torch.randperm(size, generator=generator)
    laplacian = power_law_graph(nodes, links, 0).shifted_laplacian(torch.float64, torch.device("cpu"))
    narrow, wide = random(nodes, NARROW), random(shape[1], BLOCK)
    pattern = Pattern(*random_pairs((shape[0], shape[1]), observed, 0), (shape[0], shape[1]))
    left, right, sparse = random(shape[0], rank), random(shape[1], rank), pattern.matrix(random(observed))
    work = {
        "GEMM": (size**3, lambda: square @ square),
        "GEMV": (size**2, lambda: square @ vector),
        "SPARSE (graph)": (laplacian.nnz * NARROW, lambda: laplacian @ narrow),
        "SPARSE (pairs)": (observed * BLOCK, lambda: sparse @ wide),
        "SAMPLED": (observed * rank, lambda: pattern.sample(left, right)),
        "MOVE": (size**2, lambda: square[some][:, some]),
    }

    def run() -> dict:
        best = dict.fromkeys(work, float("inf"))
        for _ in range(7):  # in turns
            for name, (_, call) in work.items():
                began = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - began)
        return {
            name: {"found": count / best[name], "assumed": getattr(cost, name.split()[0])}
            for name, (count, _) in work.items()
        }

    return run


def full_gp_mean(shape: list[int], lengthscale: float, residual: float) -> Callable[[], dict]:
    """Preconditioned conjugate gradients, as in ``FullGP``: fit, and the mean of 100 cells."""
    problem = grid(shape, lengthscale=lengthscale)
    model = mvgp.FullGP(problem.prior, gaussian(), tolerance=residual)

    def run() -> dict:
        posterior = model.fit(problem.data)
        return {
            "entries": posterior.mean(*problem.cells(*BLOCK_ASKED)).tolist(),
            "steps": posterior.solve_report.iterations,
        }

    return run


def minres_mean(shape: list[int], lengthscale: float, residual: float) -> Callable[[], dict]:
    """Scipy's MINRES on the same product, without a preconditioner; its residual is looked at every 20 steps."""
    problem = grid(shape, lengthscale=lengthscale)
    data, asked, steps = problem.data, problem.prior.pairs(*problem.cells(*BLOCK_ASKED)), 0

    class Enough(Exception):
        pass

    @torch.no_grad()
    def run() -> dict:
        nonlocal steps
        steps = 0
        ops = problem.prior.row_axis.covariance(), problem.prior.col_axis.covariance()
        pairs = PairIndex(data.rows, data.cols, data.shape)
        op, right, best = PairLinearOperator(*ops, pairs), data.values.numpy(), np.zeros(len(data))

        def product(vector: np.ndarray) -> np.ndarray:
            column = torch.from_numpy(vector).reshape(-1, 1)
            return (op._matmul(column) + NOISE * column).numpy().ravel()

        def look(estimate: np.ndarray) -> None:
            nonlocal steps, best
            steps, best = steps + 1, estimate
            if steps % 20 == 0 and np.linalg.norm(right - product(estimate)) <= residual * np.linalg.norm(right):
                raise Enough

        with contextlib.suppress(Enough):
            whole = LinearOperator((len(data), len(data)), matvec=product, dtype=float)
            minres(whole, right, rtol=1e-15, maxiter=20_000, callback=look)
        mean = PairLinearOperator(*ops, asked, pairs)._matmul(torch.from_numpy(best).reshape(-1, 1))
        return {"entries": mean.ravel().tolist(), "steps": steps}

    return run
