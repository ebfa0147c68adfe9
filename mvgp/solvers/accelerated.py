r"""Accelerated proximal gradient with restarts, in whatever space the iterates live.

The step length follows the curvature met on the way: with few entries observed it is far below the bound that
holds for every matrix. A step that met more than it assumed is taken again, shorter, so the descent is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from .losses import LossValue
from .penalties import Penalty
from .problem import MeanProblem

Point = TypeVar("Point")


class Space(Protocol[Point]):
    """Where iterates live, and how a proximal step is taken there."""

    def step(self, theta: Tensor, now: Point, before: Point, beta: float, lipschitz: float) -> Point:
        """The proximal point from now + beta (now - before), ``theta`` (T,) the loss's gradient there."""
        ...

    def distance(self, fresh: Point, now: Point, before: Point, beta: float) -> float:
        """||fresh - now - beta (now - before)||_F^2"""
        ...

    def psi(self, point: Point) -> Tensor:
        """(T,): psi at the observed pairs."""
        ...

    def values(self, point: Point) -> Tensor:
        """Singular values of the point."""
        ...


@dataclass(frozen=True)
class Reached(Generic[Point]):
    """Where the steps led.

    :param point: the last one.
    :param psi: (T,) there.
    :param at: the loss there.
    :param lipschitz: the curvature assumed last.
    :param steps: how many were taken.
    """

    point: Point
    psi: Tensor
    at: LossValue
    lipschitz: float
    steps: int


def accelerate(
    problem: MeanProblem,
    penalty: Penalty,
    space: Space[Point],
    start: Reached[Point],
    *,
    max_steps: int,
    done: Callable[[Reached[Point]], bool] | None = None,
    watch: Callable[[float], None] | None = None,
) -> Reached[Point]:
    """Steps until ``done`` says so, or ``max_steps``.

    :param watch: called with the objective after every step that lowered it.
    """
    most = problem.lipschitz()
    here, before, psi_before = start, start.point, start.psi
    lipschitz, momentum, beta = min(start.lipschitz, most), 1.0, 0.0
    objective = start.at.value + penalty.value(space.values(start.point))
    for step in range(1, max_steps + 1):
        psi_ahead = here.psi + beta * (here.psi - psi_before) if beta else here.psi
        theta = problem.loss(psi_ahead).gradient if beta else here.at.gradient
        fresh = space.step(theta, here.point, before, beta, lipschitz)
        psi = space.psi(fresh)
        length = space.distance(fresh, here.point, before, beta)
        energy = problem.loss.bend(psi - psi_ahead)
        curvature = energy / length if length > 0 else 0.0
        if curvature > lipschitz and lipschitz < most:  # the step was too long for the curvature met on the way
            lipschitz = min(most, max(1.2 * curvature, 1.3 * lipschitz))
            continue
        at = problem.loss(psi)
        reached = at.value + penalty.value(space.values(fresh))
        if reached > objective and beta:  # momentum overshoots: begin anew from here
            momentum, beta = 1.0, 0.0
            continue
        easier = max(0.9 * lipschitz, min(1.5 * curvature, lipschitz))
        following = (1 + (1 + 4 * momentum**2 * easier / lipschitz) ** 0.5) / 2
        beta, momentum, lipschitz = (momentum - 1) / following, following, easier
        before, psi_before, objective = here.point, here.psi, reached
        here = Reached(fresh, psi, at, lipschitz, step)
        if watch:
            watch(objective)
        if done and done(here):
            break
    return here
