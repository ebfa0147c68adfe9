r"""The covariance given data, and its form for whole lists that are too long to be conditioned on cell by cell.

On whole lists every cell of many rows is observed, most of them with a small weight. A cell far from the one in
question has little influence, and a bound on it needs no look at the far cells: with x solving the system of the
nearest observations J and r the residual of the whole system,

.. math:: k^T A^{-1} k = k_J^T x + r^T A^{-1} r \le k_J^T x + \|r\|^2 / \mu

with mu a lower bound on the eigenvalues of A. On whole rows r is the difference of two matrices of low rank; its norm
follows from small Gram matrices.
"""

from __future__ import annotations

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from ..checks import check_positive
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import ConvergenceError, InputError, SizeError
from ..linalg.cost import DEFAULT_LIMITS, Limits
from ..linalg.pairs import PairIndex
from ..linalg.roots import columns, diagonal_at
from ..linalg.solvers import Method
from ..linalg.spectra import spectral_bounds
from ..priors.matrix_gp import MatrixGP
from .covariance import ConditionalCovariance
from .joint import Joint, check_joint_size
from .query import Query
from .variance import VarianceMethod, largest_factors, right_sides

Operators = tuple[LinearOperator, LinearOperator]
ACCURACY = 0.01  # relative, of a variance, unless another one is requested


