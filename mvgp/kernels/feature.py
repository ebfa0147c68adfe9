"""Kernels from given numbers: inner products of features, a kernel matrix, one number; and kernels in words."""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, RBFKernel, ScaleKernel
from linear_operator import LinearOperator
from scipy import sparse
from torch import Tensor

from ..checks import check_dtype, check_flag, check_positive, check_whole_number
from ..errors import InputError
from ..linalg.spectra import SpectralLinearOperator, check_covariance
from ..linalg.stacked import Features, GramLinearOperator
from ..tensor_checks import as_reals, check_matrix
from .bounded import BoundedParameters, both_node_numbers, bounded_parameter, check_options, is_everything
from .graph import EIGEN_SIZE, DiffusionKernel, Graph, GraphKernel, GraphMaternKernel, RegularizedLaplacianKernel


class FeatureKernel(BoundedParameters, Kernel):
    r"""The kernel on items 0, ..., N - 1 with features :math:`F \in R^{N \times D}`: :math:`K = v F F^T`.

    Products go through F, and nothing N x N is stored. Two uses, both inside a sum with another kernel: a column of 1
    on the rows gives every column a level of its own that all rows share (popularity); the known links of the other
    axis give co-association. The features are data, not in the ``state_dict`` and not learned; v is.

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
    matrix: Any
    is_sparse: bool = sparse.issparse(features)
    if is_sparse:
        matrix = sparse.csr_array(features if features.ndim == 2 else np.zeros((0, 0)))
        as_reals(matrix.data, "features: stored entries", dtype, booleans=True)
        matrix = matrix.astype(np.float32 if dtype == torch.float32 else np.float64)
        matrix.sum_duplicates()
        as_reals(matrix.data, "features: summed entries", dtype)
    else:
        matrix = as_reals(features, "features", dtype, booleans=True).clone()
        matrix = matrix.unsqueeze(1) if matrix.dim() == 1 else matrix
    if len(matrix.shape) != 2 or 0 in matrix.shape:
        raise InputError(f"features: expected shape (N, D) with N and D at least 1, got {tuple(matrix.shape)}")
    return matrix


class PrecomputedKernel(Kernel):
    r"""The kernel on items 0, ..., N - 1 whose matrix is known: :math:`k(i, j) = K_{ij}`.

    It is data, not a parameter: it moves with ``.to()``, but is not in the ``state_dict`` and is not learned (wrap the
    kernel in gpytorch's ``ScaleKernel`` to learn a factor).

    :param matrix: (N, N), an array or a tensor; finite, symmetric, positive semi-definite.

    Example:
        >>> import torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> kernel = PrecomputedKernel([[2.0, 1.0], [1.0, 3.0]])
        >>> kernel(torch.tensor([1]), torch.tensor([0, 1])).to_dense()
        tensor([[1., 3.]], dtype=torch.float64)

    """

    def __init__(
        self, matrix: Any, *, batch_shape: torch.Size | None = None, active_dims: tuple[int, ...] | None = None
    ) -> None:
        check_options(batch_shape, active_dims)
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        checked = check_matrix(matrix, "matrix").clone()
        check_covariance(checked, "matrix")
        checked = (checked + checked.mT) / 2  # takes out the rounding that the check lets through
        self.register_buffer("matrix", checked.expand(*self.batch_shape, *checked.shape), persistent=False)

    @property
    def num_nodes(self) -> int:
        """N: valid inputs are 0, ..., N - 1."""
        return int(self.matrix.shape[-1])

    @property
    def dtype(self) -> torch.dtype:
        """Of the matrix; gpytorch would guess it from parameters, of which there are none."""
        dtypes = {self.matrix.dtype, *(p.dtype for p in self.parameters())}
        if len(dtypes) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple dtypes: {dtypes}.")
        return dtypes.pop()

    @property
    def device(self) -> torch.device:
        """Of the matrix."""
        device: torch.device = self.matrix.device
        return device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """The entries at items ``x1`` (..., n, 1) and ``x2`` (..., m, 1)."""
        first, second = both_node_numbers(x1, x2, self.num_nodes, diag, params)
        if not diag and is_everything(first, self.num_nodes) and is_everything(second, self.num_nodes):
            return self.matrix
        rows, cols = (first, second) if diag else (first.unsqueeze(-1), second.unsqueeze(-2))
        if not self.batch_shape:
            return self.matrix[rows, cols]
        batch = torch.broadcast_shapes(self.batch_shape, first.shape[:-1], second.shape[:-1])
        matrix = self.matrix.expand(*batch, *self.matrix.shape[-2:])
        places = []  # a position for each batch dimension, broadcast against the dimensions of the entries
        for at, size in enumerate(batch):
            shape = [1] * (len(batch) + (1 if diag else 2))
            shape[at] = size
            places.append(torch.arange(size, device=rows.device).reshape(shape))
        return matrix[(*places, rows, cols)]

    def __deepcopy__(self, memo: dict[int, Any]) -> PrecomputedKernel:
        memo[id(self.matrix)] = self.matrix.detach()  # constant and possibly large: copies share its memory
        fresh = type(self).__new__(type(self))
        memo[id(self)] = fresh
        fresh.__dict__.update({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return fresh


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


# In words ---------------------------------------------------------------------------------------


def number_text(value: Any) -> str:
    """A number with four digits; a vector by its ends."""
    tensor = torch.as_tensor(value).detach().double().reshape(-1)
    if tensor.numel() == 1:
        return f"{float(tensor):.4g}"
    if tensor.numel() == 0:
        return "none"
    if float(tensor.min()) == float(tensor.max()):
        return f"all {float(tensor[0]):.4g}"
    return f"{tensor.numel():,} numbers from {float(tensor.min()):.4g} to {float(tensor.max()):.4g}"


def parameter_text(module: gpytorch.Module, *, mark: bool = True) -> str:
    """The parameters of a module, constrained as they are used; those that are not learned are marked."""
    found = []
    for name, raw, constraint in module.named_parameters_and_constraints():
        value = raw if constraint is None else constraint.transform(raw)
        shown = name.replace("raw_", "").replace("noise_covar.", "").replace("row_axis.kernel", "rows")
        shown = shown.replace("col_axis.kernel", "columns")
        found.append(f"{shown} {number_text(value)}{' (constant)' if mark and not raw.requires_grad else ''}")
    return ", ".join(found) or "none"


def kernel_formula(kernel: Any) -> str:
    """A kernel as a formula with its numbers; L is the normalised Laplacian of its graph."""
    if isinstance(kernel, ScaleKernel):
        return f"{number_text(kernel.outputscale)} ({kernel_formula(kernel.base_kernel)})"
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        sign = " + " if isinstance(kernel, AdditiveKernel) else " * "
        return sign.join(f"({kernel_formula(part)})" for part in kernel.kernels)
    if isinstance(kernel, GraphKernel):
        shift = "" if float(kernel.shift.detach().abs().max()) == 0 else f" + {number_text(kernel.shift)} I"
        return _graph_function(kernel) + shift
    if isinstance(kernel, ConstantKernel):
        return f"{number_text(kernel.variance)} for any two"
    if isinstance(kernel, FeatureKernel):
        rows, cols = kernel.features.shape
        return f"{number_text(kernel.variance)} F F^T with features F, {rows:,} x {cols:,}"
    if isinstance(kernel, PrecomputedKernel):
        return f"a given matrix, {kernel.num_nodes:,} x {kernel.num_nodes:,}"
    if type(kernel) is RBFKernel:
        return f"exp(-||x - x'||^2 / (2 l^2)) with l = {number_text(kernel.lengthscale)}"
    smoothness = f"nu {kernel.nu}, " if hasattr(kernel, "nu") else ""
    return f"{type(kernel).__name__} with {smoothness}{parameter_text(kernel, mark=False)}"


def _graph_function(kernel: GraphKernel) -> str:
    if isinstance(kernel, DiffusionKernel):
        return f"exp(-{number_text(kernel.time)} L)"
    if isinstance(kernel, GraphMaternKernel):
        nu, reach = number_text(kernel.nu), number_text(kernel.reach)
        return f"(I + {reach}^2 / (2 * {nu}) L)^-{nu}"
    if isinstance(kernel, RegularizedLaplacianKernel):
        return f"(I + {number_text(kernel.scale)} L)^-1"
    return f"{type(kernel).__name__}(L) with {parameter_text(kernel, mark=False)}"


def graph_lines(kernel: Any) -> list[tuple[str, str]]:
    """The graphs of a kernel, and how products with it are computed."""
    lines = []
    for part in (kernel, *kernel.sub_kernels()):
        if isinstance(part, GraphKernel):
            lines.append(("graph", graph_text(part.graph)))
            lines.append(("method", _graph_method(part)))
            break
    return lines


def _graph_method(kernel: GraphKernel) -> str:
    if kernel.method != "auto":
        asked = "eigenpairs of L" if kernel.method == "eigen" else "a Chebyshev polynomial of the sparse L"
        return f"{asked}, as asked for"
    if kernel.uses_eigenpairs:
        return f"eigenpairs of L, computed once: at most {EIGEN_SIZE:,} nodes"
    return f"a Chebyshev polynomial of the sparse L: more than {EIGEN_SIZE:,} nodes"


def graph_text(graph: Graph) -> str:
    """The size of a graph."""
    return f"{graph.num_nodes:,} nodes, {graph.num_links:,} links, {graph.num_isolated:,} nodes without one"
