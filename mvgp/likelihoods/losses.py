r"""Losses: functions of psi (less the prior mean) at the observed pairs, which a solver of the mean minimises.

Every loss here is :math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t(\psi))^2 + \text{extra}`: a squared distance to
targets that may themselves depend on :math:`\psi`, because something (a bias, a ranking) has been optimised out. By the
envelope theorem its gradient is :math:`\theta = w (\psi - r(\psi))`, and :math:`w`-Lipschitz.

A loss of one's own inherits :class:`Loss`, says how curved it is, and returns a :class:`ConvexValue`: value and
gradient are enough for a certificate. Its conjugate :math:`f^*` is convex along the ray through the gradient theta. It
is :math:`\langle\theta, \psi\rangle - f(\psi)` at theta and :math:`-\inf f` at 0, so the chord between them is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
    LikelihoodList,
    SoftmaxLikelihood,
    _GaussianLikelihoodBase,
)
from torch import Tensor
from typing_extensions import override

from ..checks import check_callable, check_not_negative, check_positive
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..linalg.conjugate_gradients import conjugate_gradients
from ..priors.means import MatrixMean, ZeroMean
from ..tensor_checks import check_float_tensor, check_positions, check_shape, refuse_where
from .lists import check_targets

PIECE = 1 << 16  # entries summed at a time
CHUNK_CELLS = 1 << 20  # cells of whole lists worked on at a time

Data = ObservedMatrix | PositiveUnlabelled
Retargeting = Callable[[Tensor], Tensor]  # psi (T,) -> r (T,)


def check_psi(psi: Tensor, length: int | None, name: str = "psi") -> Tensor:
    """(T,) finite numbers at the observed pairs."""
    return check_float_tensor(psi, name, (length,), finite=True)


def long_dot(a: Tensor, b: Tensor) -> float:
    """<a, b> in double precision, in pieces that stay in cache."""
    return sum(float(x.double() @ y.double()) for x, y in zip(a.split(PIECE), b.split(PIECE), strict=True))


@dataclass(frozen=True)
class LossValue:
    """A loss at one psi; the conjugate is quadratic along the ray through theta, as that of a squared distance.

    :param value: f(psi).
    :param gradient: (T,) theta.
    :param linear: <theta, r(psi)>, the part of f*(c theta) that is linear in c.
    :param quadratic: twice the part that is quadratic in c: sum theta^2 / w, and what a penalised bias adds.
    """

    value: float
    gradient: Tensor
    linear: float = float("nan")
    quadratic: float = float("nan")

    def conjugate(self, scale: float) -> float:
        """f*(scale theta), for scale in [0, 1]; at least that where it is not known exactly."""
        return scale**2 / 2 * self.quadratic + scale * self.linear

    def conjugate_bound(self, scale: float) -> float:
        """At least f*(scale theta), and cheap: what the best scale is searched with."""
        return self.conjugate(scale)


@dataclass(frozen=True)
class ConvexValue(LossValue):
    """Any convex loss at one psi.

    :param value: f(psi).
    :param gradient: (T,) theta.
    :param psi: (T,).
    :param lowest: a number that f is never below; minus infinity if there is none.
    :param exact: f*, a function of (T,) numbers, if it is known: the certificate is sharper by it.
    """

    psi: Tensor | None = None
    lowest: float = 0.0
    exact: Callable[[Tensor], float] | None = None

    @override
    def conjugate(self, scale: float) -> float:
        """f*(scale theta) if f* is known, or the bound."""
        if scale == 1.0 or self.exact is None:
            return self.conjugate_bound(scale)
        return self.exact(scale * self.gradient)

    @override
    def conjugate_bound(self, scale: float) -> float:
        """The chord between f* at 0 and at theta."""
        assert self.psi is not None
        at_theta = long_dot(self.gradient, self.psi) - self.value
        return at_theta if scale == 1.0 else scale * at_theta - (1 - scale) * self.lowest


class Loss(Protocol):
    r"""A convex differentiable function of psi at the T observed pairs.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import ConvexValue, Loss
        >>> class HuberLoss(Loss):
        ...     curvature = 1.0
        ...     def __init__(self, targets):
        ...         self.targets = targets
        ...     def __call__(self, psi):
        ...         off = psi - self.targets
        ...         value = torch.where(off.abs() < 1, off.square() / 2, off.abs() - 0.5).sum()
        ...         return ConvexValue(float(value), off.clamp(-1, 1), psi=psi)
        >>> HuberLoss(torch.zeros(2))(torch.tensor([0.5, 3.0])).value
        2.625

    """

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the gradient: the largest second derivative along any direction of length 1."""
        ...

    def quadratic_bound(self, step: Tensor) -> float:
        """A bound on the second derivative along ``step`` (T,), times its squared length: sum of w step^2."""
        return self.curvature * long_dot(step, step)

    def __call__(self, psi: Tensor) -> LossValue:
        """Value, gradient and conjugate at ``psi`` (T,)."""
        ...


