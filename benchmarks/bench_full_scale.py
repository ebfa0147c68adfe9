"""(d) FullGP at 4,495 x 13,614 with 448,000 observations and graph kernels of 13,922 and 433,224 links."""

import sys
import time

import gpytorch
import torch
from common import peak_gib, power_law_graph, random_pairs, seconds, verdict

import mvgp
from mvgp.kernels import DiffusionKernel


def main() -> bool:
    shape, count = (4495, 13_614), 448_000
    row_graph, col_graph = power_law_graph(shape[0], 13_922, 1), power_law_graph(shape[1], 433_224, 2)
    rows, cols = random_pairs(shape, count, seed=3)
    cleared = True
    for dtype in (torch.float64, torch.float32):
        prior = mvgp.MatrixGP(DiffusionKernel(row_graph), DiffusionKernel(col_graph), dtype=dtype)
        torch.manual_seed(0)
        sample_time, truth = seconds(prior.sample)
        values = truth[rows, cols] + 0.1**0.5 * torch.randn(count, dtype=dtype)
        data = mvgp.ObservedMatrix(rows, cols, values, shape)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = 0.1
        start = time.perf_counter()
        posterior = mvgp.FullGP(prior, likelihood, tolerance=1e-5).fit(data)
        fit_time = time.perf_counter() - start
        row_time, scores = seconds(lambda p=posterior: p.scores([7]))
        fresh = torch.randint(shape[1], (20_000,)), torch.randint(shape[0], (20_000,))
        pair_time, means = seconds(lambda p=posterior, f=fresh: p.mean(f[1], f[0]))
        variance_time, variance = seconds(lambda p=posterior: p.variance([7] * 4, range(4)))
        error = (means - truth[fresh[1], fresh[0]]).square().mean().sqrt() / truth.std()
        print(
            f"{dtype}: exact sample {sample_time:.1f} s, fit {fit_time:.1f} s, one row {row_time:.2f} s, "
            f"20,000 means {pair_time:.1f} s, 4 variances {variance_time:.1f} s; {posterior.solve_report}"
        )
        plan = posterior.conditional.solver.op.plan
        print(f"  plan {plan}; relative RMSE of unseen cells {error:.3f}; mean variance {variance.mean():.3f}")
        print(f"  scores finite: {bool(torch.isfinite(scores).all())}; peak memory so far {peak_gib():.2f} GiB")
        cleared &= verdict(
            "correct digits of the residual", -torch.tensor(posterior.solve_report.residual).log10().item(), 5
        )
        cleared &= verdict("GiB below the limit of 6", 6 - peak_gib(), 0)
        del truth, posterior, scores
    return cleared


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
