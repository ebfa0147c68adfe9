r"""The mean of a sum of Kronecker terms, equation (12), with the certificate (13).

.. math:: \min_{B_1, \dots, B_Q} f\Big(\sum_q \psi_q\Big) + \sum_q h_q(B_q), \qquad \psi_q = G_{Mq} B_q G_{Nq}^T

Accelerated proximal gradient on all terms at once, restarted when the objective rises. With W a bound on the curvature
of the loss, a step minimises the quadratic model

.. math:: \langle \theta, \delta \rangle + \tfrac12 \|\delta\|_W^2 + \tfrac12 \alpha^T K_R \alpha + \sum_q h_q(B_q),
          \qquad \delta = \sum_q \Delta \psi_q + K_R \Delta\alpha

over the ridge terms (:math:`\alpha`, :mod:`~mvgp.mean.ridge`) exactly, whatever the spectrum of their kernels.
What it leaves for the terms with a trace norm has the curvature :math:`(W^{-1} + K_R)^{-1}`, which is bounded by a
number for each, scaled on the way to the curvature met. So a ridge term that can stand in for another term does not
slow the steps down; for the squared loss the ridge terms are optimal after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..checks import check_instance, check_whole_number
from ..errors import InputError
from ..likelihoods.losses import LossValue, long_dot
from ..linalg.spectra import spectral_bounds
from ..progress import report_step
from .low_rank import LowRank
from .problem import (
    Certificate,
    MeanProblem,
    SpectralElasticNet,
    additive_dual,
    check_requirements,
    check_solve,
    check_terms,
)
from .ridge import DENSE_CELLS, RidgeTerms
from .spectrum_bound import EXACT_LIMIT
from .traced_terms import traced_term

STEPS = 10  # between two certificates
MAX_STALLED = 4  # confirmations that their bounds, not the iterate, keep from the tolerance; then it ends
STALLED_SHARE = 0.3  # of the gap that a confirmation waits for, after each of those
ROUGH_TOLERANCE = 1e-2  # relative duality gap of the rough solution in single precision that comes first
SOLVE_ACCURACY = 0.1  # relative residual of the ridge terms' system in a step, where it is iterated
SMALL_PULL = 0.5  # share of the last move of psi; ridge terms that are off by less are put right only once in a step

REQUIRES = {"loss": ("__call__", "curvature", "quadratic_bound")}


@dataclass(frozen=True)
class AdditivePart:
    """The mean of one term: of low rank, or one coefficient for each observed cell.

    :param mean: B_q of a term with a trace norm; None for a ridge term.
    :param coefficients: (T,) dual coordinates of a ridge term; None for a term with a trace norm.
    """

    mean: LowRank | None
    coefficients: Tensor | None

    @property
    def rank(self) -> int | None:
        """Of the mean; None for a ridge term."""
        return None if self.mean is None else self.mean.rank


@dataclass(frozen=True)
class AdditiveSolution:
    r"""A fitted mean of a sum.

    :param parts: one for each term.
    :param psi: (T,) their sum at the observed cells.
    :param loss: the loss there.
    :param certificate: the evidence, equation (13); its rank is the sum over the terms that have one.
    :param squares: :math:`\|B_q\|_F^2` of each term.
    :param dual: (T,) coefficients of all ridge terms, each times its l2; None without such terms.
    :param spares: for each term (N, p) right images of directions that nearly entered, or None.
    :param scale: of the curvature met on the way.
    """

    parts: tuple[AdditivePart, ...]
    psi: Tensor
    loss: LossValue
    certificate: Certificate
    squares: tuple[float, ...]
    dual: Tensor | None
    spares: tuple[Tensor | None, ...]
    scale: float


def solve_additive(
    problems: Sequence[MeanProblem],
    penalties: Sequence[SpectralElasticNet],
    *,
    tolerance: float,
    max_iterations: int = 2000,
    start: AdditiveSolution | None = None,
    exact_limit: int = EXACT_LIMIT,
    single_from: int = 1_000_000,
    dense_cells: int = DENSE_CELLS,
) -> AdditiveSolution:
    """The mean of a sum of terms, all of them at once, until the duality gap (13) is closed.

    :param problems: kernels of each term, on the same pattern and with the same loss.
    :param penalties: h_q; alpha = 0 makes it a ridge term.
    :param tolerance: on the relative duality gap. Whether it was met is for the certificate to say.
    :param max_iterations: bound on the steps.
    :param start: a solution of a neighbouring problem, for a warm start.
    :param exact_limit: longest short side up to which certificates use exact singular values; beyond it they hold with
        the probability that they state.
    :param single_from: cells from which a rough solution in single precision comes first.
    :param dense_cells: observed cells up to which the system of the ridge terms is factored, rather than iterated on.

    Example:
        >>> import torch
        >>> from linear_operator import to_linear_operator
        >>> from mvgp.likelihoods import SquaredLoss
        >>> from mvgp.linalg.pairs import Pattern
        >>> from mvgp.mean import MeanProblem, SpectralElasticNet, solve_additive
        >>> pattern = Pattern(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 2]), (2, 3))
        >>> loss = SquaredLoss(torch.tensor([2.0, 1.0, -1.0]).double())
        >>> own = [to_linear_operator(torch.eye(n).double()) for n in (2, 3)]
        >>> flat = [to_linear_operator(torch.ones(n, n).double()) for n in (2, 3)]
        >>> problems = [MeanProblem(*kernels, pattern, loss) for kernels in (own, flat)]
        >>> penalties = [SpectralElasticNet(0.5, 1.0), SpectralElasticNet(1.0, 0.0)]
        >>> found = solve_additive(problems, penalties, tolerance=1e-8)
        >>> found.certificate.converged, found.parts[0].rank, found.parts[1].coefficients.shape
        (True, 1, torch.Size([3]))

    """
    problems, penalties = check_terms(problems, penalties)
    check_requirements("solve_additive", REQUIRES, problems[0].loss)
    tolerance, max_iterations = check_solve(problems[0], tolerance, max_iterations)
    if start is not None:
        check_instance(start, "start", AdditiveSolution, "mvgp.mean.AdditiveSolution")
        if len(start.parts) != len(problems) or start.psi.shape != (len(problems[0].pattern),):
            raise InputError(f"start: expected a solution for {len(problems)} terms on the same cells")
    shape, taken = problems[0].shape, 0
    limits = check_whole_number(exact_limit, "exact_limit", 0), check_whole_number(dense_cells, "dense_cells", 0)
    is_large = shape[0] * shape[1] >= check_whole_number(single_from, "single_from", 0)
    if problems[0].dtype == torch.float64 and is_large and tolerance < ROUGH_TOLERANCE:
        rough = _Sum([problem.single for problem in problems], penalties, *limits)
        start = rough.solve(start, ROUGH_TOLERANCE, max_iterations, 0, confirm=False)
        taken = start.certificate.iterations
    return _Sum(problems, penalties, *limits).solve(start, tolerance, max_iterations, taken, confirm=True)


@dataclass(frozen=True)
class _Point:
    """A value of all variables.

    :param traced: B_q of the terms with a trace norm, as their terms hold them.
    :param dual: (T,) alpha of the ridge terms; None without.
    :param image: (T,) K_R alpha; None without.
    :param psi: (T,)
    :param at: the loss there.
    :param objective: loss and penalties.
    """

    traced: tuple[Any, ...]
    dual: Tensor | None
    image: Tensor | None
    psi: Tensor
    at: LossValue
    objective: float


@dataclass(frozen=True)
class _Step:
    """A proximal step.

    :param point: where it leads.
    :param energy: curvature that the terms with a trace norm met, times their squared length.
    :param length: what the step assumed for it; 0 where there is no telling.
    :param move: how far their psi moved.
    """

    point: _Point
    energy: float
    length: float
    move: float


class _Sum:
    """The terms, sorted into those with a trace norm, ridge terms, and those whose kernel is zero."""

    def __init__(
        self,
        problems: Sequence[MeanProblem],
        penalties: Sequence[SpectralElasticNet],
        exact_limit: int,
        dense_cells: int,
    ) -> None:
        self.problems, self.penalties, self.loss = problems, penalties, problems[0].loss
        norms = [spectral_bounds(p.row_op)[1] * spectral_bounds(p.col_op)[1] for p in problems]
        alive = [q for q, norm in enumerate(norms) if norm > 0]
        traced = [q for q in alive if penalties[q].trace > 0]
        self.terms = {q: traced_term(problems[q], penalties[q], exact_limit) for q in traced}
        self.ridged = [q for q in alive if penalties[q].trace == 0]
        self.ridge: RidgeTerms | None = None
        if self.ridged:
            chosen, weights = [problems[q] for q in self.ridged], [penalties[q].ridge for q in self.ridged]
            self.ridge = RidgeTerms(chosen, weights, self.loss, dense_cells)
        # on matrices of low rank the observed share of the energy, not all of it, bounds the curvature
        shape, curvature = problems[0].shape, self.loss.curvature
        ones = self._zeros() + 1
        share = max(self.loss.quadratic_bound(ones) / max(curvature * shape[0] * shape[1], 1e-300), 0.01)
        self.curvatures = [norms[q] * curvature * share for q in traced]
        self.largest_scale = max(len(traced), 1) / share

    def _zeros(self) -> Tensor:
        """(T,)"""
        first = self.problems[0]
        return torch.zeros(len(first.pattern), dtype=first.dtype, device=first.device)

    def solve(
        self, start: AdditiveSolution | None, tolerance: float, max_steps: int, taken: int, *, confirm: bool
    ) -> AdditiveSolution:
        """Steps until the certificate is within the tolerance.

        :param taken: steps taken before.
        :param confirm: whether the singular values are confirmed.
        """
        certify = _Certifier(self, tolerance, confirm)
        here = before = self._start(start)
        certificate = certify(here, taken)
        scale = min(1.0 if start is None else start.scale, self.largest_scale)
        momentum, beta, move = 1.0, 0.0, 0.0
        every = STEPS if self.terms else 1
        while not certify.is_done(certificate) and taken < max_steps:
            step = self._step(here, before, beta, scale, move)
            taken += 1
            if step.energy > step.length > 0 and scale < self.largest_scale:
                # the step was too long for the curvature met on the way: it is taken again, shorter
                scale = min(self.largest_scale, scale * max(1.2 * step.energy / step.length, 1.3))
            elif step.point.objective > here.objective and beta:  # momentum overshoots: restart from here
                momentum, beta = 1.0, 0.0
            else:
                met = scale * step.energy / step.length if step.length > 0 else scale
                easier = max(0.9 * scale, min(1.5 * met, scale))
                following = (1 + (1 + 4 * momentum**2 * easier / scale) ** 0.5) / 2
                beta, momentum, scale = (momentum - 1) / following, following, easier
                before, here, move = here, step.point, step.move
            if taken % every == 0:
                here = self._refreshed(here)
                certificate = certify(here, taken)
                report_step("gap", certificate.relative_gap, tolerance)
        if confirm and certificate.failure_probability is None:  # out of steps, and yet it is to be true
            certificate = certify.confirmed(here, taken)
        return self._solution(here, replace(certificate, iterations=taken), scale)

    # Points --------------------------------------------------------------------------------------

    def _start(self, before: AdditiveSolution | None) -> _Point:
        """Zero, or a solution of a neighbouring problem in this one's precision."""
        points = [
            term.start(*((None, None) if before is None else (before.parts[q].mean, before.spares[q])))
            for q, term in self.terms.items()
        ]
        if self.ridge is None:
            return self._point(points, None, None)
        if before is None or before.dual is None:
            return self._point(points, self._zeros(), self._zeros())
        dual = before.dual.to(self._zeros())
        return self._point(points, dual, self.ridge.times(dual))

    def _point(self, traced: Sequence[Any], dual: Tensor | None, image: Tensor | None) -> _Point:
        """With psi and the loss computed."""
        psi = self._zeros() if image is None else image.clone()
        for term, point in zip(self.terms.values(), traced, strict=True):
            psi += term.psi(point)
        return self._at(traced, dual, image, psi)

    def _at(self, traced: Sequence[Any], dual: Tensor | None, image: Tensor | None, psi: Tensor) -> _Point:
        at = self.loss(psi)
        value = at.value
        for q, point in zip(self.terms, traced, strict=True):
            value += self.penalties[q].value(point.values)
        if dual is not None and image is not None:
            value += long_dot(dual, image) / 2
        return _Point(tuple(traced), dual, image, psi, at, value)

    def _refreshed(self, point: _Point) -> _Point:
        """With the image of the ridge terms computed anew, as steps add rounding errors to it."""
        if self.ridge is None or point.dual is None:
            return point
        return self._point(point.traced, point.dual, self.ridge.times(point.dual))

    def _solution(self, point: _Point, certificate: Certificate, scale: float) -> AdditiveSolution:
        means = {q: term.low_rank(at) for (q, term), at in zip(self.terms.items(), point.traced, strict=True)}
        parts, squares = [], []
        for q, (problem, penalty) in enumerate(zip(self.problems, self.penalties, strict=True)):
            if penalty.trace > 0:
                mean = means.get(q, LowRank.zero(problem))
                parts.append(AdditivePart(mean, None))
                squares.append(float(mean.values.double().square().sum()))
                continue
            own = self._zeros()
            if q in self.ridged and point.dual is not None and self.ridge is not None:
                own = point.dual / penalty.ridge
                squares.append(long_dot(own, self.ridge.times_one(self.ridged.index(q), own)))
            else:
                squares.append(0.0)
            parts.append(AdditivePart(None, own))
        spares = tuple(self.terms[q].spares() if q in self.terms else None for q in range(len(parts)))
        return AdditiveSolution(
            tuple(parts), point.psi, point.at, certificate, tuple(squares), point.dual, spares, scale
        )

    # Steps ---------------------------------------------------------------------------------------

    def _step(self, here: _Point, before: _Point, beta: float, scale: float, move: float) -> _Step:
        """The proximal point from here + beta (here - before).

        :param scale: times :attr:`curvatures` is what the step assumes of the terms with a trace norm.
        :param move: of the step before.
        """
        psi = here.psi + beta * (here.psi - before.psi) if beta else here.psi
        theta = self.loss(psi).gradient if beta else here.at.gradient
        if self.ridge is None:
            traced, low, length = self._traced_step(theta, here, before, beta, scale)
            change = low - psi
            energy = self.loss.quadratic_bound(change) if traced else 0.0
            return _Step(self._at(traced, None, None, low), energy, length, float(change.norm()))
        dual, image = _ahead(here.dual, before.dual, beta), _ahead(here.image, before.image, beta)
        low_before, off = psi - image, theta + dual  # off is 0 where the ridge terms are optimal
        pull = self.ridge.inverse_metric * off
        is_small = bool(self.terms) and float(pull.norm()) <= SMALL_PULL * move
        slope = self.ridge.damping * off - dual
        if not is_small:
            shift, shift_image = self.ridge.solve(pull, SOLVE_ACCURACY)
            dual, image = dual - shift, image - shift_image
            slope = -dual
        if not self.terms:
            return _Step(self._at((), dual, image, image), 0.0, 0.0, 0.0)
        traced, low, length = self._traced_step(slope, here, before, beta, scale)
        change = low - low_before
        shift, shift_image = self.ridge.solve(change + pull if is_small else change, SOLVE_ACCURACY)
        dual, image = dual - shift, image - shift_image
        return _Step(self._at(traced, dual, image, low + image), long_dot(change, shift), length, float(change.norm()))

    def _traced_step(
        self, slope: Tensor, here: _Point, before: _Point, beta: float, scale: float
    ) -> tuple[list[Any], Tensor, float]:
        """Proximal points of the terms with a trace norm, their psi (T,), and the weighted squared length."""
        points, low, length, is_known = [], torch.zeros_like(slope), 0.0, True
        for at, (term, curvature) in enumerate(zip(self.terms.values(), self.curvatures, strict=True)):
            now, last = here.traced[at], before.traced[at]
            point: Any = term.step(slope, now, last, beta, scale * curvature)
            square = term.distance(point, now, last, beta)
            is_known = is_known and (square > 0 or not len(point.values))
            length += scale * curvature * square
            low += term.psi(point)
            points.append(point)
        return points, low, length if is_known else 0.0


