"""Issue 6: do learned diffusion times and kernel weights rank at least as well as time 1, shift 1?

On ``../shared/data/mesh_disgenet``, all 4,756 x 12,331 cells; whole lists, share 0.9, a paired test over the diseases of the held-out links.

few: 5 % of the links, as in the paper's small sets. For each fold, times, shifts, scale and noise are learned by the exact marginal likelihood of the
     training links, 1 among 0 in all 59 million cells (`learn_grid`); the strength is chosen on validation links for each kernel.
all: all links, one fold. Times and shifts by validation (`choose_kernels`), each of the four tried above and below; both kernels are then fitted along the
     same path to the strength that each has chosen on the validation links.

Usage: bench_learned_kernels.py [few | all] [number of folds of few, 2 when left out]
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import gpytorch
import torch
from bench_mesh import DATA, load
from common import verdict

import mvgp
from mvgp.hyperparameters import Split, choose, choose_kernels, learn_grid, split_pairs
from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.metrics import compare, ranking_scores
from mvgp.prioritise.tables import LinkSet

STRENGTHS = [0.7, 0.5, 0.35, 0.25, 0.18, 0.125]
SEARCH = {  # what is tried, beside 1
    "row_axis.kernel.time": (2.0, 0.5),
    "col_axis.kernel.time": (0.5, 2.0),
    "row_axis.kernel.shift": (0.5, 2.0),
    "col_axis.kernel.shift": (2.0, 0.5),
}
DTYPE = torch.float32
PLAIN, LEARNED = "time 1, shift 1", "learned"


def links() -> LinkSet:
    pairs, graphs = load()
    ids = [[str(node) for node in range(graph.num_nodes)] for graph in graphs]
    return LinkSet(*ids, pairs[:, 0], pairs[:, 1], *graphs)


def variance(prior: mvgp.MatrixGP) -> float:
    """The average prior variance of a cell."""
    with torch.no_grad():
        return float(prior.row_axis.covariance().diagonal().mean() * prior.col_axis.covariance().diagonal().mean())


def learned_prior(given: LinkSet, train: mvgp.PositiveUnlabelled) -> mvgp.MatrixGP:
    """Kernels outputscale * (exp(-time L) + shift I)."""
    rows, cols = (DiffusionKernel(graph, dtype=DTYPE) for graph in (given.row_graph, given.col_graph))
    prior = mvgp.MatrixGP(rows, gpytorch.kernels.ScaleKernel(cols), dtype=DTYPE)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-8))
    density = len(train) / (given.shape[0] * given.shape[1])  # the variance of the labels: where to begin
    prior.col_axis.kernel.outputscale = density / 8
    likelihood.noise = density / 2
    began = time.perf_counter()
    found = learn_grid(prior, likelihood, train, max_steps=40, tolerance=1e-2)
    values = ", ".join(f"{name} {float(value):.3g}" for name, value in found.parameters.items())
    print(
        f"learned in {time.perf_counter() - began:.0f} s, {found.evaluations} evaluations, gradient {found.gradient:.1e}: {values}",
        flush=True,
    )
    # the scale of labels says nothing about a ranking with margin 1: times and weights are taken, with the default's average variance
    with torch.no_grad():
        prior.col_axis.kernel.outputscale = (
            prior.col_axis.kernel.outputscale * variance(given.prior(dtype=DTYPE)) / variance(prior)
        )
    return prior


def ranking_model(prior: mvgp.MatrixGP, tolerance: float) -> mvgp.TraceGP:
    return mvgp.TraceGP(
        prior, BipartiteRankingLikelihood(margin=1.0, noise=0.1), tolerance=tolerance, max_iterations=200
    )


class Scores:
    """Of both kernels, fold by fold."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[torch.Tensor]]] = {}

    @torch.no_grad()
    def add(self, name: str, model: mvgp.TraceGP, split: Split, **options: Any) -> None:
        """Choose the strength within the training part, refit, and score the held-out links."""
        began = time.perf_counter()
        choice = choose(model, split.train, trace_shares=[0.9], patience=2, progress=False, **options)
        scores = ranking_scores(choice.refit(split.train), split.held_out, exclude=split.train)
        found = scores.summary(at=(100,))
        print(
            f"{name:16s} AUC {found['AUC']:.4f}  MAP@100 {found['MAP@100']:.4f}  R@100 {found['R@100']:.4f}  strength "
            f"{choice.chosen.strength}, validation MAP@100 {choice.chosen.mean:.4f}  {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        for metric in ("AUC", "MAP@100"):
            self.values.setdefault(metric, {}).setdefault(name, []).append(scores.per_task(metric))

    def told(self) -> bool:
        """Paired tests, and the verdict."""
        for metric, both in self.values.items():
            print(compare(torch.cat(both[LEARNED]), torch.cat(both[PLAIN]), metric))
        means = {name: float(torch.cat(parts).nanmean()) for name, parts in self.values["MAP@100"].items()}
        return verdict("MAP@100, learned less plain", means[LEARNED] - means[PLAIN], 0.0)


def few(folds: int) -> bool:
    given = links().subsample(0.05)
    print(given)
    scores = Scores()
    for fold, split in enumerate(split_pairs(given.links(), folds=5)[:folds]):
        print(f"fold {fold}")
        for name, prior in ((PLAIN, given.prior(dtype=DTYPE)), (LEARNED, learned_prior(given, split.train))):
            scores.add(name, ranking_model(prior, 5e-3), split, strengths=STRENGTHS, max_rank=500, seed=fold)
    return scores.told()


def every_link() -> bool:
    given = links()
    print(given, flush=True)
    split = split_pairs(given.links(), folds=5)[0]
    inner = split_pairs(split.train, share=0.1)
    start = ranking_model(given.prior(dtype=DTYPE), 1e-2)
    began = time.perf_counter()
    with torch.no_grad():
        path = {"trace_shares": [0.9], "strengths": [0.2, 0.08], "patience": 2}
        found = choose_kernels(start, split.train, SEARCH, sweeps=1, folds=inner, progress=False, **path)
    print(found.to_frame().to_string(float_format="{:.4f}".format))
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    path = {"strengths": [0.2, 0.08, 0.05, 0.035], "folds": inner}
    scores = Scores()
    scores.add(PLAIN, start, split, **path)
    if found.best is found.candidates[0]:
        print("no kernel has gained more than its standard error: the learned ones are those with time 1, shift 1")
        return verdict("MAP@100, learned less plain", 0.0, 0.0)
    scores.add(LEARNED, found.model, split, **path)
    return scores.told()


def main(what: str, folds: int) -> bool:
    warnings.simplefilter("ignore", RuntimeWarning)
    return every_link() if what == "all" else few(folds)


if __name__ == "__main__":
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        sys.exit(0)
    what, folds = (*sys.argv[1:], *("few", "2")[len(sys.argv) - 1 :])[:2]
    sys.exit(0 if main(what, int(folds)) else 1)
