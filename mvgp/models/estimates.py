"""What a fit will take: operations and memory of kernels, products and solves, from sizes alone, nothing evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, ScaleKernel

from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..kernels.feature import ConstantKernel
from ..kernels.graph import GraphKernel
from ..linalg.cost import DEFAULT_LIMITS, GEMM, MEMORY, Estimate, Rates, Work, measured_rates
from ..linalg.solvers import PAIR_BATCH, PLAIN_CONDITION
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP

LONGEST_SERIES = 64  # terms of a Chebyshev series, where finding out would take long


@dataclass(frozen=True)
class AxisSize:
    """What a kernel on one axis costs, known without evaluating it.

    :param count: rows or columns.
    :param setup: to make the operator.
    :param column: a product with one column.
    :param entries: numbers that the operator keeps.
    :param ends: of its spectrum; None where nobody knows.
    """

    count: int
    setup: Work
    column: Work
    entries: float
    ends: tuple[float, float] | None = None

    @classmethod
    def of(cls, kernel: Any, count: int) -> AxisSize:
        """Of a gpytorch kernel on ``count`` inputs."""
        if isinstance(kernel, ScaleKernel):
            inner, scale = cls.of(kernel.base_kernel, count), float(kernel.outputscale.detach())
            return replace(inner, ends=inner.ends and (scale * inner.ends[0], scale * inner.ends[1]))
        if isinstance(kernel, AdditiveKernel):
            parts = [cls.of(part, count) for part in kernel.kernels]
            known = [part.ends for part in parts if part.ends is not None]
            return cls(
                count,
                sum((part.setup for part in parts), Work()),
                sum((part.column for part in parts), Work()),
                sum(part.entries for part in parts),
                (sum(low for low, _ in known), sum(high for _, high in known)) if len(known) == len(parts) else None,
            )
        dense = Work(gemm=float(count) ** 2, call=1)
        if isinstance(kernel, GraphKernel):
            values = kernel._function(torch.linspace(0, 2, 65, dtype=torch.float64)).detach()
            ends = float(values.min()), float(values.max())
            if kernel.uses_eigenpairs:
                return cls(count, Work(factor=float(count) ** 3), 2 * dense, 2.0 * count**2, ends)
            entries = float(2 * kernel.graph.num_links + count)
            column = Work(sparse=LONGEST_SERIES / 2 * entries, move=LONGEST_SERIES / 8 * count, call=1)
            return cls(count, Work(move=8 * entries), column, 2 * entries, ends)
        if isinstance(kernel, ConstantKernel):
            return cls(count, Work(call=4), Work(move=float(count), call=1), float(count))
        return cls(count, Work(move=4.0 * count**2), dense, float(count) ** 2)

    def best(self, columns: float, rates: Rates, reuse: float = 1.0) -> Work:
        """A product with so many columns, by the operator or by its dense block, formed once for ``reuse`` of them."""
        dense = Work(gemm=columns * self.count**2) + self.count / reuse * self.column
        lazy = columns * self.column
        fits = 8.0 * self.count**2 <= MEMORY
        return dense if fits and dense.seconds(rates) < lazy.seconds(rates) else lazy


class FitSize:
    """Sizes of a fit, and the work of its parts; nothing of the size of a kernel is made.

    :param prior: one term or several.
    :param data: observed entries, or whole lists.
    :param rates: those of this machine when left out.
    """

    def __init__(
        self, prior: MatrixGP | SumGP, data: ObservedMatrix | PositiveUnlabelled, rates: Rates | None = None
    ) -> None:
        if data.shape != prior.shape:
            raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
        self.rates, self.limits, self.prior = rates or measured_rates(), DEFAULT_LIMITS, prior
        self.lists = isinstance(data, PositiveUnlabelled)
        self.count = len(data.pattern)  # T
        self.axes = [
            (AxisSize.of(term.row_kernel, data.shape[0]), AxisSize.of(term.col_kernel, data.shape[1]))
            for term in prior.terms
        ]
        if isinstance(data, PositiveUnlabelled):
            self.active = len(data.pattern.chosen), data.shape[1]
        else:
            rows, cols = (int((at.bincount() > 0).sum()) for at in (data.rows, data.cols))
            self.active = rows, cols
        weights = getattr(data, "weights", None)
        self.complete = not self.lists and weights is None and self.count == data.shape[0] * data.shape[1]
        self.itemsize = prior.dtype.itemsize

    @property
    def setup(self) -> Work:
        """The operators of the kernels."""
        return sum((row.setup + col.setup for row, col in self.axes), Work())

    @property
    def entries(self) -> float:
        """Numbers that kernels and data keep, dense blocks of kernels included where they are small enough."""
        total = 5.0 * self.count
        for axis in (axis for pair in self.axes for axis in pair):
            total += axis.entries + (axis.count**2 if 8 * axis.count**2 <= MEMORY else 0)
        return total

    def product(self, columns: float = 1.0) -> Work:
        """K_TT times so many vectors, as :class:`~mvgp.linalg.pair_operator.PairProduct` does it."""
        rows, cols = self.active
        total = Work()
        for row, col in self.axes:
            ways = []
            for inner, outer, height, width in ((col, row, rows, cols), (row, col, cols, rows)):
                first = [Work(sparse=float(self.count * width)), inner.best(height, self.rates, 50)]
                second = [Work(sparse=2.5 * self.count * height), outer.best(width, self.rates, 50)]
                ways.append(self.cheapest(first) + self.cheapest(second) + Work(move=float(2 * rows * cols), call=20))
            total += self.cheapest(ways)
        return columns * total

    def cheapest(self, ways: Sequence[Work]) -> Work:
        """The one that takes the least time."""
        return min(ways, key=lambda work: work.seconds(self.rates))

    def factor_products(self, columns: float) -> Work:
        """A step of a mean of low rank: both kernels and the observed entries, with so many columns."""
        total = Work(gemm=6.0 * sum(self.active) * columns**2, call=400)
        for row, col in self.axes:
            each = 2 * (row.best(columns, self.rates, 200) + col.best(columns, self.rates, 200))
            cells = self.count * columns
            total += each + (Work(gemm=4.0 * cells) if self.lists else Work(sparse=4.5 * cells))
        return total

    def condition(self, noise: float) -> float | None:
        """Bound on the condition number of K_TT + D with equal noise; None where nobody knows."""
        low = high = noise
        for row, col in self.axes:
            if row.ends is None or col.ends is None:
                return None
            low, high = low + row.ends[0] * col.ends[0], high + row.ends[1] * col.ends[1]
        return high / low

    def cg_iterations(self, noise: float, tolerance: float) -> float:
        """Expected iterations of conjugate gradients."""
        condition = self.condition(noise)
        if condition is None or condition > PLAIN_CONDITION:
            return 60.0  # preconditioned
        return 2.0 + 0.4 * condition**0.5 * math.log(2 / tolerance)

    def solve_method(self, method: str) -> str:
        """How K_TT + D is solved, by the rule of :func:`~mvgp.linalg.solvers.make_solver`."""
        small = max(self.active) <= self.limits.eigenpairs
        if method != "auto":
            return method
        if self.complete and small and (len(self.axes) == 1 or self._share_eigenvectors()):
            return "spectral"
        return "cholesky" if self.count <= self.limits.cholesky else "cg"

    def _share_eigenvectors(self) -> bool:
        """Whether all terms have kernels of one graph, small enough for its eigenpairs, on each axis."""
        sides = ([getattr(term, f"{name}_kernel") for term in self.prior.terms] for name in ("row", "col"))
        return all(
            all(isinstance(kernel, GraphKernel) and kernel.uses_eigenpairs for kernel in side)
            and len({id(kernel.graph) for kernel in side}) == 1
            for side in sides
        )

    def solve(self, method: str, noise: float, tolerance: float) -> tuple[Work, float]:
        """One system with K_TT + D, and the numbers that it keeps."""
        count, (rows, cols) = float(self.count), self.active
        if method == "cholesky":
            return Work(gemm=count**3 / 2, move=4 * count**2), 4 * count**2
        grid = float(rows * cols)
        if method == "spectral":
            return Work(factor=float(rows) ** 3 + float(cols) ** 3, gemm=6 * grid * (rows + cols)), 6 * grid
        iterations = self.cg_iterations(noise, tolerance)
        work, kept = iterations * self.product(), 12 * count + 3 * grid
        condition = self.condition(noise)
        if condition is None or condition > PLAIN_CONDITION:
            sides = [min(size, self.limits.eigenpairs) for size in self.active]
            rank = min(4096.0, (20 * GEMM / max(count, 1)) ** 0.5, float(sides[0] * sides[1]))
            setup = Work(factor=sum(float(size) ** 3 for size in sides), gemm=2 * min(count * rank**2, 20 * GEMM))
            work, kept = work + len(self.axes) * setup, kept + 5 * rank**2 + 2 * PAIR_BATCH * rank
        return work, kept

    def estimate(self, what: str, method: str, work: Work, entries: float) -> Estimate:
        """The sum of it, with the kernels."""
        m, n = self.prior.shape
        cells = f"{self.count:,} cells of whole lists" if self.lists else f"{self.count:,} observed cells"
        needed = self.itemsize * (self.entries + entries)
        text = f"{what} on {cells} of a {m:,} x {n:,} matrix"
        return Estimate((self.setup + work).seconds(self.rates), int(needed), method, text)
