"""LossContract: what the solvers of the mean, and their certificates, rely on in a loss."""

from __future__ import annotations

import unittest

import torch
from torch import Tensor

from ..likelihoods.losses import Loss
from .contract import Contract, slopes

SCALES = (0.0, 0.25, 0.5, 0.9, 1.0)


class LossContract(Contract):
    r"""Rules of a :class:`~mvgp.likelihoods.Loss`: convex, its gradient right, its curvature and conjugate bounds.

    Override :meth:`make_loss`; and :meth:`make_psi`, if it does not take any numbers.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import SquaredLoss
        >>> from mvgp.testing import LossContract, run_contract
        >>> class SquaredContract(LossContract):
        ...     length = 4
        ...     def make_loss(self):
        ...         return SquaredLoss(torch.arange(4.0).double(), torch.tensor([1.0, 2.0, 0.5, 1.0]).double())
        >>> run_contract(SquaredContract).broken
        {}

    """

    length = 6  # T, of the vectors it is tried on
    draws = 20

    def make_loss(self) -> Loss:
        """The loss, of ``length`` numbers in double precision."""
        raise NotImplementedError("override make_loss")

    def make_psi(self, generator: torch.Generator) -> Tensor:
        """(T,) random numbers to try it at."""
        return 2 * torch.randn(self.length, generator=generator, dtype=torch.float64)

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        return [(self.make_psi(generator), self.make_psi(generator)) for _ in range(self.draws)]

    def test_value_and_gradient(self) -> None:
        """A finite number, and (T,) finite numbers in the precision of psi, which is left as it is."""
        loss = self.make_loss()
        for psi, _ in self._pairs():
            before, at = psi.clone(), loss(psi)
            self.require(isinstance(at.value, float) and abs(at.value) < float("inf"), "value is a finite float")
            self.require(at.gradient.shape == psi.shape, f"gradient is (T,), got {tuple(at.gradient.shape)}")
            self.require(at.gradient.dtype == psi.dtype, f"gradient has the precision of psi, got {at.gradient.dtype}")
            self.require(torch.isfinite(at.gradient).all(), "gradient is finite")
            self.require(torch.equal(psi, before), "psi is left as it is")

    def test_the_gradient_is_that_of_the_value(self) -> None:
        """By central differences."""
        loss = self.make_loss()
        for psi, _ in self._pairs()[:5]:
            expected = slopes(lambda at: torch.tensor(loss(at).value, dtype=torch.float64), psi)
            size = 1 + float(expected.abs().max())
            self.require_close(loss(psi).gradient, expected, "gradient = slope of value", absolute=1e-5 * size)

    def test_it_is_convex(self) -> None:
        """Every tangent is below: f(b) >= f(a) + <theta(a), b - a>."""
        loss = self.make_loss()
        for a, b in self._pairs():
            first, second = loss(a), loss(b)
            below = first.value + float(first.gradient @ (b - a))
            slack = 1e-9 * (1 + abs(first.value) + abs(second.value))
            self.require(second.value >= below - slack, "f(b) >= f(a) + <theta(a), b - a>")

    def test_the_curvature_is_a_bound(self) -> None:
        """f(b) is at most f(a) + <theta(a), b - a> + quadratic_bound(b - a) / 2, itself bounded by the curvature."""
        loss = self.make_loss()
        self.require(0 < loss.curvature < float("inf"), f"curvature is positive and finite, got {loss.curvature}")
        for a, b in self._pairs():
            first, second, step = loss(a), loss(b), b - a
            bend = loss.quadratic_bound(step)
            above = first.value + float(first.gradient @ step) + bend / 2
            slack = 1e-9 * (1 + abs(first.value) + abs(second.value))
            self.require(second.value <= above + slack, "f(b) <= f(a) + <theta(a), b - a> + quadratic_bound(b - a) / 2")
            limit = loss.curvature * float(step @ step)
            self.require(bend <= limit * (1 + 1e-9), "quadratic_bound(step) <= curvature |step|^2")

    def test_the_conjugate_is_one(self) -> None:
        """f*(c theta) >= <c theta, phi> - f(phi) for every phi, which certificates rest on; and equal at c = 1."""
        loss = self.make_loss()
        pairs = self._pairs()
        for psi, _ in pairs:
            at = loss(psi)
            slack = 1e-8 * (1 + abs(at.value) + float((at.gradient * psi).abs().sum()))
            for scale in SCALES:
                for value, name in ((at.conjugate(scale), "conjugate"), (at.conjugate_bound(scale), "conjugate_bound")):
                    for _, phi in pairs:
                        below = scale * float(at.gradient @ phi) - loss(phi).value
                        self.require(value >= below - slack, f"{name}(c) >= <c theta, phi> - f(phi)")
            tight = float(at.gradient @ psi) - at.value
            self.require(abs(at.conjugate(1.0) - tight) <= slack, "conjugate(1) = <theta, psi> - f(psi)")

    def test_the_conjugate_is_finite(self) -> None:
        """Where it is not, the mean has no certificate with a trace norm alone; with a Hilbert norm it has."""
        loss = self.make_loss()
        at = loss(self._pairs()[0][0])
        if at.conjugate(0.5) == float("inf"):
            raise unittest.SkipTest("the loss has no lower bound: certificates need a Hilbert norm (trace_share < 1)")
        self.require(at.conjugate(0.5) == at.conjugate(0.5), "conjugate is a number")

    def test_it_can_be_called_again(self) -> None:
        """What was asked before does not change the answer."""
        loss = self.make_loss()
        for a, b in self._pairs()[:5]:
            first = loss(a)
            loss(b)
            again = loss(a)
            self.require_close(again.gradient, first.gradient, "the same gradient again", relative=1e-10)
            self.require(abs(again.value - first.value) <= 1e-10 * (1 + abs(first.value)), "the same value again")
