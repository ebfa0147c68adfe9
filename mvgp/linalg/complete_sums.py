r"""The system :math:`\sum_q K_{Rq} \otimes K_{Nq} + D` over all N cells of R rows, for a sum of Kronecker terms.

Terms that share their eigenvectors on both axes (kernels of one graph each) fall apart as one term does: with the rows'
eigenvectors there is one system :math:`(\sum_q \lambda_{qi} K_{Nq} + \sigma^2) x_i = b_i` for each of them, closed form
or a Chebyshev series. Any other sum goes by conjugate gradients on the whole block, with two aids:

- **Main effects.** A kernel of rank one on an axis, :math:`\xi \xi^T \otimes K_N`, has eigenvalues as large as that
  axis is long. They are deflated: on the subspace :math:`Z = \{\xi y^T\}` the system has the size of one row, is
  itself a sum of kernels, and is solved there exactly.
- **A preconditioner** for the rest: a diagonal where the kernels are flat against the noise, the closed form of the
  terms that share eigenvectors with the largest one otherwise; the other terms count by their mean diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from torch import Tensor

from ..progress import report_step
from . import chebyshev, cost
from .chebyshev import ChebyshevLinearOperator, TwoSidedSeries, sum_inverse_series
from .complete_rows import CompleteRowsSystem, MainEffects, columns_product, inverse_series
from .conjugate_gradients import Solution, SolveReport, conjugate_gradients
from .spectra import SpectralLinearOperator, Terms, block, diagonal_at, spectral_bounds
from .sums import shared_basis, shared_source

FLAT_CONDITION = 300.0  # condition number up to which the diagonal is preconditioner enough
ROUNDS = 5  # times that conjugate gradients begin anew from the true residual
SINGLE_FROM = 1_000_000  # cells from which conjugate gradients run in single precision, and are refined
DIAGONAL_SAMPLE = 64  # positions that the mean variance of a graph kernel is estimated from
SINGLE_TOLERANCE = 1e-4  # relative residual that they are run to there


def make_rows_system(
    terms: Terms,
    chosen: Tensor,
    noise: float,
    special: Tensor | None = None,
    special_noise: float | None = None,
    limits: cost.Limits = cost.DEFAULT_LIMITS,
) -> CompleteRowsSystem:
    """The system of some whole rows under a prior of one term or several; see :class:`CompleteRowsSystem`.

    :param terms: K_M (M, M) and K_N (N, N) of each term.
    """
    if len(terms) == 1:
        return CompleteRowsSystem(*terms[0], chosen, noise, special, special_noise, limits)
    kind = SharedRowsSystem if _share(_restricted(terms, chosen), limits) else RowsSumSystem
    return kind(terms, chosen, noise, special, special_noise, limits)


def _restricted(terms: Terms, chosen: Tensor) -> Terms:
    """The terms on the chosen rows (R,) alone; a diagonal stays one."""
    if len(chosen) == terms[0][0].shape[-1]:
        return terms
    return tuple((_restricted_rows(row, chosen), col) for row, col in terms)


def _restricted_rows(op: LinearOperator, chosen: Tensor) -> LinearOperator:
    if isinstance(op, DiagLinearOperator):
        return DiagLinearOperator(op._diagonal()[chosen])
    if isinstance(op, SpectralLinearOperator) and op.vectors.shape[1] == 1:  # a main effect stays one
        part = op.vectors[chosen]
        length = part.norm().clamp_min(torch.finfo(part.dtype).tiny)
        return SpectralLinearOperator(op.spectrum * length.square(), part / length)
    return DenseLinearOperator(block(op, chosen, chosen))


def _share(terms: Terms, limits: cost.Limits) -> bool:
    """Whether the terms have a closed form together: eigenvectors in common on both axes, at an affordable size."""
    for side in zip(*terms, strict=True):
        if shared_source(side) is None:
            return False
    height, width = terms[0][0].shape[-1], terms[0][1].shape[-1]
    if min(height, width) > limits.rows_eigenpairs:
        return False
    long = [col if height <= width else row for row, col in terms]
    return max(height, width) <= limits.rows_eigenpairs or all(
        isinstance(op, ChebyshevLinearOperator | DiagLinearOperator) for op in long
    )


class TermsSystem(CompleteRowsSystem):
    """A sum of terms on whole rows; see :class:`CompleteRowsSystem`, with the terms in place of both kernels."""

    def __init__(
        self,
        terms: Terms,
        chosen: Tensor,
        noise: float,
        special: Tensor | None = None,
        special_noise: float | None = None,
        limits: cost.Limits = cost.DEFAULT_LIMITS,
    ) -> None:
        self.terms = _restricted(terms, chosen)
        self.chosen = torch.arange(len(chosen), device=chosen.device)
        super().__init__(*self.terms[0], self.chosen, noise, special, special_noise, limits)

    def product(self, x: Tensor) -> Tensor:
        """(R, N): the sum over terms of K_R X K_N."""
        return sum_product(self.terms, x)

    def diagonal(self) -> Tensor:
        """(R, N): the prior variance of every cell."""
        rows, cols = (torch.stack([op.diagonal() for op in side]) for side in zip(*self.terms, strict=True))
        return rows.mT @ cols


class SharedRowsSystem(TermsSystem):
    """Terms that share their eigenvectors on both axes: closed form, or a Chebyshev series."""

    @property
    def _shorts(self) -> list[LinearOperator]:
        """The kernels of the short side."""
        return [col if self._flipped else row for row, col in self.terms]

    @property
    def _longs(self) -> list[LinearOperator]:
        """The kernels of the long side."""
        return [row if self._flipped else col for row, col in self.terms]

    @cached_property
    def _values(self) -> Tensor:
        """(Q, S): eigenvalues of the short sides' kernels."""
        return torch.stack(self._basis[0])

    @cached_property
    def _basis(self) -> tuple[tuple[Tensor, ...], Tensor]:
        basis = shared_basis(self._shorts, self.limits.rows_eigenpairs)
        assert basis is not None  # what this class is for
        return tuple(values.detach().clamp_min(0) for values in basis.values), basis.vectors

    @property
    def _vectors(self) -> Tensor:
        return self._basis[1]

    @cached_property
    def _long_basis(self) -> tuple[Tensor, Tensor]:
        """(Q, L) eigenvalues and (L, L) eigenvectors of the long sides' kernels."""
        basis = shared_basis(self._longs, self.limits.rows_eigenpairs)
        assert basis is not None
        return torch.stack(basis.values).detach().clamp_min(0), basis.vectors

    def _shifted(self, rhs: Tensor, tolerance: float) -> Tensor:
        """(L, S): solutions of (sum_q lambda_qi K_Lq + noise) x_i = b_i, the columns of B (L, S)."""
        sparse = [op.matrix for op in self._longs if isinstance(op, ChebyshevLinearOperator)]
        if sparse and all(isinstance(op, ChebyshevLinearOperator | DiagLinearOperator) for op in self._longs):
            series = inverse_series(self._on_nodes, self.noise, tolerance, rhs)
            if series is not None:
                return chebyshev.apply(sparse[0], series, rhs)
        if rhs.shape[0] <= self.limits.rows_eigenpairs:
            values, vectors = self._long_basis
            return vectors @ ((vectors.mT @ rhs) / (values.mT @ self._values + self.noise))
        shape = rhs.shape

        def times(x: Tensor) -> Tensor:
            dense = x.view(shape)
            parts = zip(self._longs, self._values, strict=True)
            return (sum(columns_product(op, dense) * own for op, own in parts) + self.noise * dense).reshape(-1, 1)

        return conjugate_gradients(times, rhs.reshape(-1, 1), tolerance=tolerance).value.view(shape)

    def _two_sided(self, tolerance: float) -> TwoSidedSeries | None:
        """The inverse as a series in both axes' sparse matrices, where there is one."""
        sides = [[op for op in side if isinstance(op, ChebyshevLinearOperator)] for side in (self._shorts, self._longs)]
        smooth = ChebyshevLinearOperator | DiagLinearOperator
        if self._special is not None or not all(isinstance(op, smooth) for op in (*self._shorts, *self._longs)):
            return None
        if not sides[0] or not sides[1]:
            return None
        terms = list(zip(self._shorts, self._longs, strict=True))
        return sum_inverse_series(terms, sides[0][0], sides[1][0], self.noise, tolerance / 10)

    def _on_nodes(self, nodes: Tensor) -> Tensor:
        """(S, n): what the kernels of the long side add up to for each eigenvalue, at Chebyshev nodes (n,)."""
        lines = []
        for op in self._longs:
            if isinstance(op, ChebyshevLinearOperator):
                lines.append(chebyshev.evaluate(chebyshev.coefficients(op.values.detach()), nodes).clamp_min(0))
            else:
                lines.append(op._diagonal()[0].expand(len(nodes)))
        return self._values.mT @ torch.stack(lines)


