r"""Products with :math:`P_L (K_M \otimes K_N) P_R^T`, where P_L and P_R pick cells of a grid.

The right-hand side is scattered into a matrix V, and the wanted cells of :math:`K_M V K_N^T` are read
off. V has few nonzeros and few cells are wanted, so each of the two stages has a cheap form:

=======================  ===============================  ================================
stage                    on the whole active grid         on the pairs only
=======================  ===============================  ================================
first,  X = V K_N^T      dense or lazy product            sparse V times dense K_N^T
second, K_M X at left    dense or lazy product, gather    ``sampled_addmm`` of K_M and X
=======================  ===============================  ================================

Together with the order (columns first or rows first) and, for few pairs, the dense matrix of all
pairs, that is a small set of plans; :func:`best_plan` takes the cheapest by the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from linear_operator import LinearOperator
from torch import Tensor

from . import cost
from .csr import BLOCK
from .factor import Factor
from .pairs import PairIndex

First = Literal["dense", "lazy", "sparse"]
Second = Literal["dense", "lazy", "sampled"]
GRID_BYTES = 512 * 2**20  # memory for the intermediate matrices of one batch of right-hand sides


@dataclass(frozen=True)
class Plan:
    """How a product is carried out, and the seconds it is expected to take."""

    seconds: float
    pairwise: bool = False  # by the dense matrix of all pairs
    rows_first: bool = False
    first: First = "dense"
    second: Second = "dense"


class PairProduct:
    """Both factors of one operator together with the cells it reads and writes.

    :param row_op: (M1, M2).
    :param col_op: (N1, N2).
    :param left: cells (of M1 x N1) of the result.
    :param right: cells (of M2 x N2) of the right-hand side.
    """

    def __init__(self, row_op: LinearOperator, col_op: LinearOperator, left: PairIndex, right: PairIndex) -> None:
        self.left, self.right = left, right
        same = left is right
        self.row = Factor(row_op, left.active_rows, left.active_rows if same else right.active_rows)
        self.col = Factor(col_op, left.active_cols, left.active_cols if same else right.active_cols)
        self.itemsize = cost.itemsize(row_op)

    @cached_property
    def pairwise(self) -> Tensor:
        """(Q, T) dense: the product of row and column covariances of every two pairs."""
        out = self.row.dense[self.left.local_rows][:, self.right.local_rows]
        return out.mul_(self.col.dense[self.left.local_cols][:, self.right.local_cols])

    @cached_property
    def plan(self) -> Plan:
        """The cheapest plan."""
        return best_plan(self)

    def __call__(self, rhs: Tensor, plan: Plan | None = None) -> Tensor:
        """(Q, C) from ``rhs`` (T, C)."""
        plan = plan or self.plan
        if plan.pairwise:
            return self.pairwise @ rhs
        left, right = (self.left.swapped, self.right.swapped) if plan.rows_first else (self.left, self.right)
        inner, outer = (self.row, self.col) if plan.rows_first else (self.col, self.row)
        grid = max(right.active_shape[0], left.active_shape[0]) * max(left.active_shape[1], right.active_shape[1])
        width = max(1, GRID_BYTES // (grid * self.itemsize))
        parts = []
        for start in range(0, rhs.shape[1], width):
            middle = _first_stage(inner, right, rhs[:, start : start + width], plan.first)
            parts.append(_second_stage(outer, left, middle, plan.second))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _first_stage(inner: Factor, right: PairIndex, rhs: Tensor, how: First) -> Tensor:
    """(C, M2', N1'): V K_N^T for each right-hand side."""
    height = right.active_shape[0]
    if how == "sparse":
        out = rhs.new_empty(rhs.shape[1], height, inner.out_size)
        for c in range(rhs.shape[1]):
            v = right.pattern.matrix(right.to_pattern(rhs[:, c]))  # (M2', N2') CSR
            for start in range(0, inner.out_size, BLOCK):
                out[c, :, start : start + BLOCK] = v @ inner.dense_t[:, start : start + BLOCK].contiguous()
        return out
    grid = right.scatter(rhs)  # (C, M2', N2')
    if how == "dense":
        return grid @ inner.dense.mT
    flat = grid.flatten(0, 1).mT  # (N2', C M2')
    return inner.apply(flat, lazily=True).mT.unflatten(0, (rhs.shape[1], height))


def _second_stage(outer: Factor, left: PairIndex, middle: Tensor, how: Second) -> Tensor:
    """(Q, C): the cells ``left`` of K_M X for each X of ``middle`` (C, M2', N1')."""
    if how == "sampled":
        found = [left.from_pattern(left.pattern.sample(outer.dense, x.mT)) for x in middle]
        return torch.stack(found, dim=1)
    if how == "dense":
        return left.gather(outer.dense @ middle)
    flat = middle.permute(1, 0, 2).flatten(1)  # (M2', C N1')
    grid = outer.apply(flat, lazily=True).unflatten(1, (middle.shape[0], middle.shape[2]))
    return left.gather(grid.permute(1, 0, 2))


def best_plan(product: PairProduct) -> Plan:
    """The plan with the least estimated time for one right-hand side."""
    left, right = product.left, product.right
    cells = len(left) * len(right)
    plans = []
    if cells * product.itemsize <= cost.MEMORY // 8 and product.row.dense_fits and product.col.dense_fits:
        setup = 2 * cells / cost.MOVE + product.row.setup_seconds + product.col.setup_seconds
        plans.append(Plan(cells / cost.GEMV + setup / cost.REUSE, pairwise=True))
    for rows_first in (False, True):
        inner, outer = (product.row, product.col) if rows_first else (product.col, product.row)
        height = right.active_shape[1 if rows_first else 0]
        first = _cheapest_first(inner, len(right), height)
        second = _cheapest_second(outer, len(left), inner.out_size, height)
        move = height * (inner.out_size + inner.into_size) / cost.MOVE / 4
        plans.append(
            Plan(first[0] + second[0] + move, rows_first=rows_first, first=first[1], second=second[1])  # type: ignore[arg-type]
        )
    return min(plans, key=lambda plan: plan.seconds)


def _cheapest_first(inner: Factor, entries: int, height: int) -> tuple[float, str]:
    """Seconds and name of the cheapest first stage: V (height, B) with so many entries."""
    sparse = float("inf")
    if inner.dense_fits:
        blocks = -(-inner.out_size // BLOCK)
        sparse = entries * inner.out_size / cost.SPARSE + blocks * cost.CALL + inner.setup_seconds / cost.REUSE
        sparse += inner.out_size * inner.into_size / cost.MOVE / 4  # blocks are copied to be contiguous
    options = {"dense": inner.dense_seconds(height), "lazy": inner.lazy_seconds(height), "sparse": sparse}
    name = min(options, key=lambda key: options[key])
    return options[name], name


def _cheapest_second(outer: Factor, entries: int, width: int, height: int) -> tuple[float, str]:
    """Seconds and name of the cheapest second stage: so many entries of K_M X, X (height, width)."""
    sampled = float("inf")
    if outer.dense_fits:
        blocks = -(-height // BLOCK)
        sampled = entries * height / cost.SAMPLED + blocks * cost.CALL + outer.setup_seconds / cost.REUSE
        sampled += height * width / cost.MOVE / 4
    gather = entries / cost.MOVE
    options = {
        "dense": outer.dense_seconds(width) + gather,
        "lazy": outer.lazy_seconds(width) + gather,
        "sampled": sampled,
    }
    name = min(options, key=lambda key: options[key])
    return options[name], name
