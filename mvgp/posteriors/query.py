r"""The cells a posterior is asked about, and its mean there: :math:`\psi(m, n) = k_M(m)\, A\, k_N(n)^T`."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import InputError
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import CompleteRows, PairIndex, Pattern
from ..linalg.spectra import Terms, columns, diagonal_at, product_seconds, root
from ..priors.matrix_gp import Axis, MatrixGP
from ..tensor_checks import as_tensor, check_index

LINE_BATCH = 256  # rows or columns whose scores are computed at a time
CELLS_AT_ONCE = 1 << 16  # whose factors are multiplied at a time
FEW = 4  # a whole block of scores is computed where at least one in so many of them is asked for


class AxisQuery:
    """Positions on one axis: its own inputs, or new ones.

    :param axis: kernel and inputs.
    :param op: (n, n) covariance of the axis's own inputs.
    :param inputs: (*B, q, d) new inputs, with their gradient; ``None`` for the axis's own. Positions count within the q
        inputs of a batch.
    """

    def __init__(self, axis: Axis, op: LinearOperator, inputs: Any = None) -> None:
        self.axis, self.op = axis, op
        points = None if inputs is None else axis.new_inputs(inputs)
        self.batch_shape = torch.Size() if points is None else points.shape[:-2]
        self.size = len(axis) if points is None else int(points.shape[-2])  # q: how many positions there are to name
        self.inputs = (
            None if points is None else points.reshape(-1, points.shape[-1])
        )  # all batches, one after the other
        self._cross = None if self.inputs is None else axis.cross(self.inputs)

    @property
    def is_new(self) -> bool:
        """Whether the positions are new inputs."""
        return self.inputs is not None

    @property
    def carries_gradient(self) -> bool:
        """Whether answers carry a gradient to the new inputs."""
        return self.inputs is not None and self.inputs.requires_grad and torch.is_grad_enabled()

    def __len__(self) -> int:
        return len(self.axis) if self.inputs is None else int(self.inputs.shape[0])

    def flat(self, positions: Tensor) -> Tensor:
        """(*B', Q): where the inputs at ``positions`` (*B', Q) are among those of all batches; B' ends with B."""
        if not self.batch_shape:
            return positions
        count = math.prod(self.batch_shape)
        start = torch.arange(count, device=positions.device).reshape(*self.batch_shape, 1) * self.size
        return positions + start

    def cross(self) -> LinearOperator:
        """(q, n): covariance between the positions and the axis's own inputs."""
        return self.op if self._cross is None else self._cross

    def in_precision(self, op: LinearOperator) -> AxisQuery:
        """The same positions with the covariance ``op`` in another precision."""
        fresh = copy.copy(self)
        fresh.op = op
        fresh._cross = None if self._cross is None else self._cross.to(op.dtype)
        return fresh

    def covariance(self) -> LinearOperator:
        """(q, q): covariance among the positions."""
        return self.op if self.inputs is None else self.axis.block(self.inputs)

    def columns(self, which: Tensor) -> Tensor:
        """(n, k): covariance between the axis's own inputs and the positions ``which`` (k,)."""
        return columns(self.op, which) if self._cross is None else columns(self._cross.mT, which)

    def blocks(self, which: Tensor) -> Tensor:
        """(B, Q, Q): covariance among the positions ``which`` (B, Q) of each batch."""
        if self.inputs is not None:
            return self.axis.block(self.inputs[which]).to_dense()
        left, right = torch.broadcast_tensors(which.unsqueeze(-1), which.unsqueeze(-2))
        return self.op._get_indices(left.reshape(-1), right.reshape(-1)).reshape(left.shape)

    def diagonal(self, which: Tensor) -> Tensor:
        """(k,): prior variance factor at the positions ``which`` (k,)."""
        if self.inputs is None:
            return diagonal_at(self.op, which)
        return self.axis.kernel(self.inputs[which], diag=True)

    def extended(self) -> tuple[LinearOperator, int]:
        """Covariance of the axis's own inputs followed by the new ones, and where the positions start."""
        if self.inputs is None:
            return self.op, 0
        return self.axis.block(torch.cat([self.axis.inputs, self.inputs])), len(self.axis)


