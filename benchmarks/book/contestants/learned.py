"""Kernels of a ranker: time 1 and shift 1, learned from the links by the marginal likelihood, or chosen by validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import gpytorch
import torch

import mvgp
from mvgp.hyperparameters import Split, choose, choose_kernels, learn_grid, split_pairs
from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.metrics import ranking_scores
from mvgp.prioritise.tables import LinkSet

from .ranking import synthetic
from .shared_data import mesh_links

DTYPE = torch.float32
METRICS = ("AUC", "MAP@100")
SEARCH = {  # what is tried, beside 1
    "row_axis.kernel.time": (2.0, 0.5),
    "col_axis.kernel.time": (0.5, 2.0),
    "row_axis.kernel.shift": (0.5, 2.0),
    "col_axis.kernel.shift": (2.0, 0.5),
}


def _links(source: str, share: float) -> LinkSet:
    warnings.simplefilter("ignore", RuntimeWarning)  # a point that misses its tolerance is no better for it
    given = synthetic() if source == "synthetic" else mesh_links()[0]
    return given.subsample(share) if share < 1 else given


def _variance(prior: mvgp.MatrixGP) -> float:
    """The average prior variance of a cell."""
    with torch.no_grad():
        return float(prior.row_axis.covariance().diagonal().mean() * prior.col_axis.covariance().diagonal().mean())


def _learned_prior(given: LinkSet, train: mvgp.PositiveUnlabelled, steps: int) -> tuple[mvgp.MatrixGP, dict]:
    """Times and shifts by the exact marginal likelihood of the links, 1 among 0 in all cells.

    The scale of labels says nothing about a ranking with margin 1: times and weights are taken, with the default's average variance.
    """
    rows, cols = (DiffusionKernel(graph, dtype=DTYPE) for graph in (given.row_graph, given.col_graph))
    prior = mvgp.MatrixGP(rows, gpytorch.kernels.ScaleKernel(cols), dtype=DTYPE)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-8))
    density = len(train) / (given.shape[0] * given.shape[1])  # the variance of the labels: where to begin
    prior.col_axis.kernel.outputscale = density / 8
    likelihood.noise = density / 2
    found = learn_grid(prior, likelihood, train, max_steps=steps, tolerance=1e-2)
    with torch.no_grad():
        ratio = _variance(given.prior(dtype=DTYPE)) / _variance(prior)
        prior.col_axis.kernel.outputscale = prior.col_axis.kernel.outputscale * ratio
    return prior, {name: float(value) for name, value in found.parameters.items()}


def _model(prior: mvgp.MatrixGP, tolerance: float) -> mvgp.TraceGP:
    likelihood = BipartiteRankingLikelihood(margin=1.0, noise=0.1)
    return mvgp.TraceGP(prior, likelihood, tolerance=tolerance, max_iterations=200)


@torch.no_grad()
def _scored(model: mvgp.TraceGP, split: Split, **options: Any) -> dict:
    """Strength chosen within the training part, refitted, and the held-out links scored."""
    choice = choose(model, split.train, trace_shares=[0.9], patience=2, progress=False, **options)
    scores = ranking_scores(choice.refit(split.train), split.held_out, exclude=split.train)
    return {
        "strength": choice.chosen.strength,
        "validation": float(choice.chosen.mean),
        "per_task": {name: scores.per_task(name).tolist() for name in METRICS},
    }


def fold(source: str, share: float, fold: int, learned: bool, strengths: list[float], steps: int) -> Callable[[], dict]:
    """One fold of five of a part of the links."""
    given = _links(source, share)
    split = split_pairs(given.links(), folds=5)[fold]

    def run() -> dict:
        began = time.perf_counter()
        prior, parameters = _learned_prior(given, split.train, steps) if learned else (given.prior(dtype=DTYPE), {})
        spent = time.perf_counter() - began
        found = _scored(_model(prior, 5e-3), split, strengths=strengths, max_rank=500, seed=fold)
        return {**found, "parameters": parameters, "learn_seconds": spent}

    return run


def by_validation(source: str, strengths: list[float], offered: list[float]) -> Callable[[], dict]:
    """All links, one fold: each time and shift is tried below and above 1; then both kernels with a strength of their own."""
    given = _links(source, 1.0)
    split = split_pairs(given.links(), folds=5)[0]
    inner = split_pairs(split.train, share=0.1)
    start = _model(given.prior(dtype=DTYPE), 1e-2)

    def run() -> dict:
        began = time.perf_counter()
        with torch.no_grad():
            options: dict[str, Any] = {"trace_shares": [0.9], "strengths": strengths, "patience": 2, "progress": False}
            found = choose_kernels(start, split.train, SEARCH, sweeps=1, folds=inner, **options)
        spent, same = time.perf_counter() - began, found.best is found.candidates[0]
        plain = _scored(start, split, strengths=offered, folds=inner)
        chosen = plain if same else _scored(found.model, split, strengths=offered, folds=inner)
        table = found.to_frame().to_string(float_format="{:.4f}".format)
        return {"search_seconds": spent, "same": same, "plain": plain, "chosen": chosen, "candidates": table}

    return run
