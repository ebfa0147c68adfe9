"""The posterior of a factor GP: a maximum a posteriori of user-chosen rank."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator, RootLinearOperator
from torch import Tensor

from ..errors import InputError, SizeError
from ..linalg.pairs import PairIndex
from .covariance import PosteriorCovariance
from .gaussian import GaussianPosterior
from .joint import Joint
from .predictive import Predictions
from .query import LowRankCoefficients, Query
from .system import VarianceMethod


class LaplaceCovariance(PosteriorCovariance):
    r"""The Gaussian approximation around a maximum a posteriori of the factors (after Yu et al. 2007).

    In whitened factors X, Z with :math:`\psi = G_M X Z^T G_N^T`, linearised at the maximum with J the Jacobian:
    :math:`S \approx J_* (I + J_T^T D^{-1} J_T)^{-1} J_*^T` (Gauss-Newton form, which has no negative or zero directions
    from the rotations of the factors). It is an approximation, not a bound.

    :param row_root: G_M (M, D_M).
    :param col_root: G_N (N, D_N).
    :param x: (D_M, R) at the maximum.
    :param z: (D_N, R) at the maximum.
    :param pairs: the T observed cells.
    :param noise: () or (T,) noise variances.
    :param max_unknowns: entries of X and Z up to which the Hessian is formed.
    """

    def __init__(
        self,
        row_root: LinearOperator,
        col_root: LinearOperator,
        x: Tensor,
        z: Tensor,
        pairs: PairIndex,
        noise: Tensor,
        *,
        max_unknowns: int = 4000,
    ) -> None:
        self.row_root, self.col_root, self.x, self.z = row_root, col_root, x, z
        self.pairs, self.noise, self.max_unknowns = pairs, noise, max_unknowns

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Dense roots, factors at rows and columns, and the Cholesky factor of the Hessian."""
        unknowns = self.x.numel() + self.z.numel()
        if unknowns > self.max_unknowns:
            raise SizeError(
                f"the Laplace covariance of a factor GP forms a Hessian of its {unknowns} unknowns; the limit is "
                f"{self.max_unknowns}. Its mean is available at any size; for variances use FullGP or TraceGP"
            )
        g, h = self.row_root.to_dense(), self.col_root.to_dense()
        p, q = g @ self.x, h @ self.z
        jacobian = _jacobian(g, h, p, q, self.pairs.rows, self.pairs.cols)  # (T, unknowns)
        scaled = jacobian / (self.noise.sqrt().unsqueeze(-1) if self.noise.dim() else self.noise.sqrt())
        hessian = scaled.mT @ scaled
        hessian.diagonal().add_(1)
        return g, h, p, q, torch.linalg.cholesky(hessian)

    def _root(self, query: Query) -> Tensor:
        """(Q, unknowns): a root of S at the query's cells."""
        if query.is_new:
            raise InputError("the Laplace covariance of a factor GP knows the prior's own rows and columns only")
        g, h, p, q, chol = self._parts
        jacobian = _jacobian(g, h, p, q, query.pairs.rows, query.pairs.cols)
        return torch.linalg.solve_triangular(chol, jacobian.mT, upper=False).mT

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, (Q, Q), by its root."""
        return RootLinearOperator(DenseLinearOperator(self._root(query)))

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,), from the root, whatever the accuracy; it has no other method."""
        if method != "auto":
            raise InputError(f"method: a Laplace covariance has one way to its variances, got {method!r}")
        return self._root(query).square().sum(-1)

    def joint(self, query: Query) -> Joint:
        """S at the query's cells as a dense matrix."""
        root = self._root(query)
        return Joint(root @ root.mT, len(self.pairs))

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q)"""
        root = self._root(query)
        noise = torch.randn(num_samples, root.shape[1], generator=generator, dtype=root.dtype, device=root.device)
        return noise @ root.mT


def _jacobian(g: Tensor, h: Tensor, p: Tensor, q: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """(Q, D_M R + D_N R): derivative of psi at pairs with respect to X and Z, flattened."""
    of_x = g[rows].unsqueeze(2) * q[cols].unsqueeze(1)  # (Q, D_M, R)
    of_z = h[cols].unsqueeze(2) * p[rows].unsqueeze(1)  # (Q, D_N, R)
    return torch.cat([of_x.flatten(1), of_z.flatten(1)], dim=1)


class FactorPosterior(Predictions, GaussianPosterior):
    r"""A local optimum of equation (7), :math:`\psi = b + U V^T`; its covariance is a Laplace approximation.

    :param objective: value of equation (7) times noise / 2, comparable with the trace norm's objective.
    :param restarts: the objective of every restart, best first.
    :param rank: rank of the mean.
    """

    def __init__(self, *parts: Any, objective: float, restarts: list[float], rank: int) -> None:
        super().__init__(*parts)
        self.objective, self.restarts, self.rank = objective, restarts, rank

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """(M, R) and (N, R): their product is the mean, up to the prior mean."""
        covariance = self.conditional
        if not isinstance(covariance, LaplaceCovariance):
            assert isinstance(self.coefficients, LowRankCoefficients)
            return self._ops[0]._matmul(self.coefficients.left), self._ops[1]._matmul(self.coefficients.right)
        return covariance.row_root._matmul(covariance.x), covariance.col_root._matmul(covariance.z)