class WeightedLoss:
    """What losses with a weight for each pair share: ``weights`` (T,), or None for 1; the length T, or None for any."""

    def __init__(self, length: int | None, weights: Tensor | None) -> None:
        if weights is not None:
            check_float_tensor(weights, "weights", (length,), finite=True)
            refuse_where(weights <= 0, weights, "weights", "a positive number")
        self.length, self.weights = length if weights is None else len(weights), weights

    @property
    def curvature(self) -> float:
        """See :class:`Loss`."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def quadratic_bound(self, step: Tensor) -> float:
        """See :class:`Loss`."""
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

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import SquaredLoss
        >>> found = SquaredLoss(torch.tensor([1.0, 2.0]))(torch.tensor([1.0, 4.0]))
        >>> found.value, found.gradient
        (2.0, tensor([0., 2.]))

    """

    def __init__(self, targets: Tensor, weights: Tensor | None = None) -> None:
        self.targets = check_psi(targets, None, "targets")
        super().__init__(len(targets), weights)

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
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
        super().__init__(None, weights)

    def targets(self, psi: Tensor) -> Tensor:
        """(T,) r(psi), equation (8)."""
        return check_targets(self.retarget(check_psi(psi, self.length).detach()), psi)

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
        return self._distance(psi, self.targets(psi))


