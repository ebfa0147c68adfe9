"""What decides between methods: estimated seconds on one ordinary machine, and limits on sizes.

Only ratios of seconds matter. The rates are round numbers for multiply-adds per second in double precision on two
cores; ``python -m benchmarks.book --chapters parts`` prints what a machine does beside them (gathers and single
vectors came out slower than assumed here). Single precision is about twice as fast, so it changes no choice.
"""

from __future__ import annotations

from dataclasses import dataclass

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
