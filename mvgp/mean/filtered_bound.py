r"""An upper bound on the largest singular value of the gradient, by a Chebyshev filter.

It is all that the certificate of a pure trace norm needs.

Let A be :math:`Y^T Y` or :math:`Y Y^T`, whichever is smaller, a a number near its largest eigenvalue, v a random vector
of length 1, and :math:`x_k = T_k(2 A / a - 1)\, v`. For an eigenvalue :math:`\lambda > a` with unit vector e

.. math:: \|x_k\| \ge T_k(2 \lambda / a - 1)\, |\langle v, e \rangle|.

Eigenvalues up to a leave :math:`\|x_k\| \le 1`, those above it make :math:`T_k` grow like
:math:`\exp(2 k \sqrt{\lambda / a - 1})`, and :math:`|\langle v, e \rangle|` is rarely small. So a long x proves that
something is above a, and a short one bounds it. Unlike Lanczos runs (:mod:`mvgp.mean.spectrum_bound`) the recurrence is
stable: nothing is made orthogonal, and two blocks of vectors are all that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..linalg.spectra import spectral_bounds
from .low_rank import LowRank
from .problem import MeanProblem, times
from .spectrum_bound import PROBES, SpectrumBound, seed_of, spectral_norm_bound

CHECKS = 4  # looks at what the filter has met, until the steps that were planned
LARGEST_NORM = 1e12  # of a filtered vector; by then the edge was too low


def bound_largest(
    problem: MeanProblem,
    theta: Tensor,
    triplets: LowRank,
    dual_of: Callable[[Tensor], float],
    goal: float,
    *,
    failure: float,
    max_steps: int = 1024,
) -> SpectrumBound | None:
    """A bound on the largest singular value that shows a dual value of ``goal``, if there is one.

    None where more than ``max_steps`` steps would be needed, or the triplets themselves miss the goal.

    :param triplets: leading ones of Y, from a subspace pass.
    :param dual_of: the dual bound (11) from the largest singular value of Y; it does not grow with it.
    """
    low = float(triplets.values[0]) if triplets.rank else 0.0
    target = _largest_allowed(dual_of, goal, low)
    if not target > low > 0:
        return None
    edge, used, nothing = low**2, 0, triplets.right_image[:, :0]
    while (
        True
    ):  # again with the value that was met, where the first edge was too low: the same vectors, the same chance
        search = ChebyshevFilter(problem, theta, edge, failure)
        planned = search.steps_needed(target**2)
        if planned > max_steps - used:
            return None
        while search.steps < 2 * planned and search.norms.max() < LARGEST_NORM:
            search.extend(math.ceil(planned / CHECKS))
            upper = math.sqrt(search.upper_square())
            values = torch.tensor([upper], dtype=torch.float64, device=problem.device)
            if upper <= target:
                return SpectrumBound(values, failure, triplets, nothing, True)
            squares, images = search.met()
            if math.sqrt(float(squares[0])) > target:  # out of reach
                return SpectrumBound(values, failure, triplets, images, True)
        used += search.steps
        if float(squares[0]) <= edge * (1 + 1e-6):  # nothing new was met, and yet the bound is not sharp
            return SpectrumBound(values, failure, triplets, images, False)
        edge = float(squares[0])


def _largest_allowed(dual_of: Callable[[Tensor], float], goal: float, low: float) -> float:
    """The largest singular value with which the dual bound still reaches the goal; ``low`` if there is none above."""

    def reaches(value: float) -> bool:
        return dual_of(torch.tensor([value], dtype=torch.float64)) >= goal

    inside, outside = low, 2 * low
    if reaches(outside):
        return outside
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if reaches(middle) else (inside, middle)
    return inside


class ChebyshevFilter:
    r"""Random vectors under :math:`T_k(2 A / a - 1)`, side by side, in dual coordinates of the shorter side.

    :param edge: a.
    :param failure: probability that :meth:`upper_square` is below the largest eigenvalue.
    """

    def __init__(self, problem: MeanProblem, theta: Tensor, edge: float, failure: float) -> None:
        self.problem, self.edge, self.steps = problem, edge, 0
        self.matrix, self.matrix_t = problem.sparse(theta)
        self._by_rows = problem.shape[0] <= problem.shape[1]
        generator = torch.Generator().manual_seed(seed_of(theta, 0))
        start = torch.randn(min(problem.shape), PROBES, generator=generator, dtype=torch.float64)
        dual = start.to(problem.dtype).to(problem.device)
        image = self._kernel(dual)
        sizes = (dual * image).sum(0).clamp_min(1e-300).sqrt()
        self._before, self._now, self._image = torch.zeros_like(dual), dual / sizes, image / sizes
        self.norms = torch.ones(PROBES, dtype=torch.float64)
        own, other = (problem.row_op, problem.col_op) if self._by_rows else (problem.col_op, problem.row_op)
        (low, high), across = spectral_bounds(own), spectral_bounds(other)[1]
        # <v, e> is normal with standard deviation ||G e|| / size, which is at least the root of the kernel's lowest
        # eigenvalue; and ||Y e|| <= ||G^T Theta|| ||G e|| for an e of eigenvalue lambda
        reach = math.sqrt(across) * spectral_norm_bound(problem, theta)
        chance = failure ** (1 / PROBES) * math.sqrt(math.pi / 2)
        self._chances = chance / sizes.double().cpu()  # (s,)
        self._low, self._reach, self.limit = math.sqrt(low), reach, reach**2 * high

    def _kernel(self, dual: Tensor) -> Tensor:
        return self.problem.rows_times(dual) if self._by_rows else self.problem.cols_times(dual)

    def _product(self, image: Tensor) -> Tensor:
        """(n, s): dual coordinates of A x, from the image of x."""
        if self._by_rows:
            return times(self.matrix, self.problem.cols_times(times(self.matrix_t, image)))
        return times(self.matrix_t, self.problem.rows_times(times(self.matrix, image)))

    def extend(self, steps: int) -> None:
        """Go on by some steps, or until a vector has outgrown the numbers."""
        for _ in range(steps):
            scale = 2.0 if self.steps else 1.0
            fresh = self._product(self._image).mul_(2 * scale / self.edge).sub_(self._now, alpha=scale)
            if self.steps:
                fresh.sub_(self._before)
            self._before, self._now = self._now, fresh
            self._image, self.steps = self._kernel(fresh), self.steps + 1
            if self.steps % 16 == 0 and float(self._lengths().max()) > LARGEST_NORM:
                break
        self.norms = self._lengths()

    def _lengths(self) -> Tensor:
        return (self._now * self._image).sum(0).clamp_min(0).double().sqrt().cpu()

    def _share(self, square: float) -> Tensor:
        """(s,): what <v, e> exceeds for the eigenvector of an eigenvalue, with the stated chance."""
        return self._chances * max(self._low, math.sqrt(square) / self._reach)

    def steps_needed(self, square: float) -> int:
        """Steps after which vectors that have not grown show that no eigenvalue is above ``square``."""
        growth = math.acosh(max(2 * square / self.edge - 1, 1 + 1e-15))
        return math.ceil(float(torch.acosh(1 / self._share(square).clamp(1e-300, 1)).max()) / growth)

    def upper_square(self) -> float:
        """An upper bound on the largest eigenvalue; it fails with probability ``failure`` at most."""
        rounding = 1 + self.steps**2 * torch.finfo(self._now.dtype).eps
        logs = (self.norms * rounding).log()

        def is_possible(square: float) -> bool:
            at = self.steps * math.acosh(2 * square / self.edge - 1)  # log of 2 T_k, all but
            grown = at + math.log1p(math.exp(-2 * at)) - math.log(2)
            return bool((grown + self._share(square).log() <= logs).any())

        low, high = self.edge, max(self.limit, self.edge)
        if is_possible(high):
            return high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if is_possible(middle) else (low, middle)
        return high

    def met(self) -> tuple[Tensor, Tensor]:
        """Ritz values (q,) of A in the span of the vectors, descending, and right images (N, q) of their vectors."""
        moved = self._product(self._image)
        sizes = self._lengths().clamp_min(1e-300).to(moved)
        dual, image, moved = self._now / sizes, self._image / sizes, moved / sizes
        own, across = (image.mT @ dual).double(), (image.mT @ moved).double()
        values, turn = torch.linalg.eigh((own + own.mT) / 2)
        turn = turn[:, values > 1e-4 * values[-1]] / values[values > 1e-4 * values[-1]].sqrt()
        small = turn.mT @ ((across + across.mT) / 2) @ turn
        squares, vectors = torch.linalg.eigh(small)
        images = image @ (turn @ vectors.flip(1)).to(image)
        if self._by_rows:  # right images of Y^T u
            images = self.problem.cols_times(times(self.matrix_t, images))
        return squares.flip(0).clamp_min(0), images
