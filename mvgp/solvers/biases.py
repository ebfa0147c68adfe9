r"""A row bias and a column bias, estimated jointly with the rest: squared loss with the biases optimised out.

.. math:: f(\psi) = \min_{a, c} \tfrac12 \sum_t w_t (\psi_t + a_{m_t} + c_{n_t} - r_t)^2
          + \tfrac{\rho}{2} \|a\|^2 + \tfrac{\gamma}{2} \|c\|^2

By the envelope theorem its gradient is that of the inner function at the best biases.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_float_tensor, check_not_negative, check_positive, check_shape
from ..errors import InputError
from ..linalg.cg import conjugate_gradients
from ..linalg.checks import check_positions
from .losses import LossValue, check_loss_weights, check_psi, weighted_square


class BiasedSquaredLoss:
    r"""Squared loss less what the best biases :math:`a_m, c_n` explain.

    .. math:: f(\psi) = \min_{a, c} \tfrac12 \sum_t w_t (\psi_t + a_{m_t} + c_{n_t} - r_t)^2
              + \tfrac{\rho}{2} \|a\|^2 + \tfrac{\gamma}{2} \|c\|^2

    :param targets: (T,) r.
    :param weights: (T,) w, or None for 1.
    :param rows: (T,) row of each pair.
    :param cols: (T,) column of each pair.
    :param shape: (M, N).
    :param row_penalty: rho >= 0, or None for no row bias. 0 is the paper's.
    :param col_penalty: gamma > 0, or None for no column bias.
    """

    def __init__(
        self,
        targets: Tensor,
        weights: Tensor | None,
        rows: Tensor,
        cols: Tensor,
        shape: tuple[int, int],
        row_penalty: float | None,
        col_penalty: float | None,
    ) -> None:
        if row_penalty is None and col_penalty is None:
            raise InputError("expected a row penalty or a column penalty; without either use SquaredLoss")
        row_penalty = None if row_penalty is None else check_not_negative(row_penalty, "row_penalty")
        col_penalty = None if col_penalty is None else check_positive(col_penalty, "col_penalty")
        self.targets, self.shape = check_float_tensor(targets, "targets", (None,), finite=True), check_shape(shape)
        check_loss_weights(weights, len(targets))
        self.rows = check_positions(rows, self.shape[0], "rows")
        self.cols = check_positions(cols, self.shape[1], "cols")
        if not len(rows) == len(cols) == len(targets):
            lengths = f"{len(rows)}, {len(cols)} and {len(targets)}"
            raise InputError(f"rows, cols, targets: expected the same length, got {lengths}")
        self.weights = torch.ones_like(targets) if weights is None else weights
        self.row_penalty, self.col_penalty = row_penalty, col_penalty
        self._row_mass = self._by_row(self.weights) + (row_penalty or 0.0)
        self._row_mass[self._row_mass == 0] = 1.0  # rows without a pair keep bias 0
        self._col_mass = self._by_col(self.weights) + (col_penalty or 0.0)
        self._col_mass[self._col_mass == 0] = 1.0

    @property
    def curvature(self) -> float:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        return float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        return weighted_square(step, self.weights)

    def _by_row(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.shape[0]).index_add_(0, self.rows, values)

    def _by_col(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.shape[1]).index_add_(0, self.cols, values)

    def biases(self, psi: Tensor) -> tuple[Tensor, Tensor]:
        """(M,) and (N,): the best row and column biases for ``psi`` (T,); zeros where there is none."""
        left = self.weights * (self.targets - check_psi(psi, len(self.targets)))
        row_bias, col_bias = psi.new_zeros(self.shape[0]), psi.new_zeros(self.shape[1])
        if self.col_penalty is None:
            return self._by_row(left) / self._row_mass, col_bias
        if self.row_penalty is None:
            return row_bias, self._by_col(left) / self._col_mass
        # with both, the row bias is eliminated and the column biases solve a positive definite system
        row_sums, row_mass, col_mass = self._by_row(left), self._row_mass, self._col_mass

        def schur(c: Tensor) -> Tensor:
            spread = self._by_row(self.weights * c[self.cols, 0]) / row_mass
            return col_mass.unsqueeze(1) * c - self._by_col(self.weights * spread[self.rows]).unsqueeze(1)

        rhs = self._by_col(left) - self._by_col(self.weights * (row_sums / row_mass)[self.rows])
        tolerance = 1e-12 if psi.dtype == torch.float64 else 1e-6
        solved = conjugate_gradients(
            schur, rhs.unsqueeze(1), tolerance=tolerance, preconditioner=lambda r: r / col_mass.unsqueeze(1)
        )
        col_bias = solved.checked().value.squeeze(1)
        row_bias = (row_sums - self._by_row(self.weights * col_bias[self.cols])) / row_mass
        return row_bias, col_bias

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        row_bias, col_bias = self.biases(psi)
        off = psi + row_bias[self.rows] + col_bias[self.cols] - self.targets
        gradient = self.weights * off
        square = float((gradient.double() * off.double()).sum())
        # at the best biases the gradient sums to -penalty x bias along rows and columns; the conjugate of an
        # optimised-out bias is its squared sum over twice the penalty
        penalty = (self.row_penalty or 0.0) * float(row_bias.double().square().sum())
        penalty += (self.col_penalty or 0.0) * float(col_bias.double().square().sum())
        linear = float((gradient.double() * self.targets.double()).sum())
        return LossValue((square + penalty) / 2, gradient, linear, square + penalty)
