r"""Chebyshev series: a smooth function of a sparse symmetric matrix, applied without forming it.

For a symmetric matrix S with spectrum in [-1, 1] and a function f known by its values at the Chebyshev nodes
:math:`x_i = \cos(\pi (i + 1/2) / n)`,

.. math:: f(S) = \sum_{k=0}^{n-1} c_k T_k(S), \qquad
          c_k = \frac{2 - [k = 0]}{n} \sum_i f(x_i) \cos(\pi k (i + 1/2) / n).

For f analytic around [-1, 1] the coefficients fall geometrically, so a few sparse products reach double precision.

A function of two such matrices at once is :math:`X = \sum_{kl} c_{kl}\, T_k(S)\, Y\, T_l(R)`. For f and h functions of
S and R, the inverse of :math:`f(S) \otimes h(R) + \sigma^2 I` is :math:`g(x, y) = 1 / (f(x) h(y) + \sigma^2)` of both.
Its coefficients fall geometrically in both directions, and their matrix has a low rank, since g is smooth:
:math:`c_{kl} = \sum_r a_{kr} b_{lr}` with a handful of r. So a solution of the linear system over all cells costs
little more than one product with it, and needs no eigenpairs (:class:`TwoSidedSeries`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from linear_operator import LinearOperator
from scipy import fft
from torch import Tensor

from ..checks import check_instance, check_not_negative
from ..errors import InputError, SizeError
from ..tensor_checks import check_float_tensor
from .pairs import NARROW, SymmetricCSR, SymmetricLinearOperator

MAX_NODES = 4096
MOST_NODES = 128  # at which a function of two matrices is sampled, on each side
MOST_TERMS = 8  # of its separation; each needs a block of memory


class ChebyshevLinearOperator(SymmetricLinearOperator):
    r""":math:`f(S)` for a sparse symmetric S (N, N) with spectrum in [-1, 1]; nothing N x N is stored.

    f is known by its values at the Chebyshev nodes. Products run the three-term recurrence on blocks of columns; the
    gradient with respect to the values is :math:`\langle L, T_k(S) R \rangle` mapped back from coefficients to values.

    :param values: (..., n) values of f at ``chebyshev.nodes(n)``; gradients flow to them.
    :param matrix: S, constant.
    :param tolerance: relative size of the tail of the series that a product may drop.
    """

    def __init__(self, values: Tensor, matrix: SymmetricCSR, tolerance: float = 1e-10) -> None:
        check_instance(matrix, "matrix", SymmetricCSR, "a SymmetricCSR")
        check_instance(values, "values", Tensor, "a tensor")
        check_float_tensor(values, "values", (None,) * max(values.dim(), 1), half=True)
        if values.shape[-1] == 0:
            raise InputError(f"values: expected at least one, at the Chebyshev nodes, got shape {tuple(values.shape)}")
        tolerance = check_not_negative(tolerance, "tolerance")
        super().__init__(values, matrix=matrix, tolerance=tolerance)
        self.values, self.matrix, self.tolerance = values, matrix, tolerance

    def _size(self) -> torch.Size:
        return torch.Size((*self.values.shape[:-1], self.matrix.size, self.matrix.size))

    @property
    def series(self) -> Tensor:
        """(..., degree + 1): the coefficients that a product uses."""
        series = coefficients(self.values)
        return series[..., : degree_needed(series, self.tolerance) + 1]

    @property
    def degree(self) -> int:
        """Sparse products needed for one product with this operator."""
        return int(self.series.shape[-1]) - 1

    def _times(self, rhs: Tensor) -> Tensor:
        batch = torch.broadcast_shapes(self.batch_shape, rhs.shape[:-2])
        flat = batch_into_columns(rhs.expand(*batch, *rhs.shape[-2:]))  # (N, B C)
        series = self.series
        if self.batch_shape:
            series = series.expand(*batch, series.shape[-1]).reshape(-1, series.shape[-1]).mT  # (n, B)
            series = series.repeat_interleave(rhs.shape[-1], dim=1)  # (n, B C)
        return columns_into_batch(apply(self.matrix, series, flat), batch, rhs.shape[-1])

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        left = left_vecs.unsqueeze(-1) if left_vecs.dim() == 1 else left_vecs
        right = right_vecs.unsqueeze(-1) if right_vecs.dim() == 1 else right_vecs
        batch = torch.broadcast_shapes(self.batch_shape, left.shape[:-2], right.shape[:-2])
        width = left.shape[-1]
        flat_left = batch_into_columns(left.expand(*batch, *left.shape[-2:]))
        flat_right = batch_into_columns(right.expand(*batch, *right.shape[-2:]))
        count = self.values.shape[-1]
        inner = flat_right.new_empty(count, flat_right.shape[1])  # <left, T_k right> by column
        for start in range(0, flat_right.shape[1], NARROW):
            part = slice(start, start + NARROW)
            terms = polynomials(self.matrix, flat_right[:, part], count - 1)
            for k, term in enumerate(terms):
                inner[k, part] = (flat_left[:, part] * term).sum(0)
        to_series = inner.reshape(count, -1, width).sum(-1).mT.reshape(*batch, count)
        to_values = to_series @ coefficients(torch.eye(count, dtype=inner.dtype, device=inner.device)).mT
        return (to_values.sum_to_size(self.values.shape),)

    def _diagonal(self) -> Tensor:
        series = self.series
        key = ("diagonal moments", series.shape[-1])
        if key not in self.matrix.memory:  # they depend on S alone: one computation serves every f
            everything = torch.arange(self.matrix.size, device=self.device)
            self.matrix.memory[key] = diagonal_moments(self.matrix, everything, series.shape[-1])
        return series @ self.matrix.memory[key].mT

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        rows, cols, *batches = torch.broadcast_tensors(row_index, col_index, *batch_indices)
        values = self.values[tuple(batches)] if batches else self.values  # (..., n) or (n,)
        distinct, back = torch.unique(cols, return_inverse=True)
        count = self.values.shape[-1]
        if torch.equal(rows, cols):
            moments = diagonal_moments(self.matrix, distinct, count)[back]  # (..., n)
        else:
            moments = values.new_empty(*rows.shape, count)
            for start in range(0, len(distinct), NARROW):
                chosen = distinct[start : start + NARROW]
                here = (back >= start) & (back < start + NARROW)
                picked = values.new_zeros(self.matrix.size, len(chosen)).scatter_(0, chosen.unsqueeze(0), 1.0)
                for k, term in enumerate(polynomials(self.matrix, picked, count - 1)):
                    moments[..., k][here] = term[rows[here], back[here] - start]
        return (moments * coefficients(values)).sum(-1)

    def _expand_batch(self, batch_shape: Any) -> ChebyshevLinearOperator:
        values = self.values.expand(*batch_shape, self.values.shape[-1])
        return ChebyshevLinearOperator(values, self.matrix, self.tolerance)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        return ChebyshevLinearOperator(self.values * factor.unsqueeze(-1), self.matrix, self.tolerance)

    def root(self) -> ChebyshevLinearOperator:
        r"""The symmetric square root :math:`f^{1/2}(S)`; f must not be negative."""
        return ChebyshevLinearOperator(self.values.clamp_min(0).sqrt(), self.matrix, self.tolerance)


def nodes(count: int, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> Tensor:
    """(count,) Chebyshev nodes in (-1, 1), descending."""
    return torch.cos(_node_angles(count, device or torch.device("cpu"))).to(dtype)


def coefficients(values: Tensor) -> Tensor:
    """(..., n) series coefficients from (..., n) values at the nodes; differentiable."""
    return values @ _values_to_coefficients(values.shape[-1], values.dtype, values.device)


def evaluate(series: Tensor, points: Tensor) -> Tensor:
    """(..., p): the series with coefficients (..., n) at ``points`` (p,) in [-1, 1]."""
    orders = torch.arange(series.shape[-1], dtype=points.dtype, device=points.device)
    return series @ torch.cos(torch.arccos(points) * orders.unsqueeze(1))


def degree_needed(series: Tensor, tolerance: float) -> int:
    """Smallest degree whose dropped tail sums to at most ``tolerance`` times all of the (..., n) coefficients."""
    size = series.detach().abs().reshape(-1, series.shape[-1])  # (B, n)
    scale = size.sum(-1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
    tail = (size / scale).flip(-1).cumsum(-1).flip(-1).amax(0)  # (n,) tail[k] = sum over j >= k
    kept = (tail > tolerance).nonzero()
    return int(kept[-1]) if len(kept) else 0


def count_for(function: Callable[[Tensor], Tensor], tolerance: float) -> int:
    """Number of nodes with which a function, (n,) in [-1, 1] to (..., n), and its square root are both resolved."""
    count = 16
    while count <= MAX_NODES:
        with torch.no_grad():
            values = function(nodes(count))
            # between the nodes and at the ends of [-1, 1], where a needle could hide
            between = torch.cos(torch.linspace(0, math.pi, 2 * count + 1, dtype=torch.float64))
            truth = function(between)
            needed = 0
            for at_nodes, at_between in ((values, truth), (values.clamp_min(0).sqrt(), truth.clamp_min(0).sqrt())):
                series = _quick_coefficients(at_nodes)
                error = (_quick_between(series) - at_between).abs().amax()
                resolved = error <= max(tolerance, 1e-14 * count) * at_between.abs().amax()
                needed = max(needed, degree_needed(series, tolerance) if resolved else count)
        if needed < 0.75 * count:  # the rest of the coefficients are noise
            return needed + 1
        count *= 2
    raise SizeError(
        f"a Chebyshev series with {MAX_NODES} terms does not reach tolerance {tolerance:g}: the function of the "
        "Laplacian (or its square root) varies too fast on [0, 2]; add a shift, shorten the time or the "
        "lengthscale, or ask for method='eigen'"
    )


def apply(matrix: SymmetricCSR, series: Tensor, dense: Tensor, width: int = NARROW) -> Tensor:
    """(N, C): sum_k c_k T_k(S) X for X (N, C) and a series (n,) or, for each column, (n, C); ``width`` at a time."""
    out = torch.empty_like(dense, memory_format=torch.contiguous_format)
    # plain numbers are added faster than 0-dimensional tensors, which only gradients need
    numbers = series.tolist() if series.dim() == 1 and not series.requires_grad else None
    for start in range(0, dense.shape[1], width):
        part = slice(start, start + width)
        own = series[:, part] if series.dim() == 2 else series
        total = dense.new_zeros(dense.shape[0], dense[:, part].shape[1])
        for k, term in enumerate(polynomials(matrix, dense[:, part], len(series) - 1)):
            if numbers is None:
                total.addcmul_(term.clone(), own[k])  # gradients need the term later on
            else:
                total.add_(term, alpha=numbers[k])
        out[:, part] = total
    return out


def polynomials(matrix: SymmetricCSR, dense: Tensor, degree: int) -> Iterator[Tensor]:
    """T_0(S) X, ..., T_degree(S) X for X (N, C); a term stays valid until the next but one is requested."""
    before = dense.clone(memory_format=torch.contiguous_format)
    yield before
    if degree < 1:
        return
    now = matrix @ before
    yield now
    for _ in range(degree - 1):
        before.addmm_(matrix.tensor, now, beta=-1.0, alpha=2.0)
        before, now = now, before
        yield now


def diagonal_moments(matrix: SymmetricCSR, which: Tensor, count: int) -> Tensor:
    r"""(Q, count): :math:`[T_k(S)]_{ii}` for k < count, at the nodes ``which`` (Q,).

    Uses :math:`T_{2k} = 2 T_k T_k - T_0` and :math:`T_{2k+1} = 2 T_{k+1} T_k - T_1`: half the products.
    """
    moments = matrix.values.new_empty(len(which), count)
    for start in range(0, len(which), NARROW):
        chosen = which[start : start + NARROW]
        picked = matrix.values.new_zeros(matrix.size, len(chosen)).scatter_(0, chosen.unsqueeze(0), 1.0)
        out = moments[start : start + NARROW]
        before = picked
        for k, term in enumerate(polynomials(matrix, picked, count // 2)):
            if 2 * k < count:
                out[:, 2 * k] = 2 * (term * term).sum(0) - 1 if k else 1.0
            if k and 2 * k - 1 < count:
                cross = (term * before).sum(0)
                out[:, 2 * k - 1] = cross if k == 1 else 2 * cross - out[:, 1]
            before = term
    return moments


@lru_cache(maxsize=64)
def _node_angles(count: int, device: torch.device) -> Tensor:
    return math.pi * (torch.arange(count, dtype=torch.float64, device=device) + 0.5) / count


@lru_cache(maxsize=8)  # up to 100 MB each
def _values_to_coefficients(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(count, count) matrix C with ``coefficients = values @ C``."""
    angles = _node_angles(count, device)
    matrix = torch.cos(angles.unsqueeze(1) * torch.arange(count, dtype=torch.float64, device=device)) * (2 / count)
    matrix[:, 0] /= 2
    return matrix.to(dtype)


