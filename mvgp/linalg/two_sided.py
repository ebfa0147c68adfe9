r"""A function of two sparse symmetric matrices at once, :math:`X = \sum_{kl} c_{kl}\, T_k(S)\, Y\, T_l(R)`.

For f and h functions of S and R, the inverse of :math:`f(S) \otimes h(R) + \sigma^2 I` is the function
:math:`g(x, y) = 1 / (f(x) h(y) + \sigma^2)` of both. Its Chebyshev coefficients fall geometrically in both directions,
and their matrix has a low rank, since g is smooth: :math:`c_{kl} = \sum_r a_{kr} b_{lr}` with a handful of r. So a
solution of the linear system over all cells costs little more than one product with it, and needs no eigenpairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from linear_operator import LinearOperator
from torch import Tensor

from . import chebyshev
from .chebyshev import ChebyshevLinearOperator
from .pairs import NARROW, SymmetricCSR

MOST_NODES = 128  # at which g is sampled, on each side
MOST_TERMS = 8  # of its separation; each needs a block of memory


@dataclass(frozen=True)
class TwoSidedSeries:
    """:math:`g(S, R)`, separated.

    :param left: S (M, M).
    :param right: R (N, N).
    :param left_series: (K, Q) a.
    :param right_series: (L, Q) b.
    """

    left: SymmetricCSR
    right: SymmetricCSR
    left_series: Tensor
    right_series: Tensor

    def __call__(self, dense: Tensor) -> Tensor:
        """(M, N): g applied to Y (M, N)."""
        parts = self._left_parts(dense)
        out = torch.empty_like(dense, memory_format=torch.contiguous_format)
        for start in range(0, dense.shape[0], NARROW):
            rows = slice(start, start + NARROW)
            out[rows] = self._right_sum([part[rows].mT.contiguous() for part in parts]).mT
        return out

    def _left_parts(self, dense: Tensor) -> list[Tensor]:
        """Q blocks (M, N): sum_k a_kr T_k(S) Y for each r."""
        series = self.left_series.tolist()  # plain numbers are added faster than tensors
        parts = [torch.empty_like(dense, memory_format=torch.contiguous_format) for _ in series[0]]
        for start in range(0, dense.shape[1], NARROW):
            cols = slice(start, start + NARROW)
            block = dense[:, cols].contiguous()
            sums = [torch.zeros_like(block) for _ in parts]
            for numbers, term in zip(series, chebyshev.polynomials(self.left, block, len(series) - 1), strict=True):
                for total, number in zip(sums, numbers, strict=True):
                    total.add_(term, alpha=number)
            for part, total in zip(parts, sums, strict=True):
                part[:, cols] = total
        return parts

    def _right_sum(self, parts: list[Tensor]) -> Tensor:
        """(N, w): sum_r sum_l b_lr T_l(R) V_r for V_r (N, w), by Clenshaw's recurrence: one pass for all r."""
        after, later = torch.zeros_like(parts[0]), torch.zeros_like(parts[0])
        for at, numbers in reversed(list(enumerate(self.right_series.tolist()))):
            scale = 2.0 if at else 1.0
            later.addmm_(self.right.tensor, after, beta=-1.0, alpha=scale)
            for part, number in zip(parts, numbers, strict=True):
                later.add_(part, alpha=number)
            after, later = later, after
        return after


def inverse_series(
    left: ChebyshevLinearOperator, right: ChebyshevLinearOperator, noise: float, tolerance: float
) -> TwoSidedSeries | None:
    r""":math:`(f(S) \otimes h(R) + \sigma^2 I)^{-1}`; None where it would take too many nodes or terms.

    :param tolerance: relative error of the series, about.
    """
    return sum_inverse_series([(left, right)], left, right, noise, tolerance)


def sum_inverse_series(
    terms: Sequence[tuple[LinearOperator, LinearOperator]],
    left: ChebyshevLinearOperator,
    right: ChebyshevLinearOperator,
    noise: float,
    tolerance: float,
) -> TwoSidedSeries | None:
    r""":math:`(\sum_q f_q(S) \otimes h_q(R) + \sigma^2 I)^{-1}`; None where it would take too many nodes or terms.

    :param terms: f_q(S) and h_q(R), each a Chebyshev operator or a multiple of the identity.
    :param left: one of those of S.
    :param right: one of those of R.
    :param tolerance: relative error of the series, about.
    """
    finest = max(tolerance, 8 * torch.finfo(left.dtype).eps)
    count = 16
    while count <= MOST_NODES:
        nodes = chebyshev.nodes(count, device=left.device)
        f, h = (torch.stack([_at_nodes(op, nodes) for op in side]) for side in zip(*terms, strict=True))  # (Q, n)
        table = 1 / (f.mT @ h + noise)  # (n, n)
        table = chebyshev.coefficients(chebyshev.coefficients(table).mT).mT  # c (n, n)
        sizes = [_needed(table.abs().sum(side), finest) for side in (1, 0)]
        if max(sizes) < 0.75 * count:  # the rest of the coefficients are noise
            u, values, vt = torch.linalg.svd(table[: sizes[0], : sizes[1]], full_matrices=False)
            rank = _needed(values, finest)
            if rank > MOST_TERMS:
                return None
            factors = u[:, :rank] * values[:rank], vt[:rank].mT
            return TwoSidedSeries(left.matrix, right.matrix, *(part.to(left.dtype) for part in factors))
        count *= 2
    return None


def _at_nodes(op: LinearOperator, nodes: Tensor) -> Tensor:
    """(n,): the function of an operator at Chebyshev nodes, in double precision."""
    if isinstance(op, ChebyshevLinearOperator):
        return chebyshev.evaluate(chebyshev.coefficients(op.values.detach().double()), nodes).clamp_min(0)
    return op.diagonal()[0].detach().double().expand(len(nodes))


def _needed(sizes: Tensor, tolerance: float) -> int:
    """How many of the numbers (n,) to keep so that the sum of the rest is at most ``tolerance`` of all."""
    tail = (sizes / sizes.sum()).flip(0).cumsum(0).flip(0)
    return int((tail > tolerance).sum())