def _ahead(now: Tensor | None, before: Tensor | None, beta: float) -> Tensor:
    assert now is not None
    assert before is not None
    return now + beta * (now - before) if beta else now


# The certificate ---------------------------------------------------------------------------------


class _Certifier:
    """Certificates (13) of one fit. One that seems to be within the tolerance, and the last one, are confirmed.

    :param confirm: False for a rough phase whose certificates may flatter.
    """

    def __init__(self, terms: _Sum, tolerance: float, confirm: bool) -> None:
        self.sum, self.tolerance, self.confirm = terms, tolerance, confirm
        self.failure = 0.0  # of all confirmations so far
        self.stalled = 0  # confirmations that missed the tolerance though the iterate seems good enough
        self.dual = -float("inf")  # the best of those that were confirmed

    def __call__(self, point: _Point, taken: int) -> Certificate:
        """From leading singular values, which may be too small; confirmed if they are within the tolerance.

        After a confirmation whose bounds were too loose the next one has to wait for a smaller gap: that leaves room.
        """
        dual_of, values = self._dual_of(point), self._leading(point, taken)
        first = self._certificate(point, dual_of(values), taken, None)
        due = self.confirm and first.relative_gap <= self.tolerance * STALLED_SHARE**self.stalled
        return self._confirmed(point, taken, dual_of, values) if due else first

    def is_done(self, certificate: Certificate) -> bool:
        """Whether the gap is closed, and confirmed if it is to be; or cannot be confirmed."""
        is_stated = not self.confirm or certificate.failure_probability is not None
        return (certificate.converged and is_stated) or self.stalled >= MAX_STALLED

    def _leading(self, point: _Point, taken: int) -> list[Tensor]:
        terms = zip(self.sum.terms.values(), point.traced, strict=True)
        return [term.leading(at, point.at.gradient, taken) for term, at in terms]

    def confirmed(self, point: _Point, taken: int) -> Certificate:
        """From values that are not too small, up to the stated probability."""
        return self._confirmed(point, taken, self._dual_of(point), self._leading(point, taken))

    def _confirmed(
        self, point: _Point, taken: int, dual_of: Callable[[Sequence[Tensor]], float], values: list[Tensor]
    ) -> Certificate:
        estimate, goal = dual_of(values), point.objective * (1 - self.tolerance)
        for at, (term, own) in enumerate(zip(self.sum.terms.values(), point.traced, strict=True)):

            def dual(of_term: Tensor, at: int = at) -> float:
                return dual_of([*values[:at], of_term, *values[at + 1 :]])

            # each term may use up its part of the room between the estimate and the goal
            allowed = estimate - (estimate - goal) * (at + 1) / len(values) if estimate > goal else goal
            found = term.confirmed(own, point.at.gradient, taken, dual, allowed)
            values[at] = found.values
            self.failure += found.failure
            self.stalled += not found.is_sharp
        self.dual = max(self.dual, dual_of(values))
        return self._certificate(point, self.dual, taken, self.failure)

    def _dual_of(self, point: _Point) -> Callable[[Sequence[Tensor]], float]:
        """Equation (13) as a function of the singular values of the gradient for each term with a trace norm."""
        ridge, theta = self.sum.ridge, point.at.gradient
        square = 0.0 if ridge is None else long_dot(theta, ridge.times(theta))
        penalties = [self.sum.penalties[q] for q in self.sum.terms]
        return lambda values: additive_dual(point.at, square, values, penalties)

    def _certificate(self, point: _Point, dual: float, taken: int, failure: float | None) -> Certificate:
        rank = sum(int(at.values.numel()) for at in point.traced)
        return Certificate(point.objective, dual, self.tolerance, taken, rank, "additive", failure)
