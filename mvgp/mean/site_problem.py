r"""Observations under a pointwise likelihood with their prior covariance, and factors of what follows from precisions.

Everything about :math:`S = (K^{-1} + \Lambda)^{-1}` over the observed pairs comes from one Cholesky factor. Smooth
kernels have few eigenvalues that are not zero, and a Kronecker product has those of its factors multiplied: then
:math:`K_{TT} = F F^T` with F (T, R), and the factor is that of :math:`I + F^T \Lambda F`, (R, R). Otherwise it is that
of :math:`I + \Lambda^{1/2} K_{TT} \Lambda^{1/2}`, (T, T). Both are well conditioned for any precisions, zero included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import torch
from linear_operator import LinearOperator
from linear_operator.operators import SumLinearOperator
from torch import Tensor

from ..errors import NotPositiveSemidefiniteError, SizeError
from ..likelihoods.densities import Density
from ..linalg.cost import DEFAULT_LIMITS, Limits
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.spectra import eigenpairs

ZERO = 1e-13  # eigenvalues below this share of the largest prior variance count as zero
ROOT_ENTRIES = 1 << 27  # of F


class SiteProblem:
    r"""Observations under a pointwise likelihood, and their prior covariance.

    :param covariance: :math:`K_{TT}` (T, T).
    :param density: of the observations.
    :param weights: (T,) w, or None for 1.
    :param offset: (T,) prior mean b.
    :param solve: (noise (T,), right-hand side (T,)) -> :math:`(K_{TT} + D)^{-1}` times it (T,), for problems that
        are too large for a factor; None where there is no such solver.
    :param limits: sizes up to which :math:`K_{TT}` is factored densely.
    """

    def __init__(
        self,
        covariance: LinearOperator,
        density: Density,
        weights: Tensor | None,
        offset: Tensor,
        *,
        solve: Callable[[Tensor, Tensor], Tensor] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.covariance, self.density, self.weights, self.offset = covariance, density, weights, offset
        self._solve, self.limits = solve, limits

    def __len__(self) -> int:
        return len(self.offset)

    @cached_property
    def root(self) -> Tensor | None:
        """(T, R) F with K_TT = F F^T, if R is well below T; None otherwise."""
        if self.offset.dtype != torch.float64 or not len(self):  # eigenvalues below rounding would count as rank
            return None
        return low_rank_root(self.covariance.detach(), min(len(self) // 2, ROOT_ENTRIES // len(self)), self.limits)

    @property
    def has_factor(self) -> bool:
        """Whether there is a factor, of low rank or dense."""
        return len(self) <= self.limits.dense or self.root is not None

    @cached_property
    def dense(self) -> Tensor:
        """(T, T): K_TT."""
        if len(self) > self.limits.dense:
            raise SizeError(
                f"approximation='variational' needs a factor of K_TT, offered up to {self.limits.dense:,} observed "
                f"pairs unless the kernels have low rank; there are {len(self):,}: use approximation='laplace'"
            )
        matrix: Tensor = self.covariance.to_dense().detach()
        return matrix

    def times(self, vector: Tensor) -> Tensor:
        """(T,): K_TT times (T,)."""
        if self.root is not None:
            return self.root @ (self.root.mT @ vector)
        if self.has_factor:
            return self.dense @ vector
        product: Tensor = self.covariance._matmul(vector.unsqueeze(1)).squeeze(1)
        return product

    @cached_property
    def prior_variance(self) -> Tensor:
        """(T,): the diagonal of K_TT."""
        diagonal: Tensor = self.covariance._diagonal().detach()
        return diagonal

    def noise(self, precision: Tensor) -> Tensor:
        """(T,): 1 / Lambda; where a precision is too small to be noticed, the largest noise that is."""
        smallest = torch.finfo(precision.dtype).eps / 10 / self.prior_variance.clamp_min(1e-30)
        return 1 / torch.maximum(precision, smallest)

    def weighted(self, each: Tensor) -> Tensor:
        """(T,) times the weights."""
        return each if self.weights is None else self.weights * each

    @torch.no_grad()
    def moments(self, psi: Tensor, variance: Tensor | None) -> tuple[float, Tensor, Tensor]:
        """The sum of w E ln p, its slopes (T,) and the precisions (T,), which are not negative."""
        at = self.density.expect(psi + self.offset, variance)
        value = float(self.weighted(at.value).double().sum())
        return value, self.weighted(at.slope), self.weighted(at.precision).clamp_min(0)

    def factor(self, precision: Tensor) -> SiteFactor:
        """Of these precisions (T,)."""
        if self.root is not None:
            return LowRankFactor(self.root, precision)
        return DenseFactor(self.dense, precision)

    def inverse(self, precision: Tensor) -> Callable[[Tensor], Tensor]:
        """The map (T,) -> (T,) by (K_TT + 1 / Lambda)^-1."""
        if self.has_factor or self._solve is None:
            return self.factor(precision).inverse_times
        solve, noise = self._solve, self.noise(precision)
        return lambda rhs: solve(noise, rhs)

    def residual(self, alpha: Tensor, slope: Tensor, precision: Tensor, fresh: Tensor) -> float:
        """Relative error of the two equations; a score is as large as itself and its standard deviation."""
        scale = float(slope.norm() + fresh.sum().sqrt())
        off = float((alpha - slope).norm()) / max(scale, 1e-300)
        size = float(fresh.norm())
        return max(off, float((precision - fresh).norm()) / size if size > 0 else 0.0)


def low_rank_root(covariance: LinearOperator, most: int, limits: Limits) -> Tensor | None:
    """(T, R) F with F F^T = K_TT, by the eigenpairs of the Kronecker factors; None if R is above ``most``.

    Products of eigenvalues below a threshold are left out, which takes at most the threshold from any variance.
    """
    if isinstance(covariance, SumLinearOperator):
        roots: list[Tensor] = []
        for part in covariance.linear_ops:
            found = low_rank_root(part, most - sum(root.shape[1] for root in roots), limits)
            if found is None:
                return None
            roots.append(found)
        return torch.cat(roots, dim=1)
    if not isinstance(covariance, PairLinearOperator) or covariance.batch_shape:
        return None
    pairs = covariance.left
    if max(pairs.active_shape) > min(limits.eigenpairs, len(pairs) // 2):
        return None
    row_values, row_vectors = eigenpairs(covariance.product.row.dense, "row kernel")
    col_values, col_vectors = eigenpairs(covariance.product.col.dense, "column kernel")
    products = row_values.unsqueeze(1) * col_values
    rows, cols = (products > ZERO * covariance._diagonal().max()).nonzero().unbind(1)  # (R,) each
    if len(rows) > most:
        return None
    scaled = row_vectors[:, rows] * products[rows, cols].sqrt()  # (M', R)
    return scaled[pairs.local_rows] * col_vectors[:, cols][pairs.local_cols]


class SiteFactor(Protocol):
    """What follows from precisions."""

    @property
    def log_det(self) -> float:
        """Ln |K| - ln |S|, which is ln |I + K Lambda|."""
        ...

    def inverse_times(self, rhs: Tensor) -> Tensor:
        """(T,): (K + 1 / Lambda)^-1 times (T,)."""
        ...

    def mean(self, linear: Tensor) -> tuple[Tensor, Tensor]:
        """(T,), (T,): alpha and psi = K alpha = S linear, for linear = alpha + Lambda psi."""
        ...

    def variance(self) -> Tensor:
        """(T,): the diagonal of S_TT."""
        ...


class DenseFactor:
    r"""From a Cholesky factor of :math:`B = I + \Lambda^{1/2} K \Lambda^{1/2}`.

    :param dense: K (T, T).
    :param precision: (T,) :math:`\Lambda`.
    """

    def __init__(self, dense: Tensor, precision: Tensor) -> None:
        self.dense, self.root = dense, precision.sqrt()
        matrix = dense * self.root
        matrix.mul_(self.root.unsqueeze(1))
        matrix.diagonal().add_(1.0)
        self.chol = _cholesky(matrix)

    @property
    def log_det(self) -> float:
        """See :class:`SiteFactor`."""
        return _log_det(self.chol)

    def inverse_times(self, rhs: Tensor) -> Tensor:
        """See :class:`SiteFactor`."""
        inner = torch.cholesky_solve((self.root * rhs).unsqueeze(1), self.chol)
        return self.root * inner.squeeze(1)

    def mean(self, linear: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`SiteFactor`."""
        alpha = linear - self.inverse_times(self.dense @ linear)
        return alpha, self.dense @ alpha

    def variance(self) -> Tensor:
        """See :class:`SiteFactor`."""
        half = torch.linalg.solve_triangular(self.chol, self.root.unsqueeze(1) * self.dense, upper=False)
        prior = self.dense.diagonal()
        return torch.minimum((prior - half.square_().sum(0)).clamp_min(0), prior)


