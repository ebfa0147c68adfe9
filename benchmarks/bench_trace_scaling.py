"""Issue 3 (d): what a step of the mean's solver costs against T, M, N and rank, all else fixed.

Seconds of one conjugate-gradient step on the factors (kernel products, sampled and sparse products, line
search), single precision, best of three; and the exponent between the smallest and the largest size.
"""

import math
import sys
import time

import torch
from bench_trace_solver import planted
from common import verdict

from mvgp.mean import LowRank, SpectralElasticNet
from mvgp.mean.certificate import Iterate
from mvgp.mean.conjugate import conjugate_steps
from mvgp.mean.spectrum import StepOperator, random_images, subspace_pass

BASE = {"rows": 4000, "cols": 8000, "pairs": 300_000, "rank": 100}
STEPS = 4


@torch.no_grad()
def seconds_per_step(rows: int, cols: int, pairs: int, rank: int) -> float:
    given = planted((rows, cols), pairs, (3 * rows, 30 * cols), 20, torch.float32)
    theta = given.loss(torch.zeros(pairs)).gradient
    found = subspace_pass(given, StepOperator(given, theta), random_images(given, rank, 0))
    mean = LowRank(-found.left, found.right, found.values, -found.left_image, found.right_image)
    now = Iterate.of(given, mean, found.right_image[:, :0], 0.1)
    penalty = SpectralElasticNet(0.2 * float(found.values[0]), 1.0)
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        conjugate_steps(given, penalty, now, found, steps=STEPS)
        best = min(best, (time.perf_counter() - began) / STEPS)
    return best


def main() -> bool:
    cleared = True
    for name, factors in (("pairs", (1, 2, 4, 8)), ("rows", (1, 2, 4)), ("cols", (1, 2, 4)), ("rank", (0.5, 1, 2, 4))):
        sizes = [int(BASE[name] * factor) for factor in factors]
        spent = [seconds_per_step(**{**BASE, name: size}) for size in sizes]
        exponent = math.log(spent[-1] / spent[0]) / math.log(sizes[-1] / sizes[0])
        print(
            f"{name}: " + ", ".join(f"{n:,}: {1e3 * s:.0f} ms" for n, s in zip(sizes, spent, strict=True)), flush=True
        )
        cleared &= verdict(f"growth with {name} at most near-linear: 1.3 - exponent", 1.3 - exponent, 0.0)
    return cleared


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
