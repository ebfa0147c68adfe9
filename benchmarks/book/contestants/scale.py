"""The size of real problems: fits of all pairs, and variances, each checked by plain conjugate gradients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mvgp
from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.linalg import PairIndex, PairLinearOperator
from mvgp.linalg.conjugate_gradients import quadratic_form

from .problems import NOISE, gaussian, peak_gib, power_law_graph, random_pairs
from .shared_data import omim_problem

WEIGHT = 0.05  # of an unlabelled cell


def _prior(shape: list[int], links: list[int], dtype: torch.dtype = torch.float64) -> mvgp.MatrixGP:
    graphs = [power_law_graph(n, e, seed) for seed, (n, e) in enumerate(zip(shape, links, strict=True), 1)]
    return mvgp.MatrixGP(*(DiffusionKernel(graph, dtype=dtype) for graph in graphs), dtype=dtype)


def full_gp(shape: list[int], links: list[int], observed: int, precision: str, asked: int) -> Callable[[], dict]:
    """A sample of the prior, observed with noise; the floor is the time of the products with the covariance that its steps need."""
    dtype, size = getattr(torch, precision), (shape[0], shape[1])
    prior, (rows, cols) = _prior(shape, links, dtype), random_pairs(size, observed, seed=3)
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(0)
    truth = prior.sample(generator)
    sampled = time.perf_counter() - began
    values = truth[rows, cols] + NOISE**0.5 * torch.randn(observed, dtype=dtype, generator=generator)
    data, model = mvgp.ObservedMatrix(rows, cols, values, size), mvgp.FullGP(prior, gaussian(), tolerance=1e-5)

    with torch.no_grad():
        ops = prior.row_axis.covariance(), prior.col_axis.covariance()

    @torch.no_grad()
    def run() -> dict:
        seconds = {"sample": sampled}
        began = time.perf_counter()
        posterior = model.fit(data)
        seconds["fit"] = time.perf_counter() - began
        seconds["scores"], _ = _timed(lambda: posterior.scores([0]))
        at = [torch.randint(n, (asked,), generator=generator) for n in shape]
        seconds["means"], means = _timed(lambda: posterior.mean(*at))
        seconds["variances"], _ = _timed(lambda: posterior.variance([0] * 4, range(4)))
        peak, report = peak_gib(), posterior.solve_report
        covariance = PairLinearOperator(*ops, PairIndex(rows, cols, size))
        covariance._matmul(values.unsqueeze(1))  # chooses its plan
        product, _ = _timed(lambda: covariance._matmul(values.unsqueeze(1)))
        off = float((means - truth[at[0], at[1]]).square().mean().sqrt() / truth.std())
        return {
            **seconds,
            "floor": product * (report.iterations + 1),
            "iterations": report.iterations,
            "residual": report.residual,
            "relative_rmse": off,
            "peak_gib": peak,
        }

    return run


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def _omim(quick: bool) -> tuple[mvgp.MatrixGP, mvgp.ObservedMatrix]:
    if not quick:
        return omim_problem()
    rows, cols = random_pairs((30, 40), 200, seed=0)
    return _prior([30, 40], [60, 80]), mvgp.ObservedMatrix(rows, cols, (-1.0) ** torch.arange(200.0).double(), (30, 40))


def one_row(quick: bool) -> Callable[[], dict]:
    """Every variance of one disease of OMIM, exact; ten of them by conjugate gradients."""
    prior, data = _omim(quick)
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    row = int(data.rows[0])

    def run() -> dict:
        seconds, found = _timed(lambda: posterior.variances([row]))
        some = torch.arange(10) * (data.shape[1] // 10)
        return {
            "cells": data.shape[1],
            **_checked(posterior, seconds, found.values[0, some], torch.full((10,), row), some),
        }

    return run


def every_cell(quick: bool, checked: int) -> Callable[[], dict]:
    """Every variance of OMIM with its error bar; random cells, and cells right beside observed ones, are computed exactly."""
    prior, data = _omim(quick)
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    m, n = data.shape

    @torch.no_grad()
    def run() -> dict:
        seconds, every = _timed(lambda: posterior.variances(accuracy=0.05))
        peak = peak_gib()
        cells = torch.from_numpy(np.random.default_rng(1).choice(m * n, checked, replace=False))
        near = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:checked]
        alike = prior.row_axis.covariance().to_dense().fill_diagonal_(0.0)[data.rows[near]].argmax(1)
        off = [
            (every.std[rows, cols] / posterior.variance(rows, cols).sqrt() - 1).abs()
            for rows, cols in ((cells // n, cells % n), (alike, data.cols[near]))
        ]
        return {
            "cells": m * n,
            "seconds": seconds,
            "peak_gib": peak,
            "off": float(off[0].quantile(0.95)),
            "off_near": float(off[1].quantile(0.95)),
            "within": float((off[0] <= 0.05).double().mean()),
            "probes": every.probes,
        }

    return run


def top(quick: bool) -> Callable[[], dict]:
    """The best genes of one disease with P(in the top 20) and intervals of ranks, from joint samples."""
    prior, data = _omim(quick)
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)

    def run() -> dict:
        seconds, _ = _timed(lambda: posterior.top(int(data.rows[0]), exclude=data))
        return {"cells": data.shape[1], "seconds": seconds, "peak_gib": peak_gib()}

    return run


def best_of_a_row(shape: list[int], links: list[int], observed: int, asked: int) -> Callable[[], dict]:
    """Variances to 1 % of the best columns of one row; every tenth by conjugate gradients."""
    size = (shape[0], shape[1])
    rows, cols = random_pairs(size, observed, seed=0)
    values = torch.randn(observed, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = mvgp.ObservedMatrix(rows, cols, values, size)
    posterior = mvgp.FullGP(_prior(shape, links), gaussian(), tolerance=1e-6).fit(data)
    row = int(rows[observed // 3])

    @torch.no_grad()
    def run() -> dict:
        best = posterior.scores([row])[0].topk(asked).indices
        at = torch.full_like(best, row)
        seconds, found = _timed(lambda: posterior.variance(at, best, accuracy=0.01))
        return {"cells": asked, **_checked(posterior, seconds, found[::10], at[::10], best[::10])}

    return run


def _checked(posterior: Any, seconds: float, found: Tensor, rows: Tensor, cols: Tensor) -> dict:
    """The largest relative difference from conjugate gradients, and what those need for a cell."""
    peak = peak_gib()
    spent, exact = _timed(lambda: posterior.variance(rows, cols, method="cg"))
    off = float(((found - exact) / exact).abs().max())
    return {"seconds": seconds, "peak_gib": peak, "off": off, "peer_seconds": spent / len(rows)}


def whole_lists(shape: list[int], links: list[int], listed: int, observed: int, asked: int) -> Callable[[], dict]:
    """Variances to 1 % where every cell of ``listed`` rows is observed with one of two weights; two by conjugate gradients on all cells."""
    rows, cols = random_pairs((listed, shape[1]), observed, seed=0)
    data = mvgp.PositiveUnlabelled(rows, cols, shape=(shape[0], shape[1]), weight=WEIGHT)
    prior = _prior(shape, links, torch.float32)
    model = mvgp.TraceGP(prior, BipartiteRankingLikelihood(noise=0.1), strength=0.9, trace_share=1.0, tolerance=1e-2)
    posterior = model.fit(data)
    row, some = int(rows[7]), torch.arange(asked) * (shape[1] // asked)

    @torch.no_grad()
    def run() -> dict:
        seconds, _ = _timed(lambda: posterior.variance(torch.full_like(some, row), some))
        peak, cells = peak_gib(), [int(cols[7]), int(some[asked // 2])]
        ours = posterior.variance([row] * 2, cells)
        spent, exact = _timed(lambda: torch.tensor([_on_all_cells(posterior, data, row, col) for col in cells]))
        return {
            "cells": asked,
            "seconds": seconds,
            "peak_gib": peak,
            "off": float(((ours - exact) / exact).abs().max()),
            "peer_seconds": spent / 2,
        }

    return run


def _on_all_cells(posterior: Any, links: mvgp.PositiveUnlabelled, row: int, col: int) -> float:
    """The variance of one cell by conjugate gradients on every observed cell."""
    row_op, col_op = posterior.conditional.terms[0]
    listed, noise = links.pattern.chosen, float(posterior.conditional.noise.min())
    block, width = row_op.to_dense()[listed][:, listed], links.shape[1]
    variance = torch.full((len(listed), width), noise / links.weight)
    variance.view(-1)[links.positions] = noise
    picked = [
        torch.zeros(op.shape[-1], 1).index_fill_(0, torch.tensor([at]), 1.0)
        for op, at in ((row_op, row), (col_op, col))
    ]
    k_row, k_col = row_op._matmul(picked[0])[:, 0], col_op._matmul(picked[1])[:, 0]

    def times(x: Tensor) -> Tensor:
        grid = x.view(len(listed), width)
        return (col_op._matmul((block @ grid).mT).mT + variance * grid).reshape(-1, 1)

    right, lowest = torch.outer(k_row[listed], k_col).reshape(-1, 1), posterior.conditional.lowest_eigenvalue
    form = quadratic_form(times, right, lowest_eigenvalue=lowest, allowed=lambda which, low: 1e-4 * low)
    return float(k_row[row] * k_col[col] - (form.lower + form.upper) / 2)
