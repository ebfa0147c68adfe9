"""Kernels that are functions of a graph's Laplacian, and what all kernels on numbered items check."""

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
    as_tensor,
    check_choice,
    check_dtype,
    check_flag,
    check_float_tensor,
    check_instance,
    check_list,
    check_tolerance,
    check_whole_number,
)
from ..errors import InputError
from ..linalg import chebyshev
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.spectra import SpectralLinearOperator
from .bounded import BoundedParameters, bounded_parameter
from .graph import Graph

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

    shift = bounded_parameter("shift", "(...,) weight of the identity.", may_be_zero=True)

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
        first, second = both_node_numbers(x1, x2, self.num_nodes, diag, params, "nodes")
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


class DiffusionKernel(GraphKernel):
    r"""Heat flow along the links: :math:`K = e^{-\text{time}\, L} + \text{shift}\, I`.

    With time and shift 1 it is the kernel of the paper; its spectrum then lies in [1 + e^-2, 2].

    :param graph: the nodes and links.
    :param time: how far the heat spreads, positive; ``raw_time``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.

    Example:
        >>> import torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1)], 3), time=1.0, shift=1.0)
        >>> kernel(torch.arange(3)).to_dense().diagonal().detach()
        tensor([1.5677, 1.5677, 2.0000], dtype=torch.float64)

    """

    def __init__(
        self,
        graph: Graph,
        time: float = 1.0,
        shift: float = 1.0,
        time_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("time", time, time_constraint)

    time = bounded_parameter("time", "(...,) diffusion time.")

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """exp(-time x)"""
        return torch.exp(-self.time.unsqueeze(-1) * check_eigenvalues(eigenvalues))


class GraphMaternKernel(GraphKernel):
    r""":math:`K = \left(I + \frac{\kappa^2}{2 \nu} L\right)^{-\nu} + \text{shift}\, I` (Borovitskiy et al. 2021).

    Normalised to 1 at Laplacian eigenvalue 0; for large smoothness it tends to the diffusion kernel
    with time :math:`\kappa^2 / 2`.

    :param graph: the nodes and links.
    :param nu: smoothness, positive; ``raw_nu``.
    :param reach: :math:`\kappa`, the lengthscale in steps along links, positive; ``raw_reach``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.
    """

    def __init__(
        self,
        graph: Graph,
        nu: float = 1.5,
        reach: float = 1.0,
        shift: float = 0.0,
        nu_constraint: Interval | None = None,
        reach_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("nu", nu, nu_constraint)
        self._add_parameter("reach", reach, reach_constraint)

    nu = bounded_parameter("nu", "(...,) smoothness.")

    reach = bounded_parameter("reach", "(...,) lengthscale along links.")

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """(1 + reach^2 x / (2 nu))^-nu"""
        nu, reach = self.nu.unsqueeze(-1), self.reach.unsqueeze(-1)
        return (1 + reach.square() * check_eigenvalues(eigenvalues) / (2 * nu)).pow(-nu)


class RegularizedLaplacianKernel(GraphKernel):
    r""":math:`K = (I + \text{scale}\, L)^{-1} + \text{shift}\, I` (Smola and Kondor 2003).

    :param graph: the nodes and links.
    :param scale: strength of the smoothing, positive; ``raw_scale``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.
    """

    def __init__(
        self,
        graph: Graph,
        scale: float = 1.0,
        shift: float = 0.0,
        scale_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("scale", scale, scale_constraint)

    scale = bounded_parameter("scale", "(...,) strength of the smoothing.")

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """1 / (1 + scale x)"""
        return 1 / (1 + self.scale.unsqueeze(-1) * check_eigenvalues(eigenvalues))


def check_options(batch_shape: Any, active_dims: Any, **constraints: Any) -> None:
    """What gpytorch's kernels are made with: sizes, numbers of input columns, and constraints; each may be None."""
    for name, option in (("batch_shape", batch_shape), ("active_dims", active_dims)):
        for size in [] if option is None else check_list(option, name, "whole numbers"):
            check_whole_number(size, name, 0)
    for name, option in constraints.items():
        if option is not None:
            check_instance(option, name, Interval, "a constraint of gpytorch")


def check_eigenvalues(eigenvalues: Any) -> Tensor:
    """(n,) eigenvalues of a Laplacian: a tensor of float32 or float64."""
    check_instance(eigenvalues, "eigenvalues", Tensor, "a tensor")
    return check_float_tensor(eigenvalues, "eigenvalues", (None,) * eigenvalues.dim(), finite=True)


def both_node_numbers(
    x1: Any, x2: Any, count: int, diag: Any, params: dict[str, Any], kind: str = "items"
) -> tuple[Tensor, Tensor]:
    """The nodes of both arguments of a kernel, whose batches fit together, and whose lengths do on the diagonal.

    :param params: further arguments of gpytorch's ``forward``, of which a kernel on numbered items knows none.
    :param kind: what the message calls the items.
    """
    if params.pop("last_dim_is_batch", False):
        raise InputError(f"a kernel on {kind} has one input column: last_dim_is_batch does not apply")
    if params:
        raise InputError(f"expected no further arguments of a kernel on {kind}, got {', '.join(params)}")
    first, second = node_numbers(x1, count, "x1"), node_numbers(x2, count, "x2")
    if check_flag(diag, "diag") and first.shape[-1] != second.shape[-1]:
        raise InputError(f"x2: expected {first.shape[-1]} nodes as in x1, for the diagonal, got {second.shape[-1]}")
    try:
        torch.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    except RuntimeError:
        shapes = f"{tuple(first.shape[:-1])} and {tuple(second.shape[:-1])}"
        raise InputError(f"x1, x2: expected batches that fit together, got {shapes}") from None
    return first, second


def node_numbers(inputs: Any, count: int, name: str = "inputs") -> Tensor:
    """(..., n) int64 node numbers from kernel inputs (..., n, 1), which gpytorch may hold as floats."""
    if not isinstance(inputs, Tensor):
        raise InputError(f"{name}: expected a tensor of node numbers, got {type(inputs).__name__}")
    inputs = as_tensor(inputs, name)
    if inputs.dim() < 2 or inputs.dtype == torch.bool:
        came = f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        raise InputError(f"{name}: expected node numbers of shape (..., n, 1), got {came}")
    if inputs.shape[-1] != 1:
        raise InputError(f"a kernel on nodes takes one input column, the node's number, got {inputs.shape[-1]}")
    numbers = inputs.squeeze(-1)
    nodes = numbers.round().long() if numbers.is_floating_point() else numbers.long()
    bad = (nodes != numbers) | (nodes < 0) | (nodes >= count)
    if bad.any():
        raise InputError(f"expected node numbers in [0, {count}), got {numbers[bad][0].item()}")
    return nodes


def is_everything(numbers: Tensor, count: int) -> bool:
    """Whether the node numbers are 0, ..., count - 1 in order."""
    everything = torch.arange(count, device=numbers.device)
    return numbers.dim() == 1 and len(numbers) == count and torch.equal(numbers, everything)
