r"""The problem of the mean: a loss of the observed pairs, a penalty on singular values, and the certificate of both.

For any iterate, with theta the gradient of the loss f, Y its dual image and any c in [0, 1], equation (11) bounds the
minimum of :math:`f(\psi_T) + h(B)` from below by :math:`-f^*(c\,\theta) - h^*(c\,Y)`. The bound is true when the
singular values of Y are not taken too small; :mod:`mvgp.mean.spectrum_bound` sees to that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import (
    check_instance,
    check_not_negative,
    check_positive,
    check_share,
    check_tolerance,
    check_whole_number,
    shown,
)
from ..errors import ConvergenceError, InputError
from ..likelihoods.losses import Loss, LossValue, SinglePrecisionLoss
from ..linalg.pairs import BLOCK, CompleteRows, Pattern, RowBlock
from ..linalg.spectra import Factor, spectral_bounds
from ..tensor_checks import check_float_tensor, check_list, check_operator

SCALES = 65  # values of c that are tried; any of them gives a valid bound
GRID = 16  # the same for a sum of terms


class MeanProblem:
    r"""minimise :math:`f(\psi_T) + h(B)` over B, with :math:`\psi = G_M B G_N^T`.

    Solvers keep B in *dual coordinates*, :math:`B = G_M^T A G_N`: then :math:`\psi = K_M A K_N`, the gradient of
    the loss in B has the dual coordinates :math:`\Theta` (the sparse matrix of theta), and no root is needed.

    :param row_op: K_M (M, M).
    :param col_op: K_N (N, N).
    :param pattern: where the T observed pairs are.
    :param loss: f.

    Example:
        >>> import torch
        >>> from linear_operator import to_linear_operator
        >>> from mvgp.likelihoods import SquaredLoss
        >>> from mvgp.linalg.pairs import Pattern
        >>> from mvgp.mean import MeanProblem, SpectralElasticNet, solve_proximal
        >>> kernel = to_linear_operator(torch.eye(2, dtype=torch.float64) + 0.5)
        >>> pattern = Pattern(torch.tensor([0, 1]), torch.tensor([0, 1]), (2, 2))
        >>> problem = MeanProblem(kernel, kernel, pattern, SquaredLoss(torch.tensor([1.0, -1.0]).double()))
        >>> solve_proximal(problem, SpectralElasticNet(0.1, 0.5), tolerance=1e-6).certificate.converged
        True

    """

    def __init__(
        self, row_op: LinearOperator, col_op: LinearOperator, pattern: Pattern | CompleteRows, loss: Loss
    ) -> None:
        check_instance(pattern, "pattern", (Pattern, CompleteRows), "a Pattern or CompleteRows")
        for op, name, size in ((row_op, "row_op", pattern.shape[0]), (col_op, "col_op", pattern.shape[1])):
            check_instance(op, name, LinearOperator, "a LinearOperator")
            if tuple(check_operator(op, name).shape) != (size, size):
                raise InputError(f"{name}: expected shape {(size, size)} as in the pattern, got {tuple(op.shape)}")
        if isinstance(loss, type) or not callable(loss):
            raise InputError(f"loss: expected a Loss, a function of psi, got {shown(loss)}")
        self.row_op, self.col_op, self.pattern, self.loss = row_op, col_op, pattern, loss
        self.dtype: torch.dtype = row_op.dtype
        self.device: torch.device = row_op.device
        rows, cols = (torch.arange(size, device=self.device) for size in pattern.shape)
        self._rows, self._cols = Factor(row_op, rows, rows), Factor(col_op, cols, cols)
        self._lazy_rows = self._rows.lazy_seconds(BLOCK) < self._rows.dense_seconds(BLOCK)
        self._lazy_cols = self._cols.lazy_seconds(BLOCK) < self._cols.dense_seconds(BLOCK)

    def rows_times(self, dense: Tensor) -> Tensor:
        """(M, b): K_M times (M, b), densely or lazily, whichever is cheaper."""
        check_float_tensor(dense, "dense", (self.shape[0], None))
        return self._rows.apply(dense, self._lazy_rows)

    def cols_times(self, dense: Tensor) -> Tensor:
        """(N, b): K_N times (N, b)."""
        check_float_tensor(dense, "dense", (self.shape[1], None))
        return self._cols.apply(dense, self._lazy_cols)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.pattern.shape

    def lipschitz(self) -> float:
        """A bound on the Lipschitz constant of the gradient in B."""
        high_rows, high_cols = spectral_bounds(self.row_op)[1], spectral_bounds(self.col_op)[1]
        return high_rows * high_cols * self.loss.curvature

    @cached_property
    def single(self) -> MeanProblem:
        """The same problem in single precision."""
        rows, cols = self.row_op.to(torch.float32), self.col_op.to(torch.float32)
        return MeanProblem(rows, cols, self.pattern, SinglePrecisionLoss(self.loss))

    @cached_property
    def short_root(self) -> Tensor:
        """(D, D) double precision: a root of the kernel of the shorter side, rows if both are as long."""
        factor = self._rows if self.shape[0] <= self.shape[1] else self._cols
        values, vectors = torch.linalg.eigh(factor.dense.double())
        return vectors * values.clamp_min(0).sqrt()

    def sparse(self, theta: Tensor) -> tuple[Tensor | RowBlock, Tensor | RowBlock]:
        """Theta (M, N) and its transpose, as CSR tensors."""
        return self.pattern.matrix(theta), self.pattern.matrix_t(theta)


def times(sparse: Tensor | RowBlock, dense: Tensor) -> Tensor:
    """A CSR tensor times a dense matrix, in blocks of columns that stay in cache; a dense block at once."""
    if isinstance(sparse, RowBlock) or dense.shape[1] <= BLOCK:
        return sparse @ dense
    out = dense.new_empty(sparse.shape[0], dense.shape[1])
    for start in range(0, dense.shape[1], BLOCK):
        out[:, start : start + BLOCK] = sparse @ dense[:, start : start + BLOCK].contiguous()
    return out


def check_solve(problem: Any, tolerance: Any, max_iterations: Any) -> tuple[float, int]:
    """A problem, a tolerance and a limit on iterations (0: the start is certified); the last two are returned."""
    check_instance(problem, "problem", MeanProblem, "mvgp.mean.MeanProblem")
    return check_tolerance(tolerance), check_whole_number(max_iterations, "max_iterations", 0)


def check_requirements(solver: str, requires: Mapping[str, tuple[str, ...]], loss: Any, penalty: Any = None) -> None:
    """Refuse a loss or a penalty that lacks a method or property that a solver needs; the message names it."""
    for kind, part in (("loss", loss), ("penalty", penalty)):
        names = requires.get(kind, ())
        missing = list(names) if isinstance(part, type) else [name for name in names if not hasattr(part, name)]
        if missing:
            raise InputError(
                f"{kind}: {solver} needs {', '.join(names)} of it; {shown(part)} lacks {', '.join(missing)}"
            )


def check_terms(problems: Any, penalties: Any) -> tuple[list[MeanProblem], list[SpectralElasticNet]]:
    """As many penalties as problems, at least one, on the same cells and with the same loss."""
    problems = list(check_list(problems, "problems", "a MeanProblem for each term"))
    penalties = list(check_list(penalties, "penalties", "a SpectralElasticNet for each term"))
    if not problems or len(problems) != len(penalties):
        raise InputError(f"penalties: expected one for each of {len(problems)} problems, got {len(penalties)}")
    for at, (problem, penalty) in enumerate(zip(problems, penalties, strict=True)):
        check_instance(problem, f"problems[{at}]", MeanProblem, "mvgp.mean.MeanProblem")
        check_instance(penalty, f"penalties[{at}]", SpectralElasticNet, "mvgp.mean.SpectralElasticNet")
        if penalty.lam == 0:
            raise InputError(f"penalties[{at}]: a penalty of zero leaves the mean undetermined; give it a positive lam")
        first = problems[0]
        if not _same_cells(problem.pattern, first.pattern) or problem.dtype != first.dtype:
            raise InputError(f"problems[{at}]: expected the cells and the precision of the first problem")
        if problem.loss is not first.loss:
            raise InputError(f"problems[{at}]: expected the loss of the first problem, got another one")
    return problems, penalties


def _same_cells(a: Pattern | CompleteRows, b: Pattern | CompleteRows) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or a.shape != b.shape or len(a) != len(b):
        return False
    if isinstance(a, CompleteRows) and isinstance(b, CompleteRows):
        return torch.equal(a.chosen, b.chosen)
    return torch.equal(a.rows, b.rows) and torch.equal(a.cols, b.cols)


# Penalties --------------------------------------------------------------------------------------


class Penalty(Protocol):
    """h(B), a function of the singular values of B alone."""

    def shrink(self, values: Tensor, step: float) -> Tensor:
        """(R,): the singular values of argmin_X 1/2 ||X - B||_F^2 + step h(X), from those of B, descending."""
        ...

    def value(self, values: Tensor) -> float:
        """h(B) from the singular values of B."""
        ...

    def conjugate(self, values: Tensor, scale: float) -> float:
        """h*(scale Y) = sup_B <scale Y, B> - h(B), from the singular values of Y."""
        ...

    @property
    def ridge(self) -> float:
        """Weight l2 of 1/2 ||B||_F^2."""
        ...


@dataclass(frozen=True)
class SpectralElasticNet:
    r"""Equation (5): :math:`h(B) = \tfrac{\lambda(1 - \alpha)}{2} \|B\|_F^2 + \lambda\alpha \|B\|_*`.

    :param lam: overall strength, at least 0.
    :param alpha: share of the trace norm, from 0 (Hilbert norm only) to 1 (trace norm only).

    Example:
        >>> from mvgp import SpectralElasticNet
        >>> SpectralElasticNet.from_noise(noise=0.5, mu=3.0)
        SpectralElasticNet(lam=2.0, alpha=0.75)

    """

    lam: float
    alpha: float

    def __post_init__(self) -> None:
        check_not_negative(self.lam, "lam")
        check_share(self.alpha, "alpha")

    @classmethod
    def from_noise(cls, noise: float, mu: float) -> SpectralElasticNet:
        """From the form (4): noise variance and multiplier mu of the trace norm."""
        noise, mu = check_positive(noise, "noise"), check_not_negative(mu, "mu")
        return cls(noise * (1 + mu), mu / (1 + mu))

    @property
    def noise(self) -> float:
        """The noise variance lam (1 - alpha) that form (4) would have; 0 for alpha = 1."""
        return self.ridge

    @property
    def mu(self) -> float:
        """The multiplier alpha / (1 - alpha) of form (4); infinite for alpha = 1."""
        return self.alpha / (1 - self.alpha) if self.alpha < 1 else float("inf")

    @property
    def trace(self) -> float:
        """Weight l1 of the trace norm."""
        return self.lam * self.alpha

    @property
    def ridge(self) -> float:
        """Weight l2 of 1/2 ||B||_F^2."""
        return self.lam * (1 - self.alpha)

    def shrink(self, values: Tensor, step: float) -> Tensor:
        """(s - step l1)_+ / (1 + step l2)"""
        values, step = _spectrum(values), check_not_negative(step, "step")
        return (values - step * self.trace).clamp_min(0) / (1 + step * self.ridge)

    def value(self, values: Tensor) -> float:
        """l1 sum s + l2 / 2 sum s^2"""
        values = _spectrum(values)
        return float(self.trace * values.sum() + self.ridge / 2 * values.square().sum())

    def conjugate(self, values: Tensor, scale: float) -> float:
        """Sum of (y - l1)_+^2 / (2 l2); for l2 = 0 it is 0 or infinite."""
        return self._conjugate(_spectrum(values).double().cpu().numpy(), check_not_negative(scale, "scale"))

    def _conjugate(self, values: np.ndarray, scale: float) -> float:
        over = np.maximum(scale * values - self.trace, 0.0)
        if self.ridge > 0:
            return float(over @ over) / (2 * self.ridge)
        return 0.0 if not (over > 1e-12 * self.trace).any() else math.inf


@dataclass(frozen=True)
class TraceBall:
    r"""Equation (6): :math:`h(B) = \tfrac{\text{ridge}}{2} \|B\|_F^2` where :math:`\|B\|_* \le \text{radius}`.

    Outside the ball it is infinite.

    :param radius: bound C on the trace norm, at least 0.
    :param ridge: weight of the Hilbert norm, at least 0; the noise variance in form (4).
    """

    radius: float
    ridge: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(self.radius, "radius")
        check_not_negative(self.ridge, "ridge")

    def _threshold(self, values: Tensor, total: float) -> float:
        """Tau >= 0 with sum (v - tau)_+ = total, or 0 when the sum of ``values`` is within it."""
        if values.numel() == 0 or float(values.sum()) <= total:
            return 0.0
        ordered = values.sort(descending=True).values.double()
        count = torch.arange(1, len(ordered) + 1, dtype=torch.float64, device=values.device)
        taus = (ordered.cumsum(0) - total) / count
        last = int((ordered >= taus).nonzero()[-1])  # the first one at least, even where rounding swallows the total
        return float(taus[last])

    def shrink(self, values: Tensor, step: float) -> Tensor:
        """(s - tau)_+ / (1 + step ridge), tau such that the sum is at most the radius."""
        values = _spectrum(values)
        grow = 1 + check_not_negative(step, "step") * self.ridge
        return (values - self._threshold(values, self.radius * grow)).clamp_min(0) / grow

    def value(self, values: Tensor) -> float:
        """Ridge / 2 sum s^2; infinite outside the ball (up to rounding)."""
        if float(_spectrum(values).double().sum()) > self.radius * (1 + 1e-5):
            return float("inf")
        return float(self.ridge / 2 * values.square().sum())

    def conjugate(self, values: Tensor, scale: float) -> float:
        """Min over l1 >= 0 of l1 radius + sum (y - l1)_+^2 / (2 ridge); radius times y_1 without a ridge."""
        scaled = check_not_negative(scale, "scale") * _spectrum(values).double()
        if scaled.numel() == 0:
            return 0.0
        if self.ridge == 0:
            return self.radius * float(scaled.max())
        level = self._threshold(scaled, self.radius * self.ridge)
        return level * self.radius + float((scaled - level).clamp_min(0).square().sum() / (2 * self.ridge))


def _spectrum(values: Tensor) -> Tensor:
    """(R,) singular values: finite numbers."""
    return check_float_tensor(values, "values", (None,), finite=True)


# Certificates -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """Evidence for a fitted mean.

    :param primal: objective reached.
    :param dual: lower bound on the smallest possible objective.
    :param tolerance: relative gap that was asked for.
    :param iterations: steps taken.
    :param rank: rank of the mean.
    :param solver: which solver it was.
    :param failure_probability: chance that ``dual`` is too large, so that the gap is below the true one: 0 where the
        singular values of the gradient are exact, positive where they are bounded from random vectors
        (:mod:`mvgp.mean.spectrum_bound`). None: not stated.
    """

    primal: float
    dual: float
    tolerance: float
    iterations: int
    rank: int
    solver: str
    failure_probability: float | None = 0.0

    @property
    def gap(self) -> float:
        """Primal - dual, at least 0."""
        return max(self.primal - self.dual, 0.0)

    @property
    def relative_gap(self) -> float:
        """(primal - dual) / primal"""
        return self.gap / self.primal if self.primal > 0 else 0.0

    @property
    def converged(self) -> bool:
        """Whether the relative gap is within the tolerance."""
        return self.relative_gap <= self.tolerance

    def in_words(self) -> str:
        """The gap, the objective, and how they were found, in a line."""
        text = (
            f"relative gap {self.relative_gap:.1e}, {'within' if self.converged else 'MISSES'} {self.tolerance:.0e}: "
            f"objective {self.primal:.6g}, lower bound {self.dual:.6g}; {self.solver}, {self.iterations:,} iterations"
        )
        return f"{text}; true but for a chance of {self.failure_probability:.0e}" if self.failure_probability else text


def warn_or_raise(certificate: Certificate, subject: str, advice: str, *, strict: bool, stacklevel: int) -> None:
    """A certificate that misses its tolerance is a warning, or an error when ``strict``.

    ``subject`` was fitted, ``advice`` is what a user can do, ``stacklevel`` as of ``warnings.warn`` for the caller.
    """
    if certificate.converged:
        return
    message = (
        f"{subject}'s relative duality gap is {certificate.relative_gap:.1e} after {certificate.iterations} iterations "
        f"of {certificate.solver}, the tolerance is {certificate.tolerance:.1e}; {advice}"
    )
    if strict:
        raise ConvergenceError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=stacklevel + 1)


def dual_bound(loss: LossValue, singular_values: Tensor, penalty: Penalty) -> float:
    """The best bound over c in [0, 1] from the (leading) singular values of Y, equation (11)."""
    values = singular_values.double()
    largest = float(values.max()) if values.numel() else 0.0
    scales = torch.linspace(0, 1, SCALES).tolist()
    trace = getattr(penalty, "trace", None)
    if trace is not None and largest > trace:  # without a ridge only c <= l1 / y_1 is feasible
        scales = [c * trace / largest for c in scales] + [trace / largest + (1 - trace / largest) * c for c in scales]
    scales.sort()

    def of_penalty(scale: float) -> float:
        return penalty.conjugate(values, scale)

    if isinstance(penalty, SpectralElasticNet):  # values up to l1 add nothing
        _spectrum(values)
        above = values[values > penalty.trace].cpu().numpy()
        of_penalty = partial(penalty._conjugate, above)
    at_best, highest = _best_scale(lambda scale: -loss.conjugate_bound(scale) - of_penalty(scale), scales)
    return max(highest, -loss.conjugate(at_best) - of_penalty(at_best))


def additive_dual(
    loss: LossValue, ridge_square: float, values: Sequence[Tensor], penalties: Sequence[SpectralElasticNet]
) -> float:
    r"""The best bound (13) over c in [0, 1], which is concave in c.

    :param ridge_square: :math:`\theta^T K_R \theta`.
    :param values: singular values of :math:`Y_q` for each term with a trace norm, or numbers that are not below them.
    :param penalties: of these terms.
    """
    limit = 1.0
    for each, penalty in zip(values, penalties, strict=True):
        if penalty.ridge == 0 and each.numel():
            limit = min(limit, penalty.trace / max(float(each.max()), 1e-300))

    def of_penalties(scale: float) -> float:
        conjugates = sum(p.conjugate(each, scale) for each, p in zip(values, penalties, strict=True))
        return scale**2 / 2 * ridge_square + conjugates

    grid = [limit * at / GRID for at in range(GRID + 1)]
    at_best, highest = _best_scale(lambda scale: -loss.conjugate_bound(scale) - of_penalties(scale), grid)
    return max(highest, -loss.conjugate(at_best) - of_penalties(at_best))


def _best_scale(bound: Callable[[float], float], scales: Sequence[float]) -> tuple[float, float]:
    """The best c, and the largest bound met: a golden-section search around the best of ``scales``, ascending."""
    bounds = [bound(scale) for scale in scales]
    best = bounds.index(max(bounds))
    low, high, highest = scales[max(best - 1, 0)], scales[min(best + 1, len(scales) - 1)], bounds[best]
    ratio = (5**0.5 - 1) / 2
    for _ in range(40):  # the bound is concave in c
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        at_a, at_b = bound(a), bound(b)
        highest = max(highest, at_a, at_b)
        low, high = (a, high) if at_a < at_b else (low, b)
    middle = (low + high) / 2
    return (middle if bound(middle) >= bounds[best] else scales[best]), highest
