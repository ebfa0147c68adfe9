r"""KrylovCache: rough variances of many cells from one small subspace (after LOVE, Pleiss et al. 2018).

With W (T, k) an orthonormal basis of a Krylov space of :math:`A = K_{TT} + D`, Galerkin's method replaces
:math:`k^T A^{-1} k` by :math:`k^T W (W^T A W)^{-1} W^T k`, which is never larger: variances come out too large, if
anything. Smooth kernels need few directions; with rough ones, such as those of sparse graphs, it says little.
"""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg import PairIndex


class KrylovCache:
    """A basis W and the factor of W^T A W.

    :param times: maps (T, C) to A times it.
    :param pairs: the T observed cells.
    :param noise: () or (T,), for the type of its entries.
    """

    def __init__(self, times: Callable[[Tensor], Tensor], pairs: PairIndex, noise: Tensor) -> None:
        size = min(gpytorch.settings.max_root_decomposition_size.value(), len(pairs))
        generator = torch.Generator().manual_seed(0)  # the same answers every time
        start = torch.randn(len(pairs), generator=generator, dtype=torch.float64).to(noise)
        basis = noise.new_zeros(len(pairs), size)
        images = torch.zeros_like(basis)
        ahead = times(start.unsqueeze(1)).squeeze(1)
        for step in range(size):
            for _ in range(2):  # once is not enough in floating point
                ahead = ahead - basis[:, :step] @ (basis[:, :step].mT @ ahead)
            length = ahead.norm()
            if not length > 0:  # the space is exhausted
                basis, images = basis[:, :step], images[:, :step]
                break
            basis[:, step] = ahead / length
            ahead = images[:, step] = times(basis[:, step : step + 1]).squeeze(1)
        small = basis.mT @ images
        self.basis, self.chol = basis, torch.linalg.cholesky((small + small.mT) / 2)

    def reduction(self, cross: LinearOperator) -> Tensor:
        """(Q,): what the observations take from the prior's variance, at most; ``cross`` is K_*T (Q, T)."""
        seen = cross._matmul(self.basis)  # (Q, k)
        return torch.linalg.solve_triangular(self.chol, seen.mT, upper=False).square().sum(0)
