"""A kernel that is the same number everywhere: main effects."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_dtype, check_flag, check_positive, check_whole_number
from ..errors import InputError
from ..linalg.spectra import SpectralLinearOperator
from .bounded import BoundedParameters, bounded_parameter, check_options


class ConstantKernel(BoundedParameters, Kernel):
    r""":math:`k(x, x') = v` for any inputs: what all rows, or all columns, have in common.

    As the row kernel of a term of a sum it makes the term a main effect of the columns (the popularity of an item), as
    the column kernel one of the rows. gpytorch's kernel of the same name has the same entries; this one is known by
    its single eigenvector, so that products cost next to nothing.

    :param num_items: n, for an axis without inputs: items are then 0, ..., n - 1. Left out, the axis has inputs of any
        kind, or shares the items of another kernel in a sum or product.
    :param variance: v, where it starts; ``raw_variance``.

    Example:
        >>> import mvgp, torch
        >>> from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph
        >>> items = DiffusionKernel(Graph([(0, 1)], 2))
        >>> popularity = mvgp.MatrixGP(ConstantKernel(3, variance=0.5), items)
        >>> popularity.row_axis.covariance().to_dense().detach()[0]
        tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)

    """

    has_lengthscale = False

    def __init__(
        self,
        num_items: int | None = None,
        variance: float = 1.0,
        *,
        variance_constraint: Interval | None = None,
        dtype: torch.dtype = torch.float64,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        check_options(batch_shape, active_dims, variance_constraint=variance_constraint)
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.num_items = None if num_items is None else check_whole_number(num_items, "num_items", maximum=2**31 - 1)
        self._parameter_dtype = check_dtype(dtype)
        self._add_parameter("variance", check_positive(variance, "variance"), variance_constraint)

    variance = bounded_parameter("variance", "(...,) v.")

    @property
    def num_nodes(self) -> int:
        """Number of items, if it was given."""
        if self.num_items is None:
            raise AttributeError("a ConstantKernel without num_items has no items of its own")
        return self.num_items

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """The kernel between inputs ``x1`` (..., n, d) and ``x2`` (..., m, d)."""
        if params.pop("last_dim_is_batch", False) or params:
            raise InputError(f"expected no further arguments of a ConstantKernel, got {', '.join(params) or 'a batch'}")
        batch = torch.broadcast_shapes(self.batch_shape, x1.shape[:-2], x2.shape[:-2])
        rows, cols = x1.shape[-2], x2.shape[-2]
        variance = self.variance.expand(batch)
        if check_flag(diag, "diag"):
            return variance.unsqueeze(-1).expand(*batch, rows)
        if rows != cols or rows == 0:
            return variance[..., None, None].expand(*batch, rows, cols)
        unit = torch.full((rows, 1), rows**-0.5, dtype=variance.dtype, device=variance.device)
        return SpectralLinearOperator((rows * variance).unsqueeze(-1), unit)
