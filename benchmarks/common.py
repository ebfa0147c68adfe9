"""What the benchmarks share: interleaved timing, peak memory, synthetic graphs of a given size."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np
import torch

from mvgp.kernels import Graph


def compare(candidates: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Best seconds of each candidate, run in turns so that noise of the machine hits all alike."""
    best = dict.fromkeys(candidates, float("inf"))
    for call in candidates.values():
        call()  # caches and first-time set-up
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def seconds(call: Callable[[], object]) -> tuple[float, object]:
    """Wall-clock time of one call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def peak_gib() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def power_law_graph(num_nodes: int, num_links: int, seed: int) -> Graph:
    """A random graph with a heavy-tailed degree distribution, as biological networks have."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / (np.arange(num_nodes) + 10.0) ** 0.6
    weight /= weight.sum()
    found: set[tuple[int, int]] = set()
    while len(found) < num_links:
        ends = rng.choice(num_nodes, size=(2 * num_links, 2), p=weight)
        found.update((int(min(a, b)), int(max(a, b))) for a, b in ends if a != b)
    return Graph(np.array(sorted(found))[rng.permutation(len(found))[:num_links]], num_nodes)


def random_pairs(shape: tuple[int, int], count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``count`` distinct cells of a grid, row-major sorted."""
    rng = np.random.default_rng(seed)
    cells = torch.from_numpy(np.sort(rng.choice(shape[0] * shape[1], size=count, replace=False)))
    return cells // shape[1], cells % shape[1]


def verdict(name: str, found: float, wanted: float) -> bool:
    """Print one bar and whether it was cleared."""
    print(f"{'PASS' if found >= wanted else 'FAIL'}  {name}: {found:.3g} (at least {wanted:g})")
    return found >= wanted