def _quick_coefficients(values: Tensor) -> Tensor:
    """(..., n): as :func:`coefficients`, by a cosine transform: no n x n matrix for a series that may be refused."""
    series = fft.dct(values.double().numpy(force=True), type=2) / values.shape[-1]
    series[..., 0] /= 2
    return torch.from_numpy(series)


def _quick_between(series: Tensor) -> Tensor:
    r"""(..., 2 n + 1): the series with coefficients (..., n) at :math:`\cos(\pi j / 2 n)`, likewise."""
    count = series.shape[-1]
    padded = np.zeros((*series.shape[:-1], 2 * count + 1))
    padded[..., :count] = series.numpy() / 2
    padded[..., 0] *= 2
    return torch.from_numpy(fft.dct(padded, type=1))


def batch_into_columns(dense: Tensor) -> Tensor:
    """(..., N, C) to (N, B C)."""
    if dense.dim() == 2:
        return dense
    return dense.reshape(-1, *dense.shape[-2:]).permute(1, 0, 2).reshape(dense.shape[-2], -1)


def columns_into_batch(dense: Tensor, batch: torch.Size, width: int) -> Tensor:
    """(N, B C) to (..., N, C)."""
    if not batch:
        return dense
    return dense.reshape(dense.shape[0], -1, width).permute(1, 0, 2).reshape(*batch, dense.shape[0], width)


# Functions of two matrices ----------------------------------------------------------------------


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
            for numbers, term in zip(series, polynomials(self.left, block, len(series) - 1), strict=True):
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
        at = nodes(count, device=left.device)
        f, h = (torch.stack([_at_nodes(op, at) for op in side]) for side in zip(*terms, strict=True))  # (Q, n)
        table = 1 / (f.mT @ h + noise)  # (n, n)
        table = coefficients(coefficients(table).mT).mT  # c (n, n)
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
        return evaluate(coefficients(op.values.detach().double()), nodes).clamp_min(0)
    return op.diagonal()[0].detach().double().expand(len(nodes))


def _needed(sizes: Tensor, tolerance: float) -> int:
    """How many of the numbers (n,) to keep so that the sum of the rest is at most ``tolerance`` of all."""
    tail = (sizes / sizes.sum()).flip(0).cumsum(0).flip(0)
    return int((tail > tolerance).sum())
