"""Order-cone projection of 450,000 scores in 4,500 lists: against one sort, and against scipy's isotonic regression."""

import itertools
import sys

import numpy as np
import torch
from common import compare, verdict
from scipy.optimize import isotonic_regression

from mvgp.likelihoods import OrderProjection, project_order

SCORES, TASKS, MARGIN = 450_000, 4_500, 1.0


def power_law_tasks(seed):
    """(T,) tasks, contiguous, with sizes that follow a power law (from about 20 to 20,000)."""
    share = 1.0 / (np.arange(TASKS) + 1.0) ** 0.8
    sizes = np.maximum(1, np.floor(SCORES * share / share.sum())).astype(int)
    sizes[0] += SCORES - sizes.sum()
    np.random.default_rng(seed).shuffle(sizes)
    return torch.from_numpy(np.repeat(np.arange(TASKS), sizes)), sizes


def isotonic_loop(scores, positive, ends):
    """One call of scipy for each task, on [sorted negatives, sorted positives - margin]."""
    found = []
    for first, last in itertools.pairwise(ends):
        psi, top = scores[first:last], positive[first:last]
        found.append(isotonic_regression(np.concatenate([np.sort(psi[~top]), np.sort(psi[top]) - MARGIN])).x)
    return found


def largest_difference(found, scores, positive, ends):
    """Between our result and scipy's, over all tasks."""
    worst = 0.0
    for own, wanted in zip(
        np.split(np.arange(len(scores)), ends[1:-1]), isotonic_loop(scores, positive, ends), strict=True
    ):
        top = positive[own]
        ours = np.concatenate([np.sort(found[own][~top]), np.sort(found[own][top]) - MARGIN])
        worst = max(worst, np.abs(ours - wanted).max())
    return worst


def main() -> bool:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    task, sizes = power_law_tasks(seed=0)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    cleared = True
    for share in (0.5, 0.1):
        positive = torch.rand(SCORES) < share
        scores = torch.randn(SCORES, dtype=torch.float64)
        nearby = scores + 0.02 * torch.randn_like(scores)  # what a solver's next step may look like
        project = OrderProjection(positive, task, MARGIN)
        turns = [scores, nearby]

        def cold(project=project, scores=scores):
            project.reset_warm_start()
            return project(scores)

        def warm(project=project, turns=turns):
            turns.reverse()
            return project(turns[0])

        error = largest_difference(cold().numpy(), scores.numpy(), positive.numpy(), ends)
        best = compare(
            {
                "sort": lambda x=scores: torch.sort(x),
                "cold": cold,
                "warm": warm,
                "pure function": lambda x=scores, y=positive: project_order(x, y, task, MARGIN),
                "scipy loop": lambda x=scores, y=positive: isotonic_loop(x.numpy(), y.numpy(), ends),
            },
            rounds=15,
        )
        print(
            f"{share:.0%} positive: largest difference to scipy {error:.1e},",
            {k: f"{1e3 * v:.1f} ms" for k, v in best.items()},
        )
        for start in ("cold", "warm"):
            cleared &= verdict(f"{start}: times faster than 0.6 of a sort", 0.6 * best["sort"] / best[start], 1.0)
            cleared &= verdict(f"{start}: times faster than a loop of scipy", best["scipy loop"] / best[start], 3.0)
        print(f"grouping included: {best['pure function'] / best['sort']:.2f} of a sort")
        cleared &= error < 1e-10
    return cleared


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