class WholeListCovariance:
    """The covariance given whole lists, at some cells at a time; every variance has a proved accuracy.

    :param ops: the prior covariances (K_M, K_N).
    :param data: the positives; all cells of their rows are observed.
    :param noise: () noise variance of a positive; an unlabelled cell has noise / weight.
    :param tolerance: relative residual of solutions.
    :param limits: how many of the nearest observations are used.
    """

    def __init__(
        self,
        ops: Operators,
        data: PositiveUnlabelled,
        noise: Tensor,
        *,
        tolerance: float,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        device = ops[0].device
        self.ops, self.noise, self.weight, self.tolerance = ops, noise, data.weight, tolerance
        self.limits = limits
        self.pairs = PairIndex(data.rows.to(device), data.cols.to(device), data.shape)
        self._listed = data.pattern.chosen.to(device)  # (A,)
        self._positive = self.pairs.rows * data.shape[1] + self.pairs.cols  # (P,) ascending
        low = [spectral_bounds(op)[0] for op in ops]
        self.lowest_eigenvalue = low[0] * low[1] + float(noise)

    def _nearest(self, query: Query, count: int) -> ConditionalCovariance:
        """The covariance given the ``count`` observations nearest to the query's cells alone."""
        largest = largest_factors(query)
        rows = self._listed[_top(largest[0][self._listed], self.limits.list_candidates[0])]
        cols = _top(largest[1], self.limits.list_candidates[1])
        keys = rows.unsqueeze(1) * self.pairs.shape[1] + cols  # (a, b)
        at = torch.searchsorted(self._positive, keys).clamp_max(len(self._positive) - 1)
        noise = torch.where(self._positive[at] == keys, self.noise, self.noise / self.weight)  # (a, b)
        prior = diagonal_at(self.ops[0], rows).unsqueeze(1) * diagonal_at(self.ops[1], cols)
        size = largest[0][rows].unsqueeze(1) * largest[1][cols] / (prior + noise).sqrt()
        best = size.flatten().topk(min(count, size.numel())).indices
        key, order = keys.flatten()[best].sort()
        width = self.pairs.shape[1]
        return ConditionalCovariance(
            self.ops,
            PairIndex(key // width, key % width, self.pairs.shape),
            noise.flatten()[best][order],
            tolerance=self.tolerance,
            method="cholesky",
            limits=self.limits,
        )

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): at most a share ``accuracy``, one per cent by default, above the variance given every cell."""
        if method not in ("auto", "bounded"):
            raise InputError(f"method: the covariance of whole lists has 'bounded' alone, got {method!r}")
        accuracy = ACCURACY if accuracy is None else check_positive(accuracy, "accuracy")
        out = torch.empty_like(query.prior_variance())
        for row in query.pairs.active_rows.tolist():
            of_row = (query.pairs.rows == row).nonzero().squeeze(1)
            for group in of_row.split(self.limits.list_group):
                out[group] = self._bounded(query.part(group), accuracy)
        return out

    def _bounded(self, query: Query, accuracy: float) -> Tensor:
        prior, count = query.prior_variance(), self.limits.list_nearest
        while True:
            nearest = self._nearest(query, count)
            (_, rhs), *_ = right_sides(nearest, query, len(query))  # (J, q)
            x = nearest.solve(rhs)
            above = (prior - (rhs * x).sum(0)).clamp_min(0)
            missing = self._residual(query, nearest, x) / self.lowest_eigenvalue
            if (missing <= accuracy * (above - missing)).all():
                return torch.minimum(above, prior)
            if count >= self.limits.dense:
                worst = float((missing / above.clamp_min(torch.finfo(above.dtype).tiny)).max())
                raise ConvergenceError(
                    f"variances given whole lists are known to {worst:.2g} from the {count:,} nearest cells, "
                    f"{accuracy:g} was asked for; allow less accuracy"
                )
            count = min(2 * count, self.limits.dense)

    def _residual(self, query: Query, nearest: ConditionalCovariance, x: Tensor) -> Tensor:
        r"""(q,): :math:`\|r\|^2` over all cells of the listed rows.

        As a matrix, r is :math:`k_M k_N^T - K_M X K_N` on the listed rows, zero on the nearest cells.
        """
        pairs, cells = nearest.pairs, query.pairs
        left = torch.cat([query.row_side.columns(cells.active_rows), columns(self.ops[0], pairs.active_rows)], 1)
        right = torch.cat([query.col_side.columns(cells.active_cols), columns(self.ops[1], pairs.active_cols)], 1)
        gram_left, gram_right = left[self._listed].mT @ left[self._listed], right.mT @ right
        offset = len(cells.active_rows), len(cells.active_cols)
        total = x.new_empty(x.shape[1])
        for q in range(x.shape[1]):
            inner = x.new_zeros(left.shape[1], right.shape[1])
            inner[offset[0] + pairs.local_rows, offset[1] + pairs.local_cols] = -x[:, q]
            inner[cells.local_rows[q], cells.local_cols[q]] = 1.0
            total[q] = (inner * (gram_left @ inner @ gram_right)).sum()
        return (total - (nearest.noise.unsqueeze(1) * x).square().sum(0)).clamp_min(0)

    def joint(self, query: Query) -> Joint:
        """S at the query's cells, given the nearest observations; larger than S, if anything."""
        check_joint_size(query, self.limits)
        return self._nearest(query, self.limits.dense).joint(query)

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, dense; see :meth:`joint`."""
        return DenseLinearOperator(self.joint(query).matrix.to(self.noise.dtype))

    def everywhere(self, query: Query) -> LinearOperator:
        """Refused."""
        raise SizeError(
            f"the covariance given whole lists of {len(self._listed):,} rows is offered for some cells at a time, "
            "not for the whole grid"
        )

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples with mean 0; see :meth:`joint`."""
        return self.joint(query).sample(num_samples, generator).to(self.noise.dtype)


def _top(values: Tensor, count: int) -> Tensor:
    return values.topk(min(count, len(values))).indices


# A covariance from a prior and data ---------------------------------------------------------------


def kernel_operators(prior: MatrixGP, data: ObservedMatrix | PositiveUnlabelled) -> Operators:
    """(K_M, K_N) of a prior that fits the data."""
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    return prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach()


def condition(
    prior: MatrixGP,
    data: ObservedMatrix,
    noise: Tensor,
    *,
    tolerance: float,
    method: Method = "auto",
    max_iterations: int = 1000,
    ops: Operators | None = None,
    strict: bool = True,
) -> ConditionalCovariance:
    """The covariance given observed pairs; its solver is made when it is first needed.

    :param noise: () noise variance of an observation with weight 1.
    :param ops: (K_M, K_N), if they are known already.
    """
    ops = ops or kernel_operators(prior, data)
    device = ops[0].device
    pairs = PairIndex(data.rows.to(device), data.cols.to(device), data.shape)
    each = noise if data.weights is None else noise / data.weights.to(dtype=prior.dtype, device=device)
    return ConditionalCovariance(
        ops, pairs, each, tolerance=tolerance, method=method, max_iterations=max_iterations, strict=strict
    )


def whole_list_condition(
    ops: Operators, data: PositiveUnlabelled, noise: Tensor, *, tolerance: float, limits: Limits = DEFAULT_LIMITS
) -> ConditionalCovariance | WholeListCovariance:
    """The covariance given whole lists: every cell of the listed rows, with its noise divided by its weight."""
    if data.num_cells > limits.listed_cells:
        return WholeListCovariance(ops, data, noise, tolerance=tolerance, limits=limits)
    device = ops[0].device
    pattern = data.pattern.to(device)
    weights = torch.full((data.num_cells,), data.weight, dtype=ops[0].dtype, device=device)
    weights[data.positions.to(device)] = 1.0
    pairs = PairIndex(pattern.rows, pattern.cols, data.shape)
    return ConditionalCovariance(ops, pairs, noise / weights, tolerance=tolerance, limits=limits)
