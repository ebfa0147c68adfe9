r"""Joint samples of a row given whole lists, and which kind of posterior offers samples of rows at all.

On whole lists every cell of the listed rows was observed: with noise variance :math:`\sigma^2 / w`, w the weight of an
unlabelled cell, and the positives with :math:`\sigma^2`. That is the same as every cell with :math:`s = \sigma^2 / w`,
and the positives once more, with :math:`\sigma^2 / (1 - w)`, since precisions add up.

Given the first the covariance between rows m and m' is a function of the column kernel,

.. math:: \Phi_{mm'}(x) = k_M(m, m')\, x - x^2\, k_m^T (x K_L + s)^{-1} k_{m'}

with :math:`K_L` the row kernel among the listed rows and :math:`k_m` its column at row m. The inverse is a Chebyshev
series in :math:`K_L`, the same powers for all x. As :math:`K_N` is a series in the graph's Laplacian, so are
:math:`\Phi_{mm}`, its root, and :math:`\Phi_{mm'} / \Phi_{mm}^{1/2}`. The positives then are few observations of this
process: :mod:`~mvgp.posteriors.row_samples` with :math:`R = \Phi_{mm}^{1/2}(K_N)` and columns
:math:`U = (\Phi_{mm'} / \Phi_{mm}^{1/2})(K_N)_{:n}` for each positive (m', n). Positives in rows far from m are left
out as there, with :math:`\max_x |\Phi|` in place of :math:`|k_M| \|K_N\|`.
"""

from __future__ import annotations

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg import chebyshev
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.spectra import spectral_bounds
from .covariance import ConditionalCovariance, PosteriorCovariance, WholeListCovariance, unscaled
from .query import AxisQuery, Query
from .row_samples import (
    BLOCK,
    LEFT_OUT,
    MOST_OBSERVATIONS,
    ROOT_ACCURACY,
    RowSampler,
    conditional_row,
    floor_variance,
    plain_sampler,
    rows_of,
    short_series,
    solution_sizes,
    symmetric_correction,
    times,
    working_precision,
)

INVERSE_TOLERANCE = 1e-7  # of the series of the inverse
MOST_TERMS = 64  # of it
NODES = 64  # at which functions of the column kernel are known


def row_sampler(covariance: PosteriorCovariance, query: Query) -> RowSampler | None:
    """Joint samples of the row of ``query``; None for a posterior, a kernel or data they are not offered for."""
    inner, scale = unscaled(covariance)
    sampler = None
    if isinstance(inner, ConditionalCovariance):
        sampler = conditional_row(inner, query)
    elif isinstance(inner, WholeListCovariance) and len(query.parts) == 1:
        sampler = _whole_list_row(inner, query.parts[0])
    return None if sampler is None else sampler.scaled(scale)


def _whole_list_row(lists: WholeListCovariance, query: Query) -> RowSampler | None:
    if query.col_side.is_new or not isinstance(query.col_side.op, ChebyshevLinearOperator):
        return None
    row, noise = query.pairs.active_rows, float(lists.noise)
    if len(row) != 1 or not float(query.row_side.diagonal(row)) > 0:
        return None
    base = _Base(lists.terms[0], lists._listed, noise / lists.weight, query.row_side, row)
    if not base.is_resolved:
        return None
    cells = len(lists._listed) * lists.pairs.shape[1]
    if lists.weight == 1:
        working = working_precision(base.col_op.dtype, noise, float(base.own.max()))
        return plain_sampler(short_series(base.operator(base.own.sqrt()).to(working)), cells)
    return _given_positives(lists, base, noise / (1 - lists.weight), cells)