def sum_product(terms: Terms, x: Tensor) -> Tensor:
    """(R, N): the sum over terms of K_R X K_N; a row kernel that terms have in common is applied once."""
    groups: list[tuple[LinearOperator, Tensor]] = []  # row kernels, and what they are applied to
    out = torch.zeros_like(x)
    for row, col in terms:
        if _is_rank_one(row) or _is_rank_one(col):
            out += _thin_product(row, col, x)
            continue
        half = columns_product(col, x.mT).mT  # (R, N)
        for at, (other, total) in enumerate(groups):
            if _same(row, other):
                groups[at] = other, total + half
                break
        else:
            groups.append((row, half))
    for row, half in groups:
        out += columns_product(row, half)
    return out


def _thin_product(row: LinearOperator, col: LinearOperator, x: Tensor) -> Tensor:
    """(R, N): K_R X K_N with a kernel of rank one on an axis: one vector through the other kernel."""
    if isinstance(row, SpectralLinearOperator) and _is_rank_one(row):
        return (row.spectrum * row.vectors) @ col._matmul(x.mT @ row.vectors).mT
    assert isinstance(col, SpectralLinearOperator)
    return row._matmul(x @ col.vectors) @ (col.spectrum * col.vectors).mT


def _same(first: LinearOperator, second: LinearOperator) -> bool:
    """Whether two kernels are the same matrix, as far as their parts tell."""
    if type(first) is not type(second) or shared_source([first, second]) is None:
        return False
    parts = zip(first.representation(), second.representation(), strict=True)
    return all(a is b or (a.shape == b.shape and torch.equal(a, b)) for a, b in parts)


