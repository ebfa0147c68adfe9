"""A kernel from features of the items: their inner products."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from scipy import sparse
from torch import Tensor

from ..checks import as_reals, check_dtype, check_positive
from ..errors import InputError
from ..linalg.stacked import Features, GramLinearOperator
from .bounded import BoundedParameters, bounded_parameter
from .graph_kernels import both_node_numbers, check_options, is_everything


class FeatureKernel(BoundedParameters, Kernel):
    r"""The kernel on items 0, ..., N - 1 with features :math:`F \in R^{N \times D}`: :math:`K = v F F^T`.

    Products go through F, sparse or dense, and nothing N x N is stored. Two uses, both inside a sum with another
    kernel: a column of ones on the rows gives every column a level of its own that all rows share (popularity);
    the known links of the other axis give co-association.

    The features are data, not parameters: they are not in the ``state_dict`` and are not learned; v is.

    :param features: (N, D) or (N,), a tensor, an array, or a scipy sparse array; finite.
    :param variance: v, where it starts.

    Example:
        >>> import torch
        >>> from mvgp.kernels import FeatureKernel
        >>> FeatureKernel(torch.tensor([[1.0, 0.0], [1.0, 2.0]]), variance=0.5)(torch.arange(2)).to_dense().tolist()
        [[0.5, 0.5], [0.5, 2.5]]

    """

    has_lengthscale = False

    def __init__(
        self,
        features: Any,
        variance: float = 1.0,
        *,
        variance_constraint: Interval | None = None,
        dtype: torch.dtype = torch.float64,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        check_options(batch_shape, active_dims, variance_constraint=variance_constraint)
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self._features = Features(_checked(features, check_dtype(dtype)))
        self._parameter_dtype = dtype
        self._add_parameter("variance", check_positive(variance, "variance"), variance_constraint)

    @property
    def num_nodes(self) -> int:
        """N: valid inputs are 0, ..., N - 1."""
        return self._features.shape[0]

    variance = bounded_parameter("variance", "(...,) v.")

    def operator(self) -> GramLinearOperator:
        """K over all items, (..., N, N), lazy."""
        return GramLinearOperator(self.variance, self.features)

    @property
    def features(self) -> Features:
        """F, in the dtype and the place of the parameters; converted once."""
        self._features = self._features.to(self.raw_variance.dtype, self.raw_variance.device)
        return self._features

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """The kernel between items ``x1`` (..., n, 1) and ``x2`` (..., m, 1)."""
        first, second = both_node_numbers(x1, x2, self.num_nodes, diag, params)
        if not diag and is_everything(first, self.num_nodes) and is_everything(second, self.num_nodes):
            return self.operator()
        left, right = self.features.rows(first), self.features.rows(second)  # (..., n, D), (..., m, D)
        if diag:
            return self.variance.unsqueeze(-1) * (left * right).sum(-1)
        return self.variance[..., None, None] * (left @ right.mT)


def _checked(features: Any, dtype: torch.dtype) -> Any:
    """(N, D): a scipy sparse array or a tensor, all finite."""
    matrix = _sparse(features, dtype) if sparse.issparse(features) else _dense(features, dtype)
    shape = tuple(matrix.shape)
    if len(shape) != 2 or 0 in shape:
        raise InputError(f"features: expected shape (N, D) with N and D at least 1, got {shape}")
    return matrix


def _sparse(features: Any, dtype: torch.dtype) -> Any:
    csr = sparse.csr_array(features) if features.ndim == 2 else sparse.csr_array(np.zeros((0, 0)))
    as_reals(csr.data, "features: stored entries", dtype, booleans=True)
    csr = csr.astype(np.float32 if dtype == torch.float32 else np.float64)
    csr.sum_duplicates()
    as_reals(csr.data, "features: summed entries", dtype)
    return csr


def _dense(features: Any, dtype: torch.dtype) -> Tensor:
    matrix = as_reals(features, "features", dtype, booleans=True).clone()
    return matrix.unsqueeze(1) if matrix.dim() == 1 else matrix
