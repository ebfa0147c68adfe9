"""The cost model behind the choice of a method: estimated seconds on one ordinary machine.

Only ratios matter. The rates are round numbers for multiply-adds per second in double precision on two
cores; ``benchmarks/bench_rates.py`` prints what a machine does beside them (gathers and single vectors came
out slower than assumed here). Single precision is about twice as fast everywhere, so it does not sway a choice.
"""

from __future__ import annotations

from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DiagLinearOperator,
    InterpolatedLinearOperator,
    SumLinearOperator,
)

from .chebyshev import ChebyshevLinearOperator
from .spectra import SpectralLinearOperator

GEMM = 50e9  # dense matrix times dense matrix
GEMV = 5e9  # dense matrix times one vector: bound by memory
SPARSE = 4e9  # sparse matrix times dense matrix, a block of columns at a time
SAMPLED = 1.6e9  # chosen entries of a product, a block of inner columns at a time
MOVE = 0.5e9  # entries scattered, gathered or copied
CALL = 20e-6  # overhead of one call into torch

MEMORY = 2 * 2**30  # bytes that the dense pieces of one operator may take
REUSE = 50  # products over which a set-up is expected to pay


def product_seconds(op: LinearOperator, columns: int) -> float:
    """Time of one product of ``op`` with a dense matrix of so many columns."""
    rows, cols = op.shape[-2:]
    if isinstance(op, ChebyshevLinearOperator):
        passes = op.degree * (op.matrix.nnz / SPARSE + 2 * rows / MOVE / 8)
        return passes * columns + CALL
    if isinstance(op, SpectralLinearOperator):
        return 2 * rows * op.vectors.shape[-1] * columns / GEMM + CALL
    if isinstance(op, DiagLinearOperator):
        return rows * columns / MOVE + CALL
    if isinstance(op, SumLinearOperator):
        return sum(product_seconds(term, columns) for term in op.linear_ops)
    if isinstance(op, ConstantMulLinearOperator):
        return product_seconds(op.base_linear_op, columns)
    if isinstance(op, InterpolatedLinearOperator):
        return product_seconds(op.base_linear_op, columns) + 2 * (rows + cols) * columns / MOVE
    return rows * cols * columns / (GEMM if columns > 8 else GEMV) + CALL


def itemsize(op: LinearOperator) -> int:
    """Bytes of one entry."""
    return 4 if str(op.dtype) == "torch.float32" else 8