class _Base:
    """The process given every cell of the listed rows with noise s, seen from a row.

    :param ops: the kernels (K_M, K_N).
    :param listed: (A,) rows that have a list.
    :param noise: s.
    :param side: where the row is from.
    :param row: (1,) its position.
    """

    def __init__(
        self, ops: tuple[LinearOperator, LinearOperator], listed: Tensor, noise: float, side: AxisQuery, row: Tensor
    ) -> None:
        self.row_op, self.listed, self.noise = ops[0], listed, noise
        assert isinstance(ops[1], ChebyshevLinearOperator)  # whoever makes it has looked
        self.col_op = ops[1]
        series = chebyshev.coefficients(self.col_op.values.detach())
        self._x = chebyshev.evaluate(series, chebyshev.nodes(NODES).to(series)).clamp_min(0).double()  # (n,)
        low, high = spectral_bounds(self.row_op)
        self._middle, self._half = (high + low) / 2, max((high - low) / 2, 1e-9 * high)
        points = self._middle + self._half * chebyshev.nodes(2 * MOST_TERMS)  # (2 I,) eigenvalues of K_L
        inverse = 1 / (self._x.unsqueeze(1) * points.to(self._x) + noise)  # (n, 2 I)
        inner = chebyshev.coefficients(inverse)
        degree = chebyshev.degree_needed(inner, INVERSE_TOLERANCE)
        self._inner = inner[:, : degree + 1]
        near = side.columns(row)  # (M, 1)
        prior = side.diagonal(row).double()
        self.is_resolved = degree < MOST_TERMS
        if self.is_resolved:
            forms, inside = self._forms(near)
            self.to_row = self._phi(near.double(), forms).squeeze(2)  # (n, M): Phi of the row with every row
            own = prior * self._x - self._x.square() * inside[0]
            self.own = own.clamp_min(0)  # (n,) Phi of the row itself
            rest = chebyshev.coefficients(self.own.sqrt())[NODES * 3 // 4 :].abs().sum()
            self.is_resolved = float(rest) <= ROOT_ACCURACY * float(self.own.sqrt().min()) and float(own.min()) > 0

    def _forms(self, near: Tensor) -> tuple[Tensor, Tensor]:
        """(n, M, R) and (R, n): K_M times (x K_L + s)^-1 k, and k^T (x K_L + s)^-1 k, for columns k (M, R)."""
        right = near[self.listed]  # (A, R)
        before, now = torch.zeros_like(right), right
        forms = near.new_zeros(len(self._x), *near.shape, dtype=torch.float64)
        inside = near.new_zeros(near.shape[1], len(self._x), dtype=torch.float64)
        for number, weights in enumerate(self._inner.mT):
            spread = torch.zeros_like(near).index_copy_(0, self.listed, now)
            image = times(self.row_op, spread)  # (M, R)
            forms += weights.view(-1, 1, 1) * image.double()
            inside += (right * now).sum(0).double().unsqueeze(1) * weights
            moved = (image[self.listed] - self._middle * now) / self._half
            before, now = now, moved if number == 0 else 2 * moved - before
        return forms, inside

    def _phi(self, near: Tensor, forms: Tensor) -> Tensor:
        """(n, M, R): Phi of every row with those whose columns of K_M are ``near`` (M, R)."""
        x = self._x.view(-1, 1, 1)
        return x * near.double() - x.square() * forms

    def between(self, rows: Tensor) -> Tensor:
        """(n, M, R): Phi of every row with ``rows`` (R,)."""
        near = rows_of(self.row_op, rows)
        return self._phi(near, self._forms(near)[0])

    def operator(self, values: Tensor) -> ChebyshevLinearOperator:
        """(N, N): the function of the column kernel with ``values`` (n,)."""
        return ChebyshevLinearOperator(values.to(self.col_op.dtype), self.col_op.matrix, self.col_op.tolerance)


def _given_positives(lists: WholeListCovariance, base: _Base, noise: float, cells: int) -> RowSampler | None:
    """The sampler given all cells, and the positives near the row once more, with ``noise``."""
    largest, pairs = float(base.own.max()), lists.pairs
    working = working_precision(base.col_op.dtype, noise, largest)
    whole = short_series(base.operator(base.own.sqrt()).to(working))
    assert isinstance(whole, ChebyshevLinearOperator)
    active = pairs.active_rows
    near = base.to_row[:, active].abs().amax(0)  # (M',)
    order = near.argsort(descending=True)
    rest = near[order].square().flip(0).cumsum(0).flip(0)
    allowed = LEFT_OUT * floor_variance(float(lists.noise), largest)
    target = 0.01 * allowed * noise
    while True:
        kept = active[order[: int((rest > target).sum())]].sort().values
        chosen = torch.isin(pairs.rows, kept).nonzero().squeeze(1)
        if len(chosen) > MOST_OBSERVATIONS:
            return None
        phi = base.between(kept)  # (n, M, R)
        rows, cols = pairs.rows[chosen], pairs.cols[chosen]
        slots = torch.searchsorted(kept, rows)  # (J,)
        reach, matrix = _functions(base, whole, phi[:, kept], kept, slots, cols)
        matrix.diagonal().add_(noise)
        gram = (reach.mT @ reach).double()
        others = active[~torch.isin(active, kept)]
        sizes = (largest * solution_sizes(matrix, gram, slots, len(kept))).sqrt()
        total = near[torch.searchsorted(active, others)] + phi[:, others].abs().amax(0) @ sizes
        left_out = float(total.square().sum()) / noise
        if left_out <= allowed:
            inner = symmetric_correction(matrix, gram).to(working)
            return RowSampler(((whole, 1.0),), reach, inner, cells - (len(pairs) - len(chosen)), left_out)
        target /= 10


def _functions(
    base: _Base, whole: ChebyshevLinearOperator, phi: Tensor, kept: Tensor, slots: Tensor, cols: Tensor
) -> tuple[Tensor, Tensor]:
    """U (N, J), and Phi among the J positives; ``phi`` (n, R, R), ``slots`` and ``cols`` (J,) are those of each."""
    if len(cols) == 0:
        return whole.values.new_zeros(whole.matrix.size, 0), base.own.new_zeros(0, 0)
    of_row = base.to_row[:, kept] / base.own.sqrt().unsqueeze(1)  # (n, R)
    out = chebyshev.coefficients(of_row.mT)  # (R, n)
    within = chebyshev.coefficients(phi.movedim(0, -1))  # (R, R, n)
    count = 1 + max(chebyshev.degree_needed(out, ROOT_ACCURACY), chebyshev.degree_needed(within, ROOT_ACCURACY))
    matrix, size = whole.matrix, whole.matrix.size
    reach = whole.values.new_zeros(size, len(cols))
    among = torch.zeros(len(cols), len(cols), dtype=torch.float64, device=cols.device)
    for start in range(0, len(cols), BLOCK):
        part = slice(start, start + BLOCK)
        picked = reach.new_zeros(size, len(cols[part])).scatter_(0, cols[part].unsqueeze(0), 1.0)
        for number, term in enumerate(chebyshev.polynomials(matrix, picked, count - 1)):
            reach[:, part] += term * out[slots[part], number].to(term)
            among[:, part] += term[cols].double() * within[slots][:, slots[part], number]
    return reach, (among + among.mT) / 2
