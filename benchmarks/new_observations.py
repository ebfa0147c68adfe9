r"""New observations beside a refit: how many times faster ``posterior.condition`` is, on a partly observed grid.

``python -m benchmarks.new_observations`` prints a line for each problem: the best of several runs of both, in one process, and how far
the two posteriors are apart. The variance of some cells is asked of both in the lines that say so; a refit factors
:math:`K_{TT} + D` for it, an update extends the factor that is there.

Each line has the products with :math:`K_{TT}` that both took. Under a well-conditioned kernel (a graph's) a refit is 8 to 10 of them. An update begins
with a residual at the new pairs alone, about :math:`\sqrt{10 / 10{,}000}` of the whole, and each product gains a factor of 6 to 10 towards 1e-8: 4 to 7 are left.
Woodbury's identity needs as many, with a column for each new pair. What is saved beyond them is the evaluation of kernels and preconditioner.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gpytorch
import torch

import mvgp
from mvgp.kernels import DiffusionKernel, Graph

OBSERVED, NEW, RUNS = 10_000, 10, 5
PROBLEMS = [("rbf", 200, 1000), ("rbf", 500, 2000), ("graph", 200, 300), ("graph", 1000, 3000)]


def make_prior(kind: str, shape: tuple[int, int]) -> mvgp.MatrixGP:
    """Smooth kernels on the unit square, or diffusion kernels on random graphs with 4 links for each node."""
    generator = torch.Generator().manual_seed(0)
    if kind == "graph":
        graphs = [Graph(torch.randint(0, size, (4 * size, 2), generator=generator), size) for size in shape]
        return mvgp.MatrixGP(*map(DiffusionKernel, graphs))
    kernels = [gpytorch.kernels.RBFKernel() for _ in shape]
    for kernel in kernels:
        kernel.lengthscale = 0.3
    return mvgp.MatrixGP(*kernels, *(torch.rand(size, 2, generator=generator).double() for size in shape))


def best(run: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Seconds of the fastest run, and what it gave."""
    seconds, result = float("inf"), None
    for _ in range(runs):
        start = time.perf_counter()
        result = run()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, result


def main() -> None:
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    asked = torch.arange(100), torch.arange(100)
    print(f"{OBSERVED:,} observed pairs, {NEW} new ones, method auto, {torch.get_num_threads()} threads")
    for kind, *shape in PROBLEMS:
        model = mvgp.FullGP(make_prior(kind, (shape[0], shape[1])), likelihood)
        generator = torch.Generator().manual_seed(1)
        cells = torch.randperm(shape[0] * shape[1], generator=generator)[: OBSERVED + NEW]
        values = torch.randn(len(cells), generator=generator).double()

        def data(which: slice, cells: Any = cells, values: Any = values, shape: Any = tuple(shape)) -> Any:
            return mvgp.ObservedMatrix(cells[which] // shape[1], cells[which] % shape[1], values[which], shape)

        everything, more, gone = data(slice(None)), data(slice(OBSERVED, None)), data(slice(NEW))
        posterior = model.fit(data(slice(OBSERVED)))
        fresh, expected = best(lambda: model.fit(everything), RUNS)  # noqa: B023
        quick, found = best(lambda: posterior.condition(more), RUNS)  # noqa: B023
        less, _ = best(lambda: posterior.retract(gone), RUNS)  # noqa: B023
        apart = float((found.scores() - expected.scores()).abs().max())
        line = f"{kind:5} {shape[0]:4} x {shape[1]:4}, mean: refit {fresh:.3f} s, condition {quick:.3f} s"
        line += f", {fresh / quick:.1f} times; retract {less:.3f} s, {fresh / less:.1f} times; apart {apart:.1e}"
        print(f"{line}; {expected.solve_report.iterations} and {found.solve_report.iterations} products")
    posterior.variance(*asked, method="cholesky")  # the last problem
    quick, found = best(lambda: posterior.condition(more).variance(*asked), 2)
    fresh, expected = best(lambda: model.fit(everything).variance(*asked, method="cholesky"), 1)
    apart = float((found - expected).abs().max())
    line = f"{kind:5} {shape[0]:4} x {shape[1]:4}, variances by a factor: refit {fresh:.3f} s, condition {quick:.3f} s"
    print(f"{line}, {fresh / quick:.1f} times; apart {apart:.1e}")


if __name__ == "__main__":
    main()
