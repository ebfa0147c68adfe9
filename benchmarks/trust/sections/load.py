"""Many fits in one process, threads, forks, and saved models that one process serves."""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch

import mvgp
from benchmarks.trust.plan import Found, Line, generator
from mvgp.kernels import DiffusionKernel, Graph

M, N = 30, 40
WARM, GROWTH = 60, 16 * 2**20  # fits before memory is looked at; bytes it may grow by in the others


def data_of(seed: int) -> mvgp.ObservedMatrix:
    """A smooth matrix with noise, half of it observed."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(M * N)[: M * N // 2]
    smooth = np.sin(np.arange(M)[:, None] / 5 + np.arange(N) / 7 + seed % 7)
    values = smooth.flatten()[cells] + 0.1 * rng.standard_normal(len(cells))
    return mvgp.ObservedMatrix(cells // N, cells % N, values, (M, N))


def answers(seed: int) -> list[torch.Tensor]:
    """Fits of three kinds, and what they answer."""
    graphs = [Graph([(at, at + 1) for at in range(size - 1)], size) for size in (M, N)]
    prior = mvgp.MatrixGP(DiffusionKernel(graphs[0], 2.0, 0.2), DiffusionKernel(graphs[1], 2.0, 0.2))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.05
    data, found = data_of(seed), []
    models: list[Callable[[], Any]] = [
        lambda: mvgp.FullGP(prior, likelihood),
        lambda: mvgp.FullGP(prior, likelihood, method="cg"),
        lambda: mvgp.TraceGP(prior, likelihood, strength=0.2, trace_share=0.8),
    ]
    posterior = models[seed % 3]().fit(data, progress=False)
    rows, cols = [0, 3, 7], [1, 5, 9]
    found += [posterior.scores(), posterior.variance(rows, cols), posterior.joint(rows, cols).matrix]
    found.append(posterior.sample(rows, cols, 3, generator=torch.Generator().manual_seed(seed)))
    return [one.detach() for one in found]


def plain(seed: int) -> list[list[float]]:
    """The same as numbers, which go through pipes without shared memory."""
    torch.set_num_threads(1)
    return [one.flatten().tolist() for one in answers(seed)]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(first, second) for first, second in zip(one, two, strict=True))


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def growth(first: int, count: int, seed: int) -> Found:
    """Fits one after the other; memory and living tensors after the first ones must not grow."""
    found, early = Found(), (0, 0)
    for number in range(first, first + count):
        answers(seed + number % 9)
        found.add("fitted")
        if number == first + min(WARM, count - 1):
            early = resident(), living()
    grown, more = resident() - early[0], living() - early[1]
    found.reached("megabytes grown", grown / 2**20)
    found.reached("tensors grown", more)
    if grown > GROWTH or more > 0:
        found.failures.append(
            f"{count} fits: {grown / 2**20:.1f} MB and {more} tensors more than after {min(WARM, count)}"
        )
    return found


def living() -> int:
    """Tensors that Python knows."""
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def threads(first: int, count: int, seed: int) -> Found:
    """Four threads fit and ask at once; each has the numbers of one that is alone."""
    found = Found()
    for number in range(first, first + count):
        seeds = [int(one) for one in generator("load/threads", number, seed).integers(0, 999, 4)]
        alone = [answers(one) for one in seeds]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(answers, seeds))
        wrong = [one for one, mine, theirs in zip(seeds, alone, together, strict=True) if not same(mine, theirs)]
        found.add("failed" if wrong else "equal", f"{number}: other numbers for seeds {wrong}" if wrong else "")
    return found


def processes(kind: str) -> Callable[[int, int, int], Found]:
    """Processes that are forked or spawned after a fit have the numbers of their parent."""

    def run(first: int, count: int, seed: int) -> Found:
        found, context = Found(), multiprocessing.get_context(kind)
        for number in range(first, first + count):
            seeds = [int(one) for one in generator(f"load/{kind}", number, seed).integers(0, 999, 2)]
            mine = [plain(one) for one in seeds]
            with context.Pool(2) as pool:
                theirs = pool.map_async(plain, seeds).get(timeout=300)
            wrong = [one for one, here, there in zip(seeds, mine, theirs, strict=True) if here != there]
            found.add("failed" if wrong else "equal", f"{number}: other numbers for seeds {wrong}" if wrong else "")
        return found

    return run


def served(first: int, count: int, seed: int) -> Found:
    """Eight saved models in one process, asked by four threads in any order: the numbers of each when it was saved."""
    from tests.storage import examples, hostile

    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        names = list(examples.POSTERIORS)
        for number in range(first, first + count):
            rng = generator("load/served", number, seed)
            chosen = [names[int(at)] for at in rng.permutation(len(names))[:8]]
            expected, loaded = {}, {}
            for name in chosen:
                posterior, path = examples.POSTERIORS[name](torch.float64), Path(folder) / "saved"
                posterior.save(path)
                expected[name], loaded[name] = hostile.ask(posterior), mvgp.load(path)
            wrong: list[str] = []
            lock = threading.Lock()

            def ask(
                name: str, loaded: Any = loaded, expected: Any = expected, wrong: Any = wrong, lock: Any = lock
            ) -> None:
                if not hostile.same(hostile.ask(loaded[name]), expected[name]):
                    with lock:
                        wrong.append(name)

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(ask, [chosen[int(at)] for at in rng.integers(0, 8, 24)]))
            found.add(
                "failed" if wrong else "equal", f"{number}: other numbers of {sorted(set(wrong))}" if wrong else ""
            )
    return found


LINES = [
    Line("load/growth", "fits in one process, with no growth of memory", 200, 200, growth, limit=1800),
    Line("load/threads", "times four threads at once", 25, 25, threads),
    Line("load/fork", "pools of forked processes", 10, 10, processes("fork")),
    Line("load/spawn", "pools of new processes", 5, 5, processes("spawn"), limit=1800),
    Line("load/served", "times eight saved models served by one process", 20, 10, served),
]
