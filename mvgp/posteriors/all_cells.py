r"""The variance of every cell of some rows, by random signs, with an error bar on each.

What observations take from the prior's variance of a cell is :math:`k^T A^{-1} k` with :math:`A = K_{TT} + D` and k the
cell's column of :math:`K_{T*}`. Split :math:`A^{-1} = E + R` with E diagonal. Of E it is
:math:`\sum_t k_t^2 E_{tt}`, and the squares of a Kronecker product are the Kronecker product of the squares, so that
all cells together cost one matrix product. Of R, with signs v, :math:`(k^T v)(k^T R v)` has the right
expectation, no contribution from the diagonal to its spread, and for all cells together costs two products. Where few
cells are observed nearly all of the reduction is in E, and a few signs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..checks import check_choice, check_positive, check_seed, check_whole_number
from ..errors import InputError
from ..linalg import cost
from ..linalg.pairs import PairIndex
from ..linalg.spectra import Factor, Terms, columns, diagonal_at
from ..linalg.sums import product_seconds
from ..progress import Progress, check_progress, progress_bar
from .covariance import ConditionalCovariance, PosteriorCovariance, unscaled
from .query import Query
from .system import EXPECTED_ITERATIONS

RowsMethod = Literal["auto", "exact", "stochastic"]
EXACT_SECONDS = 60.0  # up to which exact variances are worth their time

TILE_BYTES = 64 * 2**20  # one dense block of cells
BATCH = 32  # probes between two looks at the error
SKEW = 16  # forms are skewed, and the spread of few of them is too small: measured, 1.5 for 32 probes
SETTLED = 0.99  # share of the cells of a block that have to be accurate enough


@dataclass(frozen=True)
class VarianceEstimate:
    """Variances of whole rows.

    :param values: (R, N), between 0 and the prior's.
    :param error: (R, N) standard errors of the values; 0 where they are exact.
    :param probes: largest number of random vectors used for a block; 0 for exact values.
    """

    values: Tensor
    error: Tensor
    probes: int

    @property
    def std(self) -> Tensor:
        """(R, N): standard deviations."""
        return self.values.sqrt()

    def __repr__(self) -> str:
        rows, cols = self.values.shape
        how = f"estimated from {self.probes} random vectors" if self.probes else "exact"
        return f"{type(self).__name__}({rows} x {cols}, {how})"


def row_variances(
    conditional: PosteriorCovariance,
    query: Query,
    rows: Tensor,
    method: RowsMethod,
    accuracy: float,
    max_probes: int,
    seed: int,
    progress: Progress,
) -> VarianceEstimate:
    """Variances of whole rows (R,), exact or estimated; ``query`` knows the axes, and new inputs if there are any."""
    check_choice(method, "method", ("auto", "exact", "stochastic"))
    accuracy, max_probes = check_positive(accuracy, "accuracy"), check_whole_number(max_probes, "max_probes")
    seed, progress = check_seed(seed), check_progress(progress)
    conditional, scale = unscaled(conditional)
    if query.is_new and method == "stochastic":
        raise InputError("method: stochastic variances are for the prior's own rows and columns; use 'exact'")
    if isinstance(conditional, ConditionalCovariance) and not query.is_new:
        slow = method == "auto" and _exact_seconds(conditional, len(rows)) > EXACT_SECONDS
        if method == "stochastic" or slow:
            estimate = _estimate(conditional, rows, accuracy, max_probes, seed, progress)
            return VarianceEstimate(scale * estimate.values, scale * estimate.error, estimate.probes)
    elif method == "stochastic":
        raise InputError(f"method: {type(conditional).__name__} has no stochastic variances, got {method!r}")
    cols = torch.arange(query.pairs.shape[1], device=rows.device)
    values = []
    with progress_bar("variances", len(rows), unit="rows", progress=progress) as bar:
        for row in rows:
            values.append(conditional.variance(query.cells(row.expand(len(cols)), cols)))
            bar.update()
    exact = scale * torch.stack(values) if values else cols.new_zeros(0, len(cols), dtype=torch.float64)
    return VarianceEstimate(exact, torch.zeros_like(exact), 0)


def _exact_seconds(conditional: ConditionalCovariance, num_rows: int) -> float:
    """Estimated time of exact variances of whole rows."""
    if conditional.is_closed_form:
        return 0.0
    cells, count = num_rows * conditional.pairs.shape[1], len(conditional.pairs)
    if count <= conditional.limits.dense:
        return (count**3 / 6 + cells * count**2 / 2) / cost.GEMM
    return cells * EXPECTED_ITERATIONS * product_seconds(conditional.covariance)


def _estimate(
    conditional: ConditionalCovariance, rows: Tensor, accuracy: float, max_probes: int, seed: int, progress: Progress
) -> VarianceEstimate:
    """Variances of whole rows (R,) by random vectors; the error bars tell what ``max_probes`` of them were good for."""
    pairs, terms = conditional.pairs, conditional.terms
    lines = rows, torch.arange(pairs.shape[1], device=rows.device)
    turned = len(pairs.active_cols) < len(pairs.active_rows)  # the shorter inner axis is the cheaper one
    if turned:
        pairs, terms, lines = pairs.swapped, tuple((col, row) for row, col in terms), (lines[1], lines[0])
    cells = _Cells(pairs, terms, lines[0])
    diagonal = conditional.inverse_diagonal()
    probes = _Probes(conditional, diagonal, seed)
    prior = [
        torch.stack([diagonal_at(ops[axis], which) for ops in terms], dim=1).float() for axis, which in enumerate(lines)
    ]  # (R, Q) and (N, Q)
    values = torch.empty(len(lines[0]), len(lines[1]), dtype=terms[0][0].dtype, device=rows.device)
    error, largest = torch.empty_like(values), 0
    width = max(64, TILE_BYTES // (4 * max(len(lines[0]), pairs.active_shape[0], pairs.active_shape[1])))
    with progress_bar("variances", len(lines[1]), unit="lines", progress=progress) as bar:
        for start in range(0, len(lines[1]), width):
            where = slice(start, start + width)
            block = cells.block(lines[1][where])
            before = prior[0] @ prior[1][where].mT
            left = before - cells.squares(diagonal.float(), block)
            values[:, where], error[:, where], used = _settle(cells, block, probes, before, left, accuracy, max_probes)
            largest = max(largest, used)
            bar.update(before.shape[1])
    if turned:
        values, error = values.mT, error.mT
    if conditional.has_dense:
        _put_observed(conditional, diagonal, rows, values, error)
    return VarianceEstimate(values, error, largest)


def _settle(
    cells: _Cells, block: list[Tensor], probes: _Probes, prior: Tensor, left: Tensor, accuracy: float, max_probes: int
) -> tuple[Tensor, Tensor, int]:
    """Variances (R, w), errors, the number of probes; ``left`` is the prior's less the diagonal's share."""
    total, squares, count = torch.zeros_like(left), torch.zeros_like(left), 0
    while True:
        for signs, rest in probes.batch(count // BATCH):
            form = cells.linear(signs, block).mul_(cells.linear(rest, block))
            total += form
            squares.addcmul_(form, form)
        count += BATCH
        mean = total / count
        error = (squares / count - mean.square()).clamp_min(0).div_(count - 1).sqrt_().mul_(1 + SKEW / count)
        value = torch.minimum((left - mean).clamp_min(0), prior)
        # a standard deviation is off by half of what its square is off by, relative to each
        settled = float((error <= accuracy * value).float().mean())
        if settled >= SETTLED or count >= max_probes:
            return value, error, count


def _put_observed(
    conditional: ConditionalCovariance, diagonal: Tensor, rows: Tensor, values: Tensor, error: Tensor
) -> None:
    r"""Observed cells in closed form: :math:`S_{TT} = D - D A^{-1} D`, since :math:`K_{TT} = A - D`."""
    position = torch.full((conditional.pairs.shape[0],), -1, device=rows.device)
    position[rows] = torch.arange(len(rows), device=rows.device)
    at = position[conditional.pairs.rows]
    observed = at >= 0
    noise = conditional.noise.expand(len(diagonal))
    variance = (noise - noise.square() * diagonal).clamp_min(0)
    values[at[observed], conditional.pairs.cols[observed]] = variance[observed]
    error[at[observed], conditional.pairs.cols[observed]] = 0.0


class _Probes:
    """Signs v with R v, made on demand, in single precision; ``diagonal`` (T,) is E."""

    def __init__(self, conditional: ConditionalCovariance, diagonal: Tensor, seed: int) -> None:
        self._conditional, self._diagonal = conditional, diagonal
        self._generator = torch.Generator().manual_seed(seed)
        self._made: list[list[tuple[Tensor, Tensor]]] = []

    def batch(self, number: int) -> list[tuple[Tensor, Tensor]]:
        """BATCH pairs (T,) and (T,)."""
        while len(self._made) <= number:
            size = (len(self._diagonal), BATCH)
            signs = 2.0 * torch.randint(0, 2, size, generator=self._generator).to(self._diagonal) - 1
            rest = self._conditional.solve(signs) - self._diagonal.unsqueeze(1) * signs
            self._made.append(list(zip(signs.float().mT.contiguous(), rest.float().mT.contiguous(), strict=True)))
        return self._made[number]


class _Cells:
    """The forms of a grid of cells: the ``lines`` (R,) of the dense axis, rows here, by a block across at a time."""

    def __init__(self, pairs: PairIndex, terms: Terms, lines: Tensor) -> None:
        self._pairs, self._across = pairs, [across for _, across in terms]
        self._dense = [Factor(dense, lines, pairs.active_rows).dense.float() for dense, _ in terms]  # (R, M') each

    def block(self, across: Tensor) -> list[Tensor]:
        """(N', w) for each term: covariance of the observed positions and the requested ones ``across`` (w,)."""
        return [columns(op, across)[self._pairs.active_cols].float() for op in self._across]

    def linear(self, weights: Tensor, block: list[Tensor]) -> Tensor:
        """(R, w): k^T times weights (T,) for every cell."""
        matrix = self._sparse(weights)
        first, *others = (dense @ (matrix @ part) for dense, part in zip(self._dense, block, strict=True))
        return sum(others, first)

    def squares(self, weights: Tensor, block: list[Tensor]) -> Tensor:
        """(R, w): the sum of weights k^2 for every cell; the square of a sum is a sum over pairs of terms."""
        matrix, out = self._sparse(weights), torch.zeros(())
        for q, (dense, part) in enumerate(zip(self._dense, block, strict=True)):
            for other in range(q + 1):
                times = 1.0 if other == q else 2.0
                out = out.to(dense) + times * ((dense * self._dense[other]) @ (matrix @ (part * block[other])))
        return out

    def _sparse(self, weights: Tensor) -> Tensor:
        return self._pairs.pattern.matrix(self._pairs.to_pattern(weights))  # (M', N') CSR