class Query:
    """Cells (row position, column position) under a prior of one term, of any shape: Q of them in all.

    :param prior: the prior.
    :param ops: its covariances (K_M, K_N).
    :param rows: positions on the row axis, or among ``row_inputs``.
    :param cols: positions on the column axis, or among ``col_inputs``. Both broadcast, and with the batch shapes of the
        inputs: (R, 1) against (C,) are R x C cells. A single number counts as (1,).
    """

    def __init__(
        self,
        prior: MatrixGP,
        ops: tuple[LinearOperator, LinearOperator],
        rows: Any,
        cols: Any,
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> None:
        self.prior = prior
        self.row_side = AxisQuery(prior.row_axis, ops[0], row_inputs)
        self.col_side = AxisQuery(prior.col_axis, ops[1], col_inputs)
        row = check_positions_of(rows, self.row_side.size, "rows")
        col = check_positions_of(cols, self.col_side.size, "cols")
        self.shape = _broadcast(row, col, self.row_side, self.col_side)
        device = ops[0].device
        row, col = (
            side.flat(positions.to(device).expand(self.shape)).reshape(-1)
            for side, positions in ((self.row_side, row), (self.col_side, col))
        )
        self.pairs = PairIndex(row, col, (len(self.row_side), len(self.col_side)))

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def is_new(self) -> bool:
        """Whether any position is a new input."""
        return self.row_side.is_new or self.col_side.is_new

    @property
    def carries_gradient(self) -> bool:
        """Whether answers carry a gradient to new inputs."""
        return self.row_side.carries_gradient or self.col_side.carries_gradient

    @property
    def batch_shape(self) -> torch.Size:
        """All dimensions but the last: a joint distribution is over the last one."""
        return self.shape[:-1]

    def part(self, which: Tensor) -> Query:
        """Some of the cells, at positions ``which`` (q,)."""
        fresh = copy.copy(self)
        fresh.pairs = self.pairs[which]
        fresh.shape = torch.Size([len(which)])
        return fresh

    def joined(self) -> Query:
        """The same cells in one batch, (Q,)."""
        fresh = copy.copy(self)
        fresh.shape = torch.Size([len(self)])
        return fresh

    def cells(self, rows: Tensor, cols: Tensor) -> Query:
        """Other cells (Q,) of the same axes and inputs."""
        fresh = copy.copy(self)
        fresh.pairs = PairIndex(rows, cols, self.pairs.shape)
        fresh.shape = rows.shape
        return fresh

    def lines(self, rows: Any) -> Tensor:
        """(R,) checked positions of whole rows, all of them for None; inputs in batches are refused."""
        for side, name in ((self.row_side, "row_inputs"), (self.col_side, "col_inputs")):
            if side.batch_shape:
                raise InputError(f"{name}: expected shape (n, d) for whole rows, got batches {tuple(side.batch_shape)}")
        count = len(self.row_side)
        return check_index(range(count) if rows is None else rows, count, "rows").to(self.pairs.rows.device)

    def line_means(self, coefficients: Coefficients, rows: Tensor) -> Tensor:
        """(R, N*): the mean of whole rows at positions ``rows`` (R,), without the prior mean."""
        return row_scores(coefficients, self.row_side, self.col_side, rows)

    def line_prior_means(self, rows: Tensor) -> Tensor:
        """(R, N*), or broadcastable to it: the prior mean of whole rows at positions ``rows`` (R,)."""
        mean, new_rows, new_cols = self.prior.mean_module, self.row_side.inputs, self.col_side.inputs
        known_rows = None if self.row_side.is_new else rows
        known_cols = None if self.col_side.is_new else torch.arange(len(self.col_side), device=rows.device)
        if not mean.uses_inputs:
            return mean.block(known_rows, known_cols)
        inputs = {"row_inputs": None if new_rows is None else new_rows[rows], "col_inputs": new_cols}
        return mean.block(known_rows, known_cols, **inputs)

    def in_precision(self, terms: Terms) -> Query:
        """The same cells under covariances in another precision."""
        fresh, (row_op, col_op) = copy.copy(self), terms[0]
        fresh.row_side, fresh.col_side = self.row_side.in_precision(row_op), self.col_side.in_precision(col_op)
        return fresh

    @property
    def parts(self) -> tuple[Query, ...]:
        """The cells under each term of the prior."""
        return (self,)

    def prior_mean(self) -> Tensor:
        """(Q,)"""
        mean: Any = self.prior.mean_module
        sides = (self.row_side, self.col_side)
        positions = self.pairs.rows, self.pairs.cols
        known = [None if side.is_new else at for side, at in zip(sides, positions, strict=True)]
        if not mean.uses_inputs:
            return mean.at(*known).expand(len(self))
        new = [None if side.inputs is None else side.inputs[at] for side, at in zip(sides, positions, strict=True)]
        return mean.at(*known, row_inputs=new[0], col_inputs=new[1]).expand(len(self))

    def prior_variance(self) -> Tensor:
        """(Q,)"""
        return self.row_side.diagonal(self.pairs.rows) * self.col_side.diagonal(self.pairs.cols)

    def prior_blocks(self) -> Tensor:
        """(B, Q', Q'): the prior's covariance within each of the B batches of Q' cells."""
        shape = (-1, self.shape[-1]) if len(self) else (math.prod(self.batch_shape), self.shape[-1])
        return self.row_side.blocks(self.pairs.rows.view(shape)) * self.col_side.blocks(self.pairs.cols.view(shape))

    def covariance(self) -> LinearOperator:
        """(Q, Q): the prior's covariance among the cells, lazy."""
        return PairLinearOperator(self.row_side.covariance(), self.col_side.covariance(), self.pairs)

    def cross(self, observed: PairIndex) -> LinearOperator:
        """(Q, T): the prior's covariance between the cells and the observed ones, K_*T, lazy."""
        return PairLinearOperator(self.row_side.cross(), self.col_side.cross(), self.pairs, observed)

    def cross_columns(self, observed: PairIndex, where: slice) -> Tensor:
        """(T, w): K_T* for the cells at ``where``."""
        part = self.pairs[where]
        of_rows = self.row_side.columns(part.active_rows)[observed.rows]  # (T, u)
        of_cols = self.col_side.columns(part.active_cols)[observed.cols]  # (T, v)
        return of_rows[:, part.local_rows] * of_cols[:, part.local_cols]

    def largest_factors(self) -> tuple[Tensor, Tensor]:
        """(M,) and (N,): the largest covariance of each row with any row of the query, and of each column likewise."""

        def largest(side: AxisQuery, active: Tensor) -> Tensor:
            return torch.stack([side.columns(part).abs().amax(1) for part in active.split(256)]).amax(0)

        return largest(self.row_side, self.pairs.active_rows), largest(self.col_side, self.pairs.active_cols)

    def prior_samples(
        self, observed: PairIndex, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """(S, Q) and (S, T): joint samples of the prior without its mean, at the cells and at the observed ones."""
        (row_op, row_start), (col_op, col_start) = self.row_side.extended(), self.col_side.extended()
        row_root, col_root = root(row_op), root(col_op)
        size = (row_root.shape[-1], col_root.shape[-1])
        here, there = [], []
        for _ in range(num_samples):
            noise = torch.randn(size, generator=generator, dtype=row_op.dtype, device=row_op.device)
            grid = col_root._matmul(row_root._matmul(noise).mT).mT
            here.append(grid[self.pairs.rows + row_start, self.pairs.cols + col_start])
            there.append(grid[observed.rows, observed.cols])
        return torch.stack(here), torch.stack(there)


def check_positions_of(index: Any, size: int, name: str) -> Tensor:
    """(..., Q) int64 positions in [0, size), of any shape; one number is (1,)."""
    tensor = as_tensor(index, name)
    if tensor.dim() < 2:
        return check_index(tensor, size, name)
    return check_index(tensor.reshape(-1), size, name).reshape(tensor.shape)


def _broadcast(rows: Tensor, cols: Tensor, row_side: AxisQuery, col_side: AxisQuery) -> torch.Size:
    """The shape of the cells."""
    batches = [torch.Size([*side.batch_shape, 1]) for side in (row_side, col_side)]
    try:
        return torch.broadcast_shapes(rows.shape, cols.shape, *batches)
    except RuntimeError:
        pass
    if rows.dim() == cols.dim() == 1 and not (row_side.batch_shape or col_side.batch_shape):
        raise InputError(f"rows and cols differ in length: {len(rows)} and {len(cols)}")
    inputs = [
        f"{name} in batches {tuple(side.batch_shape)}"
        for side, name in ((row_side, "row_inputs"), (col_side, "col_inputs"))
        if side.batch_shape
    ]
    shapes = [f"rows {tuple(rows.shape)}", f"cols {tuple(cols.shape)}", *inputs]
    raise InputError(f"rows, cols: expected shapes that broadcast, got {', '.join(shapes)}")


class SparseCoefficients:
    """A (M, N) with one of the ``values`` (T,) for each observed pair; whole rows are held as a dense block."""

    def __init__(self, pattern: Pattern | CompleteRows, values: Tensor) -> None:
        self.pattern, self.values = pattern, values
        self._matrix, self._matrix_t = pattern.matrix(values), pattern.matrix_t(values)

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseCoefficients:
        return SparseCoefficients(self.pattern, copy.deepcopy(self.values, memo))  # torch copies no CSR tensors

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseCoefficients, (self.pattern, self.values)

    def times(self, dense: Tensor) -> Tensor:
        """(M, k): A times (N, k)."""
        return self._matrix @ dense

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, k): A^T times (M, k)."""
        return self._matrix_t @ dense


@dataclass(frozen=True, eq=False)
class LowRankCoefficients:
    """A (M, N) = left right^T: the trace-constrained mean."""

    left: Tensor  # (M, R)
    right: Tensor  # (N, R)

    def times(self, dense: Tensor) -> Tensor:
        """(M, k): A times (N, k)."""
        return self.left @ (self.right.mT @ dense)

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, k): A^T times (M, k)."""
        return self.right @ (self.left.mT @ dense)


Coefficients = SparseCoefficients | LowRankCoefficients


class _Product(torch.autograd.Function):
    """A x, or A^T x, for constant coefficients A; its gradient is a product with the other one."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, coefficients: Coefficients, transposed: bool) -> Tensor:
        ctx.coefficients, ctx.transposed = coefficients, transposed
        return coefficients.times_t(dense) if transposed else coefficients.times(dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(gradients[0].contiguous(), ctx.coefficients, not ctx.transposed), None, None


def row_scores(coefficients: Coefficients, row_side: AxisQuery, col_side: AxisQuery, rows: Tensor) -> Tensor:
    """(R, N*): psi at the row positions ``rows`` (R,), all column positions; one chunk of rows' memory."""
    inner = _Product.apply(row_side.columns(rows).contiguous(), coefficients, True)  # (N, R)
    return _times(col_side, inner).mT


def _times(side: AxisQuery, dense: Tensor) -> Tensor:
    """(q, k): the covariance between positions and the axis's own inputs, times (n, k)."""
    cross = side.cross()
    if dense.requires_grad or side.carries_gradient:
        return cross.to_dense() @ dense if side.is_new else cross.matmul(dense)
    return cross._matmul(dense)


def pair_means(coefficients: Coefficients, query: Query) -> Tensor:
    """(Q,): psi at the query's cells: by the images of the factors, where these are few; line by line otherwise."""
    rows, cols, pairs = query.row_side, query.col_side, query.pairs
    fewest = min(len(pairs.active_rows), len(pairs.active_cols))
    if isinstance(coefficients, LowRankCoefficients) and 0 < coefficients.left.shape[1] <= fewest:
        left, right = _times(rows, coefficients.left), _times(cols, coefficients.right)  # (q, R) each
        cells = zip(pairs.rows.split(CELLS_AT_ONCE), pairs.cols.split(CELLS_AT_ONCE), strict=True)
        return torch.cat([(left[some_rows] * right[some_cols]).sum(1) for some_rows, some_cols in cells])
    by_rows = product_seconds(cols.cross(), 64) * len(pairs.active_rows)
    flipped = product_seconds(rows.cross(), 64) * len(pairs.active_cols) < by_rows
    active, local = (pairs.active_cols, pairs.local_cols) if flipped else (pairs.active_rows, pairs.local_rows)
    line_side, other = (cols, rows) if flipped else (rows, cols)
    across = pairs.rows if flipped else pairs.cols
    parts, order = [], []
    for start in range(0, len(active), LINE_BATCH):
        chosen = active[start : start + LINE_BATCH]
        inner = _Product.apply(line_side.columns(chosen).contiguous(), coefficients, not flipped)  # (n, k)
        here = ((local >= start) & (local < start + LINE_BATCH)).nonzero().squeeze(1)
        order.append(here)
        if other.is_new and FEW * len(here) < len(chosen) * len(other):  # cell by cell
            for some in here.split(LINE_BATCH):
                parts.append((other.columns(across[some]) * inner[:, local[some] - start]).sum(0))
        else:
            parts.append(_times(other, inner)[across[here], local[here] - start])
    if not parts:
        return torch.empty(0, dtype=rows.op.dtype, device=rows.op.device)
    values, places = torch.cat(parts), torch.cat(order)
    return values[torch.argsort(places)] if len(order) > 1 else values


def item_names(posterior: Any, exclude: Any, col_inputs: Any) -> tuple[str, ...] | None:
    """The names of items: those of ``exclude``, or of the data that were fitted; new items have none."""
    own = getattr(exclude, "col_names", None)
    if own is not None or col_inputs is not None:
        return own
    return getattr(getattr(getattr(posterior, "_fit", None), "data", None), "col_names", None)
