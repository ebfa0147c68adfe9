"""P(in the top 20) of one row: a dense covariance of all its items against samples of the row, in one run.

``python -m benchmarks.top_probability`` fits three models to ``../shared/data/omim_humannet``, which is not part of the
repository: ``full`` (FullGP, one sampled negative for each link), ``whole`` (FullGP on whole lists) and ``trace`` (TraceGP on
whole lists, one strength). Kernels are those of the paper, time 1 and shift 1. The exact solution of a ranking takes
minutes, and says nothing about the time of P(top k): values are +1 and -1 under a Gaussian likelihood. Seconds of P(top k) are
processor time, set OMP_NUM_THREADS=1 for those of one core.
"""

import argparse
import os
import time
from pathlib import Path

import gpytorch
import torch

import mvgp
from mvgp.kernels import DiffusionKernel
from mvgp.prioritise.tables import read_links

PARTS = ("associations", "disease_edges", "gene_edges", "diseases", "genes")
OMIM = Path(__file__).parents[2] / "shared" / "data" / "omim_humannet"
NOISE = 0.1


def fit(name, links, weight):
    """A posterior of the model ``name``."""
    kernels = [DiffusionKernel(graph, time=1.0, shift=1.0) for graph in (links.row_graph, links.col_graph)]
    prior, likelihood = mvgp.MatrixGP(*kernels), gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    if name == "full":
        known, width = links.links(), links.shape[1]
        cells = known.rows * width + known.cols
        drawn = torch.randint(0, width, (len(cells),), generator=torch.Generator().manual_seed(0))
        others = torch.unique(known.rows * width + drawn)
        others = others[~torch.isin(others, cells)]
        values = torch.cat([torch.ones(len(cells)), -torch.ones(len(others))]).double()
        cells = torch.cat([cells, others])
        return mvgp.FullGP(prior, likelihood).fit(
            mvgp.ObservedMatrix(cells // width, cells % width, values, links.shape)
        )
    data = links.links(weight)
    if name == "whole":
        return mvgp.FullGP(prior, likelihood).fit(data)
    return mvgp.TraceGP(prior, likelihood, strength=0.3, trace_share=1.0).fit(data)


def timed(posterior, row, samples, seed, method):
    """Probabilities (N,) and seconds of processor time, which other work on the machine changes least."""
    start = time.process_time()
    found = posterior.top_probability(row, 20, num_samples=samples, seed=seed, method=method)
    return found, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["full", "whole", "trace"], help="full, whole, trace")
    parser.add_argument("--rows", type=int, default=2, help="rows, those with most links first")
    parser.add_argument(
        "--compare", type=int, default=0, help="samples of both ways for the difference, such as 20,000"
    )
    parser.add_argument("--weight", type=float, default=0.05, help="of an unlabelled cell, on whole lists")
    parser.add_argument("--no-joint", action="store_true", help="leave out the slow way")
    options = parser.parse_args()
    links = read_links(*(OMIM / f"{part}.tsv.gz" for part in PARTS))
    counts = torch.bincount(links.links().rows, minlength=links.shape[0])
    order = counts.argsort(descending=True, stable=True)
    rows = [int(order[at * (len(order) // 4)]) for at in range(options.rows)]
    for name in options.models:
        start = time.perf_counter()
        posterior = fit(name, links, options.weight)
        size = f"{links.shape[0]:,} x {links.shape[1]:,}"
        print(f"{name}: {size}, fit {time.perf_counter() - start:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        for row in rows:
            fast, seconds = timed(posterior, row, 1000, 0, "auto")
            again = timed(posterior, row, 1000, 1, "auto")[1]
            how = posterior.row_samples(row, 2, k=20)
            print(f"  row {row}, {int(counts[row])} links: {seconds:.2f} s, again {again:.2f} s; {how}")
            given = f"given {how.observations:,} observations, those left out take at most {how.left_out} of a variance"
            print(f"    largest P(top 20) {float(fast.max()):.3f}, dropped {how.dropped:.1g}, {given}", flush=True)
            if options.no_joint:
                continue
            slow, dense = timed(posterior, row, 1000, 0, "joint")
            print(f"    dense covariance of all items: {dense:.2f} s, {dense / again:.0f} times as long", flush=True)
            count = options.compare
            if count:
                fast, slow = (timed(posterior, row, count, seed, way)[0] for seed, way in ((1, "auto"), (2, "joint")))
            print(
                f"    largest difference {float((fast - slow).abs().max()):.4f} at {count or 1000:,} samples",
                flush=True,
            )


if __name__ == "__main__":
    main()