class LowRankFactor:
    r"""From a Cholesky factor of :math:`C = I + F^T \Lambda F`: then :math:`S = F C^{-1} F^T`.

    :param root: F (T, R), K = F F^T.
    :param precision: (T,) :math:`\Lambda`.
    """

    def __init__(self, root: Tensor, precision: Tensor) -> None:
        self.root, self.precision = root, precision
        matrix = root.mT @ (precision.unsqueeze(1) * root)
        matrix.diagonal().add_(1.0)
        self.chol = _cholesky(matrix)

    @property
    def log_det(self) -> float:
        """See :class:`SiteFactor`."""
        return _log_det(self.chol)

    def inverse_times(self, rhs: Tensor) -> Tensor:
        """See :class:`SiteFactor`."""
        weighted = self.precision * rhs
        return weighted - self.precision * self.mean(weighted)[1]

    def mean(self, linear: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`SiteFactor`."""
        inner = torch.cholesky_solve((self.root.mT @ linear).unsqueeze(1), self.chol)
        psi = self.root @ inner.squeeze(1)
        return linear - self.precision * psi, psi

    def variance(self) -> Tensor:
        """See :class:`SiteFactor`."""
        return torch.linalg.solve_triangular(self.chol, self.root.mT, upper=False).square_().sum(0)


def _cholesky(matrix: Tensor) -> Tensor:
    chol, info = torch.linalg.cholesky_ex(matrix)
    if info > 0:
        raise NotPositiveSemidefiniteError(
            f"the identity plus Lambda times K_TT is not positive definite in {matrix.dtype}; use float64"
        )
    return chol


def _log_det(chol: Tensor) -> float:
    return 2 * float(chol.diagonal().double().log().sum())
