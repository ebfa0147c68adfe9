"""FullGP on whole lists of two real sets: what it costs, and how well it ranks held-out links.

``python -m benchmarks.full_whole_lists`` fits fold 0 of five (seed 0) with the kernels of the paper on both axes, every cell
observed with equal weight, and noise equal to the mean prior variance. ``omim`` reads ``../shared/data``, which is not part of
the repository.
"""

import argparse
import resource
import time
from pathlib import Path

import gpytorch

import mvgp
from mvgp.hyperparameters import split_pairs
from mvgp.kernels import DiffusionKernel
from mvgp.metrics import ranking_scores
from mvgp.prioritise.tables import hpo_links, read_links

PARTS = ("associations", "disease_edges", "gene_edges", "diseases", "genes")
OMIM = Path(__file__).parents[2] / "shared" / "data" / "omim_humannet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=["hpo", "omim"], help="hpo, omim")
    for name in parser.parse_args().sets:
        began = time.perf_counter()
        links = (
            hpo_links() if name == "hpo" else read_links(*(OMIM / f"{part}.tsv.gz" for part in PARTS), filters="paper")
        )
        split = split_pairs(links.links(), folds=5, seed=0)[0]
        kernels = [DiffusionKernel(graph, time=1.0, shift=1.0) for graph in (links.row_graph, links.col_graph)]
        read = time.perf_counter()
        variances = [kernel.operator().detach().diagonal().mean() for kernel in kernels]
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = float(variances[0] * variances[1])
        data = mvgp.PositiveUnlabelled(split.train.rows, split.train.cols, links.shape, 1.0, lists="all")
        start = time.perf_counter()
        posterior = mvgp.FullGP(mvgp.MatrixGP(*kernels), likelihood).fit(data)
        fitted = time.perf_counter()
        scores = ranking_scores(posterior, split.held_out, exclude=split.train)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name}: {links.shape[0]:,} x {links.shape[1]:,}, residual {posterior.solve_report.residual:.1e}")
        print(f"  reading {read - began:.1f} s, mean prior variance {start - read:.1f} s, fit {fitted - start:.1f} s")
        print(f"  in all {time.perf_counter() - began:.1f} s, most memory so far {memory:.1f} GiB")
        print(scores)


if __name__ == "__main__":
    main()
