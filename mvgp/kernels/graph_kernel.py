"""GraphKernel: what every function of a graph's Laplacian shares."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from linear_operator.operators import InterpolatedLinearOperator
from torch import Tensor

from ..checks import (
    check_choice,
    check_dtype,
    check_instance,
    check_tolerance,
)
from ..errors import InputError
from ..linalg import chebyshev
from ..linalg.polynomial import ChebyshevLinearOperator
from ..linalg.spectral import SpectralLinearOperator
from .bounded import BoundedParameters
from .graph import Graph
from .nodes import both_node_numbers, check_options, is_everything

EIGEN_SIZE = 1500  # nodes up to which eigenpairs are computed once and kept


class GraphKernel(BoundedParameters, Kernel):
    r"""A gpytorch kernel :math:`K = f(L) + \text{shift}\, I` on the nodes of a graph. Inputs are node numbers.

    A subclass gives f on the spectrum [0, 2] of the normalised Laplacian, with its parameters. The
    kernel over all nodes is a LinearOperator: eigenpairs for small graphs, a Chebyshev polynomial of
    the sparse Laplacian for large ones, whose degree follows from ``tolerance``.

    :param graph: the nodes and links.
    :param shift: weight of the identity, at least 0. At 0 it is a constant and not learned, until it is set to another
        value; the same holds for any parameter at an end of its constraint.
    :param method: ``eigen``, ``chebyshev``, or ``auto`` by the size of the graph.
    :param tolerance: relative error of the Chebyshev series; 1e-10 in double precision, 1e-6 in single.
    :param dtype: of the parameters, double by default.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        shift: float = 0.0,
        shift_constraint: Interval | None = None,
        method: Literal["auto", "eigen", "chebyshev"] = "auto",
        tolerance: float | None = None,
        dtype: torch.dtype = torch.float64,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        check_options(batch_shape, active_dims, shift_constraint=shift_constraint)
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.graph = check_instance(graph, "graph", Graph, "mvgp.kernels.Graph")
        self.method = check_choice(method, "method", ("auto", "eigen", "chebyshev"))
        self.tolerance = None if tolerance is None else check_tolerance(tolerance)
        self._parameter_dtype = check_dtype(dtype)
        self._add_parameter("shift", shift, shift_constraint, may_be_zero=True)

    @property
    def shift(self) -> Tensor:
        """(...,) weight of the identity."""
        return self._get_parameter("shift")

    @shift.setter
    def shift(self, value: Any) -> None:
        self._set_parameter("shift", value, may_be_zero=True)

    @property
    def num_nodes(self) -> int:
        """Number of nodes: valid inputs are 0, ..., num_nodes - 1."""
        return self.graph.num_nodes

    @abstractmethod
    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """F at Laplacian eigenvalues (n,) in [0, 2]: (..., n), differentiable in the parameters."""

    def _function(self, eigenvalues: Tensor) -> Tensor:
        return self.spectrum(eigenvalues) + self.shift.unsqueeze(-1)

    @property
    def uses_eigenpairs(self) -> bool:
        """Whether products go through cached eigenpairs."""
        return self.method == "eigen" or (self.method == "auto" and self.num_nodes <= EIGEN_SIZE)

    def operator(self) -> LinearOperator:
        """K over all nodes, (..., N, N), lazy."""
        dtype, device = self.raw_shift.dtype, self.raw_shift.device
        if self.uses_eigenpairs:
            values, vectors = self.graph.eigenpairs(dtype, device)
            return SpectralLinearOperator(self._function(values), vectors)
        finest = 8 * torch.finfo(dtype).eps  # what rounding leaves of any tolerance
        tolerance = max(self.tolerance or (1e-10 if dtype == torch.float64 else 1e-6), finest)
        # the spectrum [0, 2] of L is [-1, 1] for S = L - I; the degree is found in double precision
        count = chebyshev.count_for(lambda x: self._function(x + 1), tolerance)
        values = self._function(chebyshev.nodes(count, dtype, device) + 1)
        return ChebyshevLinearOperator(values, self.graph.shifted_laplacian(dtype, device), tolerance)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """The kernel between nodes ``x1`` (..., n, 1) and ``x2`` (..., m, 1)."""
        if params.pop("last_dim_is_batch", False):
            raise InputError("a kernel on nodes has one input column: last_dim_is_batch does not apply")
        if params:
            raise InputError(f"expected no further arguments of a kernel on nodes, got {', '.join(params)}")
        first, second = both_node_numbers(x1, x2, self.num_nodes, diag)
        op = self.operator()
        batch = torch.broadcast_shapes(op.batch_shape, first.shape[:-1], second.shape[:-1])
        if diag:
            return self._entries(op, first.expand(*batch, -1), second.expand(*batch, -1))
        if is_everything(first, self.num_nodes) and is_everything(second, self.num_nodes):
            return op
        if isinstance(op, SpectralLinearOperator):
            return (op.vectors[first] * op.spectrum.unsqueeze(-2)) @ op.vectors[second].mT
        return InterpolatedLinearOperator(
            op._expand_batch(batch) if batch != op.batch_shape else op,
            first.expand(*batch, -1).unsqueeze(-1),
            None,
            second.expand(*batch, -1).unsqueeze(-1),
            None,
        )

    @staticmethod
    def _entries(op: LinearOperator, first: Tensor, second: Tensor) -> Tensor:
        """(..., n): entries of ``op`` at pairs of nodes, one by one."""
        batch = first.shape[:-1]
        if not op.batch_shape:
            return op._get_indices(first, second)
        op = op._expand_batch(batch) if batch != op.batch_shape else op
        where = torch.meshgrid(*[torch.arange(n, device=first.device) for n in batch], indexing="ij")
        return op._get_indices(first, second, *[w.unsqueeze(-1).expand(first.shape) for w in where])