def _mean_diagonal(op: LinearOperator) -> float:
    """The mean variance, from some positions where all of them cost as much as many products."""
    if isinstance(op, ChebyshevLinearOperator) and op.shape[-1] > DIAGONAL_SAMPLE:
        some = torch.linspace(0, op.shape[-1] - 1, DIAGONAL_SAMPLE, device=op.device).long()
        return float(diagonal_at(op, some).mean())
    return float(op.diagonal().mean())


class RowsSumSystem(TermsSystem):
    """Any sum of terms, by conjugate gradients."""

    @cached_property
    def _single(self) -> RowsSumSystem:
        """The same in single precision."""
        terms = tuple((row.to(torch.float32), col.to(torch.float32)) for row, col in self.terms)
        return RowsSumSystem(terms, self.chosen, self.noise, self._special, self.special_noise, self.limits)

    @cached_property
    def _others(self) -> Terms:
        """The terms that are no main effects."""
        return tuple(term for term in self.terms if not any(_is_rank_one(op) for op in term))

    @cached_property
    def _preconditioner(self) -> Callable[[Tensor], Tensor]:
        """(R, N) to an approximation of the inverse times it, main effects left out."""
        norms = [spectral_bounds(row)[1] * spectral_bounds(col)[1] for row, col in self._others]
        sizes = [_mean_diagonal(row) * _mean_diagonal(col) for row, col in self._others]
        if 1 + sum(norms) / min(self.noise, self.special_noise) <= FLAT_CONDITION:
            if self._special is None:
                return lambda x: x / (self.noise + sum(sizes))
            ones = torch.ones(self.shape, dtype=self._dtype, device=self.chosen.device)
            diagonal = self.noise_times(ones).add_(sum(sizes))
            return lambda x: x / diagonal
        order = sorted(range(len(sizes)), key=lambda q: -sizes[q])
        together: list[int] = []
        for q in order:
            if _share(tuple(self._others[p] for p in (*together, q)), self.limits):
                together.append(q)
        together = together or order[:1]
        rest = sum(size for q, size in enumerate(sizes) if q not in together)
        system = make_rows_system(
            tuple(self._others[q] for q in together), self.chosen, self.noise + rest, limits=self.limits
        )
        return lambda x: system.inverse_times(x, 1e-6)

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.terms[0][0].dtype
        return dtype

    @cached_property
    def _effects(self) -> MainEffects | None:
        """The subspace of the main effects; None without any."""
        effects = [(axis, op.vectors) for term in self.terms for axis, op in enumerate(term) if _is_rank_one(op)]
        distinct: list[tuple[int, Tensor]] = []
        for axis, vectors in effects:
            if not any(axis == other and torch.allclose(vectors, known) for other, known in distinct):
                distinct.append((axis, vectors))
        return MainEffects(self, self.terms, distinct) if distinct else None

    def solve(self, rhs: Tensor, tolerance: float, max_iterations: int = 1000, start: Tensor | None = None) -> Solution:
        """X (R, N) with (K + D) X = B (R, N), with the measured residual, from ``start`` (R, N) if it is given.

        Large systems run in single precision, to a rough tolerance, and again from the true residual.
        """
        scale, value, left, iterations = float(rhs.norm()), torch.zeros_like(rhs), rhs, 0
        residual = 1.0 if scale > 0 else 0.0
        if start is not None and scale > 0:
            value, left = start, rhs - self.times(start)
            residual = float(left.norm()) / scale
        rough = rhs.dtype == torch.float64 and rhs.numel() >= SINGLE_FROM
        for _ in range(ROUNDS):
            if residual <= tolerance or iterations >= max_iterations:
                break
            goal, most = tolerance * scale / float(left.norm()), max_iterations - iterations
            if rough:
                step, used = self._single._iterate(left.float(), max(goal, SINGLE_TOLERANCE), most)
            else:
                step, used = self._iterate(left, goal, most)
            step = step.to(rhs) + value
            after = rhs - self.times(step)
            reached, iterations = float(after.norm()) / scale, iterations + used + 1
            if not reached < residual:
                if not rough:
                    break
                rough = False
                continue
            rough = rough and reached < 0.1 * residual  # else rounding stands in the way
            value, left, residual = step, after, reached
        return Solution(value, SolveReport("complete rows", residual, tolerance, iterations))

    def _iterate(self, rhs: Tensor, tolerance: float, max_iterations: int) -> tuple[Tensor, int]:
        """(R, N): conjugate gradients from zero, deflated, and the number of iterations."""
        effects, goal = self._effects, tolerance * float(rhs.norm())
        x = torch.zeros_like(rhs)
        r = rhs.clone()
        if effects is not None:
            x, image = effects.correct(r)
            r -= image
        z = self._conditioned(r)
        p, rz, used = z.clone(), _dot(r, z), 0
        while used < max_iterations and float(r.norm()) > goal and rz > 0:
            ap = self.times(p)
            used += 1
            report_step()
            rate = rz / _dot(p, ap)
            x.add_(p, alpha=rate)
            r.sub_(ap, alpha=rate)
            del ap
            z = self._conditioned(r)
            following = _dot(r, z)
            p.mul_(following / rz).add_(z)
            rz = following
        return x, used

    def _conditioned(self, r: Tensor) -> Tensor:
        """(R, N): the preconditioner with the main effects made exact."""
        z = self._preconditioner(r)
        if self._effects is None:
            return z
        return z + self._effects.complete(r, z)


def _is_rank_one(op: LinearOperator) -> bool:
    return isinstance(op, SpectralLinearOperator) and op.vectors.shape[1] == 1 and op.shape[-1] > 1


def _dot(a: Tensor, b: Tensor) -> float:
    """The inner product, in double precision."""
    return float((a * b).sum(dtype=torch.float64))
