r"""The factored form :math:`B = X Z^T`: smooth, not convex; minimised by L-BFGS.

.. math:: f(G_M X Z^T G_N^T) + \tfrac{l_1}{2} (\|X\|_F^2 + \|Z\|_F^2) + \tfrac{l_2}{2} \|X Z^T\|_F^2

is an upper bound on the objective with the spectral elastic net, and meets it at balanced factors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from linear_operator import LinearOperator
from scipy.optimize import minimize
from torch import Tensor

from ..linalg.roots import root
from .problem import MeanProblem, times


class FactoredProblem:
    """Roots of the kernels, and the objective of factors X (D_M, R) and Z (D_N, R)."""

    def __init__(self, problem: MeanProblem) -> None:
        self.problem = problem
        self.row_root: LinearOperator = root(problem.row_op)
        self.col_root: LinearOperator = root(problem.col_op)

    @property
    def sizes(self) -> tuple[int, int]:
        """(D_M, D_N)"""
        return int(self.row_root.shape[-1]), int(self.col_root.shape[-1])

    def random(self, rank: int, scale: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random factors of the given rank."""
        options = {"generator": generator, "dtype": torch.float64}
        made = [scale * torch.randn(size, rank, **options) for size in self.sizes]  # type: ignore[call-overload]
        return made[0].to(self.problem.dtype), made[1].to(self.problem.dtype)

    def objective(self, x: Tensor, z: Tensor, l1: float, l2: float) -> tuple[float, Tensor, Tensor]:
        """Value, and gradients in X and Z."""
        p, q = self.row_root._matmul(x), self.col_root._matmul(z)  # (M, R), (N, R)
        at = self.problem.loss(self.problem.pattern.sample(p, q))
        theta, theta_t = self.problem.sparse(at.gradient)
        of_x, of_z = x.mT @ x, z.mT @ z
        value = at.value + l1 / 2 * float((x.double() ** 2).sum() + (z.double() ** 2).sum())
        value += l2 / 2 * float((of_x.double() * of_z.double()).sum())
        grad_x = self.row_root.mT._matmul(times(theta, q)) + l1 * x + l2 * (x @ of_z)
        grad_z = self.col_root.mT._matmul(times(theta_t, p)) + l1 * z + l2 * (z @ of_x)
        return value, grad_x, grad_z

    def minimise(
        self,
        x: Tensor,
        z: Tensor,
        l1: float,
        l2: float,
        *,
        max_iterations: int,
        gradient_tolerance: float = 1e-8,
        watch: Callable[[float], None] | None = None,
    ) -> tuple[Tensor, Tensor, float, int]:
        """A local minimum near (X, Z): the factors, the value, and the evaluations used.

        :param watch: called with the value after every evaluation.
        """
        rank, cut = x.shape[1], x.numel()

        def flat(a: Tensor, b: Tensor) -> np.ndarray:
            return torch.cat([a.flatten(), b.flatten()]).double().cpu().numpy()

        def factors(vector: np.ndarray) -> tuple[Tensor, Tensor]:
            both = torch.from_numpy(vector).to(dtype=x.dtype, device=x.device)
            return both[:cut].reshape(-1, rank), both[cut:].reshape(-1, rank)

        def call(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, grad_x, grad_z = self.objective(*factors(vector), l1, l2)
            if watch:
                watch(value)
            return value, flat(grad_x, grad_z)

        first = call(flat(x, z))[0]
        done = minimize(
            call,
            flat(x, z),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": max_iterations,
                "maxfun": 2 * max_iterations,
                "ftol": 1e-15,
                "gtol": gradient_tolerance * max(abs(first), 1.0) ** 0.5,
            },
        )
        best_x, best_z = factors(done.x)
        return best_x, best_z, float(done.fun), int(done.nfev)
