r"""The system after some pairs came or went, from a solver of the system before.

With A the matrix that was solved, new pairs border it, and a pair that goes is held at zero:

.. math:: A' = \begin{pmatrix} A & B \\ B^T & C \end{pmatrix}, \qquad
          A'^{-1} b = \begin{pmatrix} x - X u \\ u \end{pmatrix}, \quad
          x = A^{-1} b_1, \; X = A^{-1} B, \; u = (C - B^T X)^{-1} (b_2 - B^T x),

and without the pairs R, with :math:`Y = A'^{-1} E_R`, it is :math:`A'^{-1} b - Y Y_R^{-1} (A'^{-1} b)_R`. With a factor
of A that is exact in :math:`O(T^2 k)`, what appending k rows to the factor takes. With a preconditioner in place of
:math:`A^{-1}` it is a preconditioner of the new system, and conjugate gradients do the rest; nothing is set up anew.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ..errors import NotPositiveSemidefiniteError
from .conjugate_gradients import Map, Solution, SolveReport, conjugate_gradients
from .solvers import CholeskySolver, Solver


class UpdatedSolver:
    """Solves the system of other pairs than ``base``, most of them the same.

    :param base: solver of the T pairs before; a Cholesky factor, or an updated one, for :meth:`half`.
    :param border: B (T, k), the covariance of the pairs before and the new ones.
    :param corner: C (k, k), the covariance of the new ones, their noise included.
    :param slots: (T',) where each pair of this system is among the T + k.
    :param max_iterations: of conjugate gradients.
    """

    def __init__(
        self, base: Solver, border: Tensor, corner: Tensor, slots: Tensor, *, max_iterations: int = 1000
    ) -> None:
        self.base, self.border, self.corner, self.slots = base, border, corner, slots
        self.method, self.max_iterations = base.method, max_iterations
        gone = torch.ones(sum(border.shape), dtype=torch.bool, device=border.device)
        gone[slots] = False
        self._removed = gone.nonzero().squeeze(1)  # (r,)
        self.edits: int = border.shape[1] + len(self._removed) + getattr(base, "edits", 0)  # since the first solver
        self.depth: int = 1 + getattr(base, "depth", 0)  # updates since then
        self._coupled: tuple[Tensor, Tensor] | None = None

    def _wide(self, x: Tensor) -> Tensor:
        """(T + k, C) from (T', C), 0 at what was removed."""
        wide = x.new_zeros(sum(self.border.shape), x.shape[1])
        wide[self.slots] = x
        return wide

    def times(self, x: Tensor) -> Tensor:
        """(T', C): A' times (T', C)."""
        old, new = self._wide(x).split(list(self.border.shape))
        return torch.cat([self.base.times(old) + self.border @ new, self.border.mT @ old + self.corner @ new])[
            self.slots
        ]

    @cached_property
    def _elimination(self) -> tuple[Tensor, Tensor] | None:
        """X (T, k) and the factor of C - B^T X (k, k); None where a rough preconditioner leaves that indefinite."""
        inverse = self.base.inverse
        assert inverse is not None
        x = inverse(self.border)
        schur = self.corner - self.border.mT @ x
        chol, info = torch.linalg.cholesky_ex((schur + schur.mT) / 2)
        return (x, chol) if int(info) == 0 else None

    def _bordered(self, wide: Tensor) -> Tensor:
        """(T + k, C): the inverse of the bordered matrix times (T + k, C), up to the accuracy of the base's."""
        inverse = self.base.inverse
        assert inverse is not None
        old, new = wide.split(list(self.border.shape))
        x, elimination = inverse(old), self._elimination
        if elimination is None:  # both blocks, without what couples them
            return torch.cat([x, torch.cholesky_solve(new, torch.linalg.cholesky(self.corner))])
        through, chol = elimination
        u = torch.cholesky_solve(new - self.border.mT @ x, chol)
        return torch.cat([x - through @ u, u])

    @cached_property
    def _deflation(self) -> tuple[Tensor, Tensor]:
        """Y (T + k, r), and the factor of Y_R (r, r)."""
        unit = self.border.new_zeros(sum(self.border.shape), len(self._removed))
        unit[self._removed, torch.arange(len(self._removed), device=unit.device)] = 1.0
        y = self._bordered(unit)
        inner = y[self._removed]
        return y, torch.linalg.cholesky((inner + inner.mT) / 2)

    @property
    def inverse(self) -> Map | None:
        """(T', C) to the inverse of A' times it, up to the accuracy of the base's; None without one."""
        return None if self.base.inverse is None else self._inverse

    def _inverse(self, rhs: Tensor) -> Tensor:
        out = self._bordered(self._wide(rhs))
        if len(self._removed):
            y, chol = self._deflation
            out = out - y @ torch.cholesky_solve(out[self._removed], chol)
        return out[self.slots]

    def solve(self, rhs: Tensor, tolerance: float, start: Tensor | None = None, left: Tensor | None = None) -> Solution:
        """(T', C) answers with the measured residual, from ``start`` (T', C) if there is one.

        :param left: (T, C) the residual of the base's own solution, where that is what ``start`` holds, with 0 at the
            new pairs.
        """
        known = None
        if start is not None and left is not None and not len(self._removed):
            old, _ = self._wide(start).split(list(self.border.shape))
            known = torch.cat([left, self._wide(rhs)[len(left) :] - self.border.mT @ old])[self.slots]
        solution = conjugate_gradients(
            self.times,
            rhs,
            tolerance=tolerance,
            max_iterations=self.max_iterations,
            preconditioner=self.inverse,
            start=start,
            start_residual=known,
        )
        report = solution.solve_report
        iterations = report.iterations if self.method == "cg" else 0
        report = SolveReport(self.method, report.residual, tolerance, iterations)
        return Solution(solution.value, report, solution.residual)

    # What a dense factor offers ---------------------------------------------------------------------

    @property
    def is_dense(self) -> bool:
        """Whether a dense factor is what it rests on."""
        return isinstance(self.base, CholeskySolver) or (isinstance(self.base, UpdatedSolver) and self.base.is_dense)

    def half(self, rhs: Tensor, tolerance: float, *, strict: bool = True) -> Tensor:
        """(H, C) whose squares add up to b^T A'^-1 b, for (T', C); see :meth:`CholeskySolver.half`."""
        out = self._wide_half(self._wide(rhs), tolerance, strict)
        if len(self._removed):
            # b^T A_kept^-1 b is the least over what could stand at the removed pairs: a projection
            basis = self._removed_basis(tolerance, strict)
            out = out - basis @ (basis.mT @ out)
        return out

    def _wide_half(self, wide: Tensor, tolerance: float, strict: bool) -> Tensor:
        assert isinstance(self.base, CholeskySolver | UpdatedSolver)
        old, new = wide.split(list(self.border.shape))
        first = self.base.half(old, tolerance, strict=strict)
        if self._coupled is None:
            through = self.base.half(self.border, tolerance, strict=strict)  # (H, k)
            chol, info = torch.linalg.cholesky_ex(self.corner - through.mT @ through)
            if int(info) > 0:
                raise NotPositiveSemidefiniteError(
                    f"K_TT + noise is not positive definite in {chol.dtype} with {len(chol)} new pairs; raise the noise"
                )
            self._coupled = through, chol
        through, chol = self._coupled
        second = torch.linalg.solve_triangular(chol, new - through.mT @ first, upper=False)
        return torch.cat([first, second])

    def _removed_basis(self, tolerance: float, strict: bool) -> Tensor:
        """(H, r) orthonormal: the halves of the removed pairs' unit vectors."""
        if self._basis is None:
            unit = self.border.new_zeros(sum(self.border.shape), len(self._removed))
            unit[self._removed, torch.arange(len(self._removed), device=unit.device)] = 1.0
            self._basis = torch.linalg.qr(self._wide_half(unit, tolerance, strict)).Q
        return self._basis

    _basis: Tensor | None = None

    def inverse_diagonal(self) -> Tensor:
        """(T',): the diagonal of A'^-1."""
        return self._inverse(torch.eye(len(self.slots), dtype=self.border.dtype, device=self.border.device)).diagonal()
