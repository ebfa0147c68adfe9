r"""Losses on the observed pairs: functions of :math:`\psi_T` that a solver of the mean can minimise.

Every loss here is :math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t(\psi))^2 + \text{extra}`: a squared distance to
targets that may themselves depend on :math:`\psi`, because something (a bias, a ranking) has been optimised out. By the
envelope theorem its gradient is :math:`\theta = w (\psi - r(\psi))`, and :math:`w`-Lipschitz.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from ..checks import check_callable, check_not_negative, check_positive
from ..errors import InputError
from ..linalg.conjugate_gradients import conjugate_gradients
from ..tensor_checks import check_float_tensor, check_positions, check_shape, refuse_where
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

    def quadratic_bound(self, step: Tensor) -> float:
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


def long_dot(a: Tensor, b: Tensor) -> float:
    """<a, b> in double precision, in pieces that stay in cache."""
    return sum(float(x.double() @ y.double()) for x, y in zip(a.split(PIECE), b.split(PIECE), strict=True))


class WeightedLoss(Loss):
    """What losses with a weight for each pair share.

    :param weights: (T,) w, or None for 1.
    :param length: T, or None where any length will do.
    """

    weights: Tensor | None
    length: int | None

    @property
    @override
    def curvature(self) -> float:
        return 1.0 if self.weights is None else float(self.weights.max())

    @override
    def quadratic_bound(self, step: Tensor) -> float:
        check_psi(step, self.length, "step")
        return long_dot(step, step if self.weights is None else self.weights * step)

    def _distance(self, psi: Tensor, targets: Tensor) -> LossValue:
        """The loss for fixed targets (T,)."""
        off = psi - targets
        gradient = off if self.weights is None else self.weights * off
        square = float((gradient.double() * off.double()).sum())
        return LossValue(square / 2, gradient, float((gradient.double() * targets.double()).sum()), square)


class SquaredLoss(WeightedLoss):
    r""":math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t)^2`.

    :param targets: (T,) r.
    :param weights: (T,) w, or None for 1.
    """

    def __init__(self, targets: Tensor, weights: Tensor | None = None) -> None:
        self.targets = check_float_tensor(targets, "targets", (None,), finite=True)
        self.length, self.weights = len(targets), check_loss_weights(weights, len(targets))

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        return self._distance(check_psi(psi, self.length), self.targets)


class RetargetedLoss(WeightedLoss):
    r"""Equation (9): half the squared distance to a closed convex set, known by its projection.

    .. math:: f(\psi) = \min_{r \in C} \tfrac12 \sum_t w_t (\psi_t - r_t)^2

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
        self.length = None if weights is None else len(weights)

    def targets(self, psi: Tensor) -> Tensor:
        """(T,) r(psi), equation (8)."""
        return check_targets(self.retarget(check_psi(psi, self.length).detach()), psi)

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        return self._distance(psi, self.targets(psi))


class SinglePrecisionLoss(Loss):
    """A loss of double precision behind an interface of single precision.

    :param loss: takes and gives double precision.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    @property
    @override
    def curvature(self) -> float:
        return self.loss.curvature

    @override
    def quadratic_bound(self, step: Tensor) -> float:
        return self.loss.quadratic_bound(step.double())

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        at = self.loss(psi.double())
        return replace(at, gradient=at.gradient.float())


class BiasedSquaredLoss(WeightedLoss):
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

    weights: Tensor

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
        self.length, self.weights = len(targets), torch.ones_like(targets) if weights is None else weights
        self.row_penalty, self.col_penalty = row_penalty, col_penalty
        self._row_mass = self._by_row(self.weights) + (row_penalty or 0.0)
        self._row_mass[self._row_mass == 0] = 1.0  # rows without a pair keep bias 0
        self._col_mass = self._by_col(self.weights) + (col_penalty or 0.0)
        self._col_mass[self._col_mass == 0] = 1.0

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

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        row_bias, col_bias = self.biases(psi)
        at = self._distance(psi + row_bias[self.rows] + col_bias[self.cols], self.targets)
        # at the best biases the gradient sums to -penalty x bias along rows and columns; the conjugate of an
        # optimised-out bias is its squared sum over twice the penalty
        penalty = (self.row_penalty or 0.0) * float(row_bias.double().square().sum())
        penalty += (self.col_penalty or 0.0) * float(col_bias.double().square().sum())
        square = at.quadratic + penalty
        return LossValue(square / 2, at.gradient, at.linear, square)
