r"""A row bias and a column bias, estimated jointly with the rest: squared loss with the biases optimised out.

.. math:: f(\psi) = \min_{a, c} \tfrac12 \sum_t w_t (\psi_t + a_{m_t} + c_{n_t} - r_t)^2
          + \tfrac{\rho}{2} \|a\|^2 + \tfrac{\gamma}{2} \|c\|^2

By the envelope theorem its gradient is that of the inner function at the best biases.

Losses on the observed pairs.

Every loss here is :math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t(\psi))^2 + \text{extra}`: a squared distance
to targets that may themselves depend on :math:`\psi`, because something (a bias, a ranking) has been
optimised out. Its gradient is :math:`\theta = w (\psi - r(\psi))`, and :math:`w`-Lipschitz.

The loss of a ranking with its targets optimised out: half the squared distance to a set, equation (9).

.. math:: f(\psi) = \min_{r \in C} \tfrac12 \sum_t w_t (\psi_t - r_t)^2

It is convex and smooth; by the envelope theorem its gradient is that of the squared loss at the nearest r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..checks import check_callable, check_float_tensor, check_not_negative, check_positive, check_shape, refuse_where
from ..errors import InputError
from ..linalg.checks import check_positions
from ..linalg.conjugate_gradients import conjugate_gradients
from .lists import check_targets

PIECE = 1 << 16  # entries summed at a time


@dataclass(frozen=True)
class LossValue:
    """A loss at one psi.

    :param value: f(psi).
    :param gradient: (T,) theta.
    :param linear: <theta, r(psi)>, the part of f*(c theta) that is linear in c.
    :param quadratic: twice the part that is quadratic in c: sum theta^2 / w, and what a penalised bias adds.
    """

    value: float
    gradient: Tensor
    linear: float
    quadratic: float

    def conjugate(self, scale: float) -> float:
        """f*(scale theta), for scale in [0, 1]."""
        return scale**2 / 2 * self.quadratic + scale * self.linear


class Loss(Protocol):
    """A convex differentiable function of psi at the T observed pairs."""

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the gradient: the largest weight."""
        ...

    def bend(self, step: Tensor) -> float:
        """A bound on the second derivative along ``step`` (T,): sum of w step^2."""
        ...

    def __call__(self, psi: Tensor) -> LossValue:
        """Value, gradient and conjugate at ``psi`` (T,)."""
        ...


def check_loss_weights(weights: Tensor | None, length: int | None = None) -> Tensor | None:
    """(T,) finite and positive, as they are, or None for 1."""
    if weights is not None:
        check_float_tensor(weights, "weights", (length,), finite=True)
        refuse_where(weights <= 0, weights, "weights", "a positive number")
    return weights


def check_psi(psi: Tensor, length: int | None, name: str = "psi") -> Tensor:
    """(T,) finite numbers at the observed pairs."""
    return check_float_tensor(psi, name, (length,), finite=True)


def weighted_square(step: Tensor, weights: Tensor | None) -> float:
    """Sum of w step^2, in double precision."""
    check_psi(step, None if weights is None else len(weights), "step")
    return long_dot(step, step if weights is None else weights * step)


def long_dot(a: Tensor, b: Tensor) -> float:
    """<a, b> in double precision, in pieces that stay in cache."""
    return sum(float(x.double() @ y.double()) for x, y in zip(a.split(PIECE), b.split(PIECE), strict=True))


class SquaredLoss:
    r""":math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t)^2`.

    :param targets: (T,) r.
    :param weights: (T,) w, or None for 1.
    """

    def __init__(self, targets: Tensor, weights: Tensor | None = None) -> None:
        self.targets = check_float_tensor(targets, "targets", (None,), finite=True)
        self.weights = check_loss_weights(weights, len(targets))

    @property
    def curvature(self) -> float:
        """See :class:`Loss`."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        check_psi(step, len(self.targets), "step")
        return weighted_square(step, self.weights)

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`Loss`."""
        off = check_psi(psi, len(self.targets)) - self.targets
        gradient = off if self.weights is None else self.weights * off
        square = float((gradient.double() * off.double()).sum())
        return LossValue(square / 2, gradient, float((gradient.double() * self.targets.double()).sum()), square)


class SingleLoss:
    """A loss of double precision behind a face of single precision.

    :param loss: takes and gives double precision.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    @property
    def curvature(self) -> float:
        """See :class:`Loss`."""
        return self.loss.curvature

    def bend(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        return self.loss.bend(step.double())

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`Loss`."""
        found = self.loss(psi.double())
        return replace(found, gradient=found.gradient.float())


class RetargetedLoss:
    r"""Equation (9) for any closed convex set, known by its projection.

    Its conjugate is half of :math:`\sum \theta^2 / w` plus the support function of the set, which at
    :math:`\theta = w (\psi - r(\psi))` is :math:`\langle\theta, r\rangle`, and linear along the ray through theta;
    so the certificate (11) holds as for the squared loss.

    :param retarget: psi (T,) -> r (T,), the projection onto the set in the norm with these weights; not differentiated.
    :param weights: (T,) w, or None for 1.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods.losses import RetargetedLoss
        >>> loss = RetargetedLoss(lambda psi: psi.clamp(min=1.0))  # the set of numbers from 1 on
        >>> loss(torch.tensor([0.0, 3.0])).value
        0.5

    """

    def __init__(self, retarget: Callable[[Tensor], Tensor], weights: Tensor | None = None) -> None:
        self.retarget = check_callable(retarget, "retarget", "a function psi (T,) -> r (T,)")
        self.weights = check_loss_weights(weights)

    @property
    def curvature(self) -> float:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        return weighted_square(step, self.weights)

    def targets(self, psi: Tensor) -> Tensor:
        """(T,) r(psi), equation (8)."""
        check_psi(psi, None if self.weights is None else len(self.weights))
        return check_targets(self.retarget(psi.detach()), psi)

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        targets = self.targets(psi)
        off = psi - targets
        gradient = off if self.weights is None else self.weights * off
        square = float((gradient.double() * off.double()).sum())
        linear = float((gradient.double() * targets.double()).sum())
        return LossValue(square / 2, gradient, linear, square)


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
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        return float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
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
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
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
