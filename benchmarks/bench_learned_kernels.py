"""Issue 6: do learned diffusion times and kernel weights rank at least as well as time 1, shift 1?

On ``../shared/data/mesh_disgenet``, the split of ``bench_mesh.py``. Hyperparameters are learned by the marginal likelihood of labels +-1
on a part of the training pairs: ROWS diseases, at most PAIRS of their pairs, as many negatives within the same diseases. Then
`TraceGP` (sampled 1:1, share 0.8, strength chosen on validation pairs for each kernel) is fitted with both, and both are
scored on the test pairs, with a paired test over diseases.
"""

from __future__ import annotations

import sys
import time
import warnings

import gpytorch
import numpy as np
import torch
from bench_mesh import DATA, DTYPE, Task
from common import verdict

import mvgp
from mvgp.evidence import learn
from mvgp.kernels import DiffusionKernel
from mvgp.metrics import compare, ranking_scores

ROWS, PAIRS = 150, 1200
STRENGTHS = [0.5, 0.3, 0.2, 0.14, 0.1, 0.07]


def learned_prior(task: Task) -> mvgp.MatrixGP:
    """Kernels outputscale * (exp(-time L) + shift I), learned on a part of the training pairs."""
    rng = np.random.default_rng(0)
    diseases = rng.permutation(np.unique(task.train[:, 0]))[:ROWS]
    pairs = task.train[np.isin(task.train[:, 0], diseases)]
    pairs = pairs[rng.permutation(len(pairs))[:PAIRS]]
    known = task.keys(task.train)
    drawn = pairs[:, 0] * task.shape[1] + rng.integers(task.shape[1], size=len(pairs))
    drawn = np.unique(drawn[~np.isin(drawn, np.fromiter(known, dtype=np.int64))])
    labels = np.concatenate([np.ones(len(pairs)), -np.ones(len(drawn))])
    data = mvgp.ObservedMatrix(
        np.concatenate([pairs[:, 0], drawn // task.shape[1]]),
        np.concatenate([pairs[:, 1], drawn % task.shape[1]]),
        labels,
        shape=task.shape,
    )
    kernels = [DiffusionKernel(graph) for graph in task.graphs]
    prior = mvgp.MatrixGP(kernels[0], gpytorch.kernels.ScaleKernel(kernels[1]))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    began = time.perf_counter()
    found = learn(prior, likelihood, data, max_steps=20, tolerance=0.05, errors=False, progress=True)
    print(
        f"learned on {len(data)} pairs of {ROWS} diseases in {time.perf_counter() - began:.0f} s, {found.evaluations} evaluations\n{found}"
    )
    return prior.to(DTYPE)


@torch.no_grad()
def main() -> bool:
    warnings.simplefilter("ignore", RuntimeWarning)
    task = Task()
    with torch.enable_grad():
        priors = {"time 1, shift 1": task.prior, "learned": learned_prior(task)}
    scores = {}
    for name, prior in priors.items():
        task.prior, began = prior, time.perf_counter()
        model, seen = task.along(0.8, task.sampled, STRENGTHS, 1e-2)
        until = max(seen, key=lambda found: found[1]["MAP@100"])[0]
        posterior = task.refit(model, task.sampled, STRENGTHS, until)
        task.report(name, posterior, began, f"strength {until}, rank {posterior.rank}")
        scores[name] = ranking_scores(
            posterior, (task.test[:, 0], task.test[:, 1]), exclude=(task.train[:, 0], task.train[:, 1])
        )
    plain, learned = (scores[name].summary(at=(100,))["MAP@100"] for name in priors)
    print(compare(*(scores[name] for name in priors)))
    return verdict("MAP@100, learned less plain", learned - plain, 0.0)


if __name__ == "__main__":
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        sys.exit(0)
    sys.exit(0 if main() else 1)