class SinglePrecisionLoss:
    """A loss of double precision behind an interface of single precision."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.curvature = loss, loss.curvature

    def quadratic_bound(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        return self.loss.quadratic_bound(step.double())

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
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
        self.targets, self.shape = check_psi(targets, None, "targets"), check_shape(shape)
        super().__init__(len(targets), torch.ones_like(targets) if weights is None else weights)
        self.rows = check_positions(rows, self.shape[0], "rows")
        self.cols = check_positions(cols, self.shape[1], "cols")
        if not len(rows) == len(cols) == len(targets):
            lengths = f"{len(rows)}, {len(cols)} and {len(targets)}"
            raise InputError(f"rows, cols, targets: expected the same length, got {lengths}")
        self.row_penalty, self.col_penalty = row_penalty, col_penalty
        self._row_mass = self._by_row(self.weights) + (row_penalty or 0.0)
        self._col_mass = self._by_col(self.weights) + (col_penalty or 0.0)
        for mass in (self._row_mass, self._col_mass):
            mass[mass == 0] = 1.0  # rows and columns without a pair keep bias 0

    def _by_row(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.shape[0]).index_add_(0, self.rows, values)

    def _by_col(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.shape[1]).index_add_(0, self.cols, values)

    def biases(self, psi: Tensor) -> tuple[Tensor, Tensor]:
        """(M,) and (N,): the best row and column biases for ``psi`` (T,); zeros where there is none."""
        left = self.weights * (self.targets - check_psi(psi, len(self.targets)))
        if self.col_penalty is None:
            return self._by_row(left) / self._row_mass, psi.new_zeros(self.shape[1])
        if self.row_penalty is None:
            return psi.new_zeros(self.shape[0]), self._by_col(left) / self._col_mass
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
        return (row_sums - self._by_row(self.weights * col_bias[self.cols])) / row_mass, col_bias

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
        row_bias, col_bias = self.biases(psi)
        at = self._distance(psi + row_bias[self.rows] + col_bias[self.cols], self.targets)
        # at the best biases the gradient sums to -penalty x bias along rows and columns; the conjugate of an
        # optimised-out bias is its squared sum over twice the penalty
        penalty = (self.row_penalty or 0.0) * float(row_bias.double().square().sum())
        penalty += (self.col_penalty or 0.0) * float(col_bias.double().square().sum())
        square = at.quadratic + penalty
        return LossValue(square / 2, at.gradient, at.linear, square)


# Whole lists ------------------------------------------------------------------------------------


class WholeListLoss:
    """What the losses over whole lists share: weight 1 at the positives, w0 at every other item of the row.

    Nothing is sampled. The scores are a dense block (A, N) of rows; it is worked on in chunks of rows.

    :param positions: (P,) ascending, where the positives are among the A N cells.
    :param weight: w0.
    :param offset: (A N,) prior mean there, or None for 0.
    """

    curvature = 1.0

    def __init__(self, positions: Tensor, weight: float, offset: Tensor | None = None) -> None:
        self.positions, self.weight, self.offset = positions, weight, offset

    def quadratic_bound(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        at_positives = float(step[self.positions].double().square().sum())
        return self.weight * long_dot(step, step) + (1 - self.weight) * at_positives

    def _value(self, square: float, gradient: Tensor, linear: float) -> LossValue:
        """The loss, with <theta, r> for the targets as psi sees them: less the prior mean."""
        if self.offset is not None:
            linear -= long_dot(gradient, self.offset)
        return LossValue(square / 2, gradient, linear, square)


class WholeListSquaredLoss(WholeListLoss):
    r""":math:`\tfrac12 \sum_{pos} (\psi - 1)^2 + \tfrac{w_0}{2} \sum_{rest} \psi^2`."""

    def targets(self, dtype: torch.dtype, num_cells: int) -> Tensor:
        """(A N,): 1 at the positives and 0 elsewhere, less the prior mean."""
        targets = torch.zeros(num_cells, dtype=dtype, device=self.positions.device)
        targets[self.positions] = 1.0
        return targets if self.offset is None else targets - self.offset

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
        total = psi if self.offset is None else psi + self.offset
        positives = total[self.positions]
        off = (positives - 1).double()
        gradient = self.weight * total
        gradient[self.positions] = positives - 1
        square = self.quadratic_bound(total) + float(off.square().sum() - positives.double().square().sum())
        return self._value(square, gradient, float(off.sum()))


# The loss of a likelihood -----------------------------------------------------------------------


def data_loss(
    likelihood: Any, data: Data, mean: MatrixMean, *, row_bias: float | None = None, col_bias: float | None = None
) -> Loss:
    """The loss of the data under gpytorch's ``GaussianLikelihood``, or one with a method ``data_loss``.

    :param mean: of the prior; the loss has its precision and device.
    :param row_bias: penalty of a bias of each row, Gaussian only; None for no bias. ``col_bias``: of each column.
    """
    is_gaussian = isinstance(likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood)
    if (row_bias, col_bias) != (None, None) and not (is_gaussian and isinstance(data, ObservedMatrix)):
        raise InputError(
            "row_bias, col_bias: only with a Gaussian likelihood on an ObservedMatrix; a ranking is blind to an offset "
            "of a whole row, and popularity of columns can be given as the prior mean"
        )
    if not is_gaussian:
        loss: Loss = likelihood.data_loss(data, mean)
        return loss
    if isinstance(data, PositiveUnlabelled):  # the targets are 1 for known links and 0 for the rest
        return WholeListSquaredLoss(data.positions.to(mean.zero.device), data.weight, whole_list_offset(data, mean))
    rows, cols, values, weights = observed_parts(data, mean)
    targets = values - mean(rows, cols)
    if row_bias is None and col_bias is None:
        return SquaredLoss(targets, weights)
    return BiasedSquaredLoss(targets, weights, rows, cols, data.shape, row_bias, col_bias)


def observed_parts(data: ObservedMatrix, mean: MatrixMean) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Rows, columns, values and weights, (T,) each, in the precision and on the device of the prior."""
    device = mean.zero.device
    weights = None if data.weights is None else data.weights.to(mean.zero)
    return data.rows.to(device), data.cols.to(device), data.values.to(mean.zero), weights


def whole_list_offset(data: PositiveUnlabelled, mean: MatrixMean) -> Tensor | None:
    """(A N,) the prior mean at every cell of the lists; None for 0."""
    if isinstance(mean, ZeroMean):
        return None
    device = mean.zero.device
    chosen, cols = data.pattern.chosen.to(device), torch.arange(data.shape[1], device=device)
    block = mean.block(chosen, cols).to(mean.zero.dtype)
    return block.expand(len(chosen), len(cols)).reshape(-1).contiguous()


def is_pointwise(likelihood: Any) -> bool:
    """Whether :mod:`mvgp.likelihoods.pointwise` serves it: a gpytorch likelihood of one latent value, not Gaussian."""
    others = (_GaussianLikelihoodBase, SoftmaxLikelihood, LikelihoodList)
    return (
        isinstance(likelihood, Likelihood)
        and not isinstance(likelihood, others)
        and not hasattr(likelihood, "data_loss")
    )
