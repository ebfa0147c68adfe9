"""Issue 6: do learned diffusion times and kernel weights rank at least as well as time 1, shift 1?

On ``../shared/data/mesh_disgenet`` with 5 % of the links, as in the paper's small sets (all 4,756 x 12,331 cells). For each fold, times, shifts,
scale and noise are learned by the exact marginal likelihood of the training links, 1 among 0 in all 59 million cells (`learn_grid`).
Then `TraceGP` on whole lists (share 0.9, strength chosen on validation links for each kernel) is fitted with both kernels, and both are scored on
the held-out links, with a paired test over the diseases of all folds.

Usage: bench_learned_kernels.py [number of folds, 2 when left out]
"""

from __future__ import annotations

import sys
import time
import warnings

import gpytorch
import torch
from bench_mesh import DATA, load
from common import verdict

import mvgp
from mvgp.datasets import LinkSet
from mvgp.evidence import learn_grid
from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.metrics import compare, ranking_scores
from mvgp.selection import choose, split_pairs

STRENGTHS = [0.7, 0.5, 0.35, 0.25, 0.18, 0.125]
DTYPE = torch.float32


def links() -> LinkSet:
    pairs, graphs = load()
    ids = [[str(node) for node in range(graph.num_nodes)] for graph in graphs]
    return LinkSet(*ids, pairs[:, 0], pairs[:, 1], *graphs).subsample(0.05)


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


def main(folds: int) -> bool:
    warnings.simplefilter("ignore", RuntimeWarning)
    given = links()
    print(given)
    values: dict[str, dict[str, list[torch.Tensor]]] = {}
    for fold, split in enumerate(split_pairs(given.links(), folds=5)[:folds]):
        priors = {"time 1, shift 1": given.prior(dtype=DTYPE), "learned": learned_prior(given, split.train)}
        for name, prior in priors.items():
            began = time.perf_counter()
            with torch.no_grad():
                likelihood = BipartiteRankingLikelihood(margin=1.0, noise=0.1)
                model = mvgp.TraceGP(prior, likelihood, tolerance=5e-3, max_iterations=200)
                options = {"trace_shares": [0.9], "strengths": STRENGTHS, "patience": 2, "max_rank": 500}
                choice = choose(model, split.train, seed=fold, progress=False, **options)
                scores = ranking_scores(choice.refit(split.train), split.held_out, exclude=split.train)
            found = scores.summary(at=(100,))
            print(
                f"fold {fold}, {name:16s} AUC {found['AUC']:.4f}  MAP@100 {found['MAP@100']:.4f}  R@100 {found['R@100']:.4f}  "
                f"strength {choice.chosen.strength}, validation MAP@100 {choice.chosen.mean:.4f}  {time.perf_counter() - began:.0f} s",
                flush=True,
            )
            for metric in ("AUC", "MAP@100"):
                values.setdefault(metric, {}).setdefault(name, []).append(scores.per_task(metric))
    for metric, both in values.items():
        print(compare(torch.cat(both["learned"]), torch.cat(both["time 1, shift 1"]), metric))
    means = {name: float(torch.cat(parts).nanmean()) for name, parts in values["MAP@100"].items()}
    return verdict("MAP@100, learned less plain", means["learned"] - means["time 1, shift 1"], 0.0)


if __name__ == "__main__":
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        sys.exit(0)
    sys.exit(0 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 2) else 1)
