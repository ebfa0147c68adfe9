"""Issue 3 (b), (c): the mean at the paper's scale, 4,495 x 13,614 with 448,000 pairs, single precision.

(c) A path of 30 strengths from 1 to 1e-3, every point certified to 1e-3: time, peak memory, ranks, and the time as a
multiple of the floor, which is what the kernel products, the sampled products and the sparse products
took by themselves. With ``--share 0.8`` up to rank 500. (b) `proximal` against `hybrid` at one strength.

``ranking``, the paper's problem: lists of power-law length, the upper half of each by planted scores plus noise is positive,
equation (9). ``regression``: the same scores plus noise, squared loss.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np
import torch
from bench_trace_solver import planted
from common import peak_gib, power_law_graph, verdict

from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, RetargetedLoss
from mvgp.linalg import patterns as csr
from mvgp.linalg.patterns import Pattern
from mvgp.mean import (
    MeanProblem,
    SpectralElasticNet,
    accelerated,
    conjugate,
    problem,
    solve_hybrid,
    solve_proximal,
    spectrum,
)
from mvgp.mean.spectrum import leading_values, random_images

TOLERANCE = 1e-3
STRENGTH = 0.5  # of (b)
SHAPE, COUNT, LINKS, RANK = (4495, 13_614), 448_000, (13_922, 433_224), 40


def ranking() -> MeanProblem:
    """Lists of power-law length; the upper half of each, by planted scores plus noise, is positive."""
    kernels = [
        DiffusionKernel(power_law_graph(n, e, seed), dtype=torch.float32).operator().detach()
        for seed, (n, e) in enumerate(zip(SHAPE, LINKS, strict=True))
    ]
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    weight = 1.0 / (rng.permutation(SHAPE[0]) + 10.0) ** 0.6
    cells = np.zeros(0, dtype=np.int64)
    while len(cells) < COUNT:
        rows = rng.choice(SHAPE[0], size=COUNT, p=weight / weight.sum())
        cells = np.unique(np.concatenate([cells, rows * SHAPE[1] + rng.integers(SHAPE[1], size=COUNT)]))
    chosen = torch.from_numpy(np.sort(rng.permutation(cells)[:COUNT]))
    rows, cols = chosen // SHAPE[1], chosen % SHAPE[1]
    pattern = Pattern(rows, cols, SHAPE)
    factors = [op._matmul(torch.randn(op.shape[-1], RANK, generator=generator)) for op in kernels]
    factors[0] *= torch.linspace(1.5, 0.3, RANK)
    truth = pattern.sample(*factors)
    noisy = truth / truth.std() + 0.5 * torch.randn(COUNT, generator=generator)
    order = np.lexsort((noisy.numpy(), rows.numpy()))
    place = np.empty(COUNT, dtype=np.int64)
    place[order] = np.arange(COUNT) - np.searchsorted(rows.numpy(), rows.numpy()[order])  # within the list
    length = np.bincount(rows.numpy(), minlength=SHAPE[0])[rows.numpy()]
    labels = torch.from_numpy(np.where(2 * place >= length, 1.0, -1.0)).float()
    retarget = BipartiteRankingLikelihood(margin=1.0).float().retargeting(labels, rows, None)
    return MeanProblem(*kernels, pattern, RetargetedLoss(retarget))


class Floor:
    """Seconds spent inside the products that no method of this kind can do without."""

    def __init__(self) -> None:
        self.seconds, self.calls, self._depth = 0.0, 0, 0
        problem.MeanProblem.rows_times = self._timed(problem.MeanProblem.rows_times)
        problem.MeanProblem.cols_times = self._timed(problem.MeanProblem.cols_times)
        csr.Pattern.sample = self._timed(csr.Pattern.sample)
        for module in (conjugate, accelerated, spectrum):
            module.times = self._timed(problem.times)

    def _timed(self, function):
        def call(*args, **options):
            began = time.perf_counter()
            self._depth += 1
            out = function(*args, **options)
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - began
                self.calls += 1
            return out

        return call


def path(given, lam_max: float, share: float, minutes: float, max_rank: int) -> bool:
    floor, began, solution, certified, points = Floor(), time.perf_counter(), None, True, 0
    for k in range(30):
        strength = 1e-3 ** (k / 29)
        penalty = SpectralElasticNet(strength * lam_max, share)
        solution = solve_proximal(given, penalty, tolerance=TOLERANCE, start=solution, max_iterations=400)
        found, spent = solution.certificate, time.perf_counter() - began
        certified &= found.converged
        points += 1
        print(
            f"  {k + 1:2d}: strength {strength:.4f}, rank {found.rank:4d}, {found.iterations:3d} iterations, gap "
            f"{found.relative_gap:.1e}, {spent:6.0f} s so far, {spent / floor.seconds:.2f} x floor, {peak_gib():.1f} GiB",
            flush=True,
        )
        if spent > 60 * minutes or found.rank > max_rank:
            break
    spent = time.perf_counter() - began
    print(f"trace share {share}: {points} of 30 points in {spent:.0f} s, {spent / floor.seconds:.2f} times the floor")
    passed = verdict("every point certified to 1e-3", float(certified), 1.0)
    return passed & verdict("GiB below 4", 4 - peak_gib(), 0.0)


@torch.no_grad()
def main(kind: str, share: float, minutes: float) -> bool:
    given = ranking() if kind == "ranking" else planted(SHAPE, COUNT, LINKS, RANK, torch.float32)
    start = given.loss(torch.zeros(COUNT)).gradient
    lam_max = float(leading_values(given, start, random_images(given, 16, 0), accuracy=1e-6).values[0])
    print(f"{kind}, trace share {share}, lam_max {lam_max:.1f}", flush=True)
    penalty = SpectralElasticNet(STRENGTH * lam_max, share)
    if share == 1.0:
        began = time.perf_counter()
        ours = solve_proximal(given, penalty, tolerance=TOLERANCE)
        middle = time.perf_counter()
        theirs = solve_hybrid(given, penalty, tolerance=TOLERANCE, max_iterations=60, local_iterations=20)
        seconds = middle - began, time.perf_counter() - middle
        gaps = ours.certificate.relative_gap, theirs.certificate.relative_gap
        print(
            f"strength {STRENGTH}, cold: proximal {seconds[0]:.1f} s, gap {gaps[0]:.1e}, rank {ours.mean.rank}; "
            f"hybrid {seconds[1]:.1f} s, gap {gaps[1]:.1e}, rank {theirs.mean.rank}",
            flush=True,
        )
    return path(given, lam_max, share, minutes, 10**9 if share == 1.0 else 500)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["ranking", "regression"], nargs="?", default="ranking")
    parser.add_argument("--share", type=float, help="of the trace norm; 1 and 0.8, one after the other, when left out")
    parser.add_argument("--minutes", type=float, default=20.0)
    given = parser.parse_args()
    if given.share is None:  # each in a process of its own, so that peak memory is its own
        command = [sys.executable, __file__, given.kind, f"--minutes={given.minutes}"]
        sys.exit(max(subprocess.run([*command, f"--share={share}"], check=False).returncode for share in (1.0, 0.8)))
    sys.exit(0 if main(**vars(given)) else 1)
