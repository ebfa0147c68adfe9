"""What decides between methods: estimated seconds on one ordinary machine, limits on sizes, and what a fit will take.

Only ratios of seconds matter. The rates are round numbers for multiply-adds per second in double precision on two
cores; ``python -m benchmarks.book --chapters parts`` prints what a machine does beside them (gathers and single
vectors came out slower than assumed here). Single precision is about twice as fast, so it changes no choice.

An :class:`Estimate` says seconds of this machine: it counts the same operations, and divides by rates that are measured
once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

GEMM = 50e9  # dense matrix times dense matrix
GEMV = 5e9  # dense matrix times one vector: bound by memory
SPARSE = 4e9  # sparse matrix times dense matrix, a block of columns at a time
SAMPLED = 1.6e9  # chosen entries of a product, a block of inner columns at a time
MOVE = 0.5e9  # entries scattered, gathered or copied
CALL = 20e-6  # overhead of one call into torch

MEMORY = 2 * 2**30  # bytes that the dense pieces of one operator may take
REUSE = 50  # products over which a set-up is expected to pay


@dataclass(frozen=True)
class Limits:
    """Sizes at which one method gives way to another, or an answer is refused.

    :param cholesky: observed pairs up to which :math:`K_{TT} + D` is factored densely.
    :param dense: observed pairs up to which it is factored if there are many right-hand sides.
    :param eigenpairs: rows or columns of a Kronecker factor up to which all its eigenpairs are computed.
    :param rows_eigenpairs: rows of whole lists whose kernel is taken apart into eigenpairs, for a mean of full rank.
    :param sketch: number of eigenpairs that are approximated above it.
    :param nearest: observations that the bounds of a variance begin with.
    :param joint_cells: cells whose joint covariance is formed.
    :param joint_nearest: observations it is conditioned on when there are more than ``dense``.
    :param listed_cells: cells of whole lists that are conditioned on one by one.
    :param list_nearest: cells that the bounds of a variance given whole lists begin with.
    :param list_group: cells of a row that share their nearest observations.
    :param list_candidates: rows and columns among which these are searched.
    """

    cholesky: int = 3000
    dense: int = 12_000
    eigenpairs: int = 3072
    rows_eigenpairs: int = 12_000
    sketch: int = 384
    nearest: int = 4096
    joint_cells: int = 20_000
    joint_nearest: int = 8192
    listed_cells: int = 2_000_000
    list_nearest: int = 3072
    list_group: int = 64
    list_candidates: tuple[int, int] = (512, 4096)


DEFAULT_LIMITS = Limits()


# What a fit will take ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Operations per second on this machine, in double precision, as torch is set up now.

    :param gemm: multiply-adds of a product of dense matrices.
    :param factor: the same of eigenpairs of dense matrices, counted as n^3.
    :param sparse: multiply-adds of a sparse matrix times a dense one.
    :param move: entries that are gathered.
    :param call: calls into torch.
    """

    gemm: float
    factor: float
    sparse: float
    move: float
    call: float


NOMINAL = Rates(GEMM, GEMM / 15, SPARSE, 3 * MOVE, 1e6)  # for what depends on them little


@functools.lru_cache(maxsize=8)
def _measured(threads: int) -> Rates:
    """For so many threads; it takes less than 0.1 s."""
    generator = torch.Generator().manual_seed(0)
    square = torch.randn(256, 256, generator=generator, dtype=torch.float64)
    small = square[:96, :96] @ square[:96, :96].mT
    places = torch.randint(0, 2000, (2, 20_000), generator=generator)
    rows, order = places[0].sort()
    starts = torch.searchsorted(rows, torch.arange(2001))
    values = torch.ones(len(rows), dtype=torch.float64)
    sparse = torch.sparse_csr_tensor(starts, places[1][order], values, (2000, 2000), check_invariants=False)
    dense = torch.randn(2000, 16, generator=generator, dtype=torch.float64)
    single = torch.ones(8, dtype=torch.float64)
    return Rates(
        gemm=256**3 / _seconds(lambda: square @ square),
        factor=96**3 / _seconds(lambda: torch.linalg.eigh(small)),
        sparse=len(rows) * 16 / _seconds(lambda: sparse @ dense),
        move=len(rows) * 16 / _seconds(lambda: dense[rows]),
        call=100 / _seconds(lambda: [single + single for _ in range(100)]),
    )


def measured_rates() -> Rates:
    """How fast this machine is with the threads that torch has now."""
    return _measured(torch.get_num_threads())


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of three times, the first run aside."""
    work()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return max(min(times), 1e-9)


@dataclass(frozen=True)
class Work:
    """Operations, counted by kind as :class:`Rates` has them; they add up, and a number multiplies them."""

    gemm: float = 0.0
    factor: float = 0.0
    sparse: float = 0.0
    move: float = 0.0
    call: float = 0.0

    def __add__(self, other: Work) -> Work:
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return Work(*(a + b for a, b in pairs))

    def __rmul__(self, number: float) -> Work:
        return Work(*(number * getattr(self, name) for name in self.__dataclass_fields__))

    def seconds(self, rates: Rates) -> float:
        """At these rates."""
        return float(sum(getattr(self, name) / getattr(rates, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Estimate:
    """What a fit is expected to take; ``str`` makes a sentence of it.

    :param seconds: on this machine, as busy as it is now; often right within a factor of three.
    :param bytes: largest memory for tensors at a time, data and result included.
    :param method: how the fit will be computed, as its report or certificate will name it.
    :param what: the fit, in words.
    """

    seconds: float
    bytes: int
    method: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}: about {spoken_time(self.seconds)} and {spoken_bytes(self.bytes)}, by {self.method}"


def spoken_time(seconds: float) -> str:
    """A time with its unit: ``0.3 s``, ``12 min``, ``3.5 h``."""
    for limit, size, unit in ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{max(seconds / size, 0.1):.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def spoken_bytes(count: float) -> str:
    """A size with its unit: ``40 MB``, ``3.1 GB``."""
    if count < 1e9:
        return f"{max(count / 1e6, 1):.0f} MB"
    return f"{count / 1e9:,.{0 if count >= 1e11 else 1}f} GB"
