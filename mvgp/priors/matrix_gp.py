"""MatrixGP: the matrix-variate Gaussian process prior."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor

from ..checks import FLOATS, check_dtype, check_generator, refuse_gradient
from ..errors import InputError
from ..hooks import Described
from ..linalg.pair_operator import KroneckerLinearOperator, PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.spectra import root
from ..tensor_checks import as_tensor, check_cells, refuse_where
from .means import MatrixMean, ZeroMean

INPUTS = {"row_axis.inputs": "row_inputs", "col_axis.inputs": "col_inputs"}  # buffers, and what they were given as


def given_name(buffer: str) -> str:
    """What a buffer of a prior was given as."""
    return INPUTS.get(buffer, f"prior.{buffer}")


class MatrixGP(Described, gpytorch.models.GP):
    r"""Equation (1): :math:`Z \sim \mathcal{GP}(b, K_M \otimes K_N)` over an M x N matrix, row-major.

    Kernels are gpytorch kernels. Kernels on nodes (:mod:`mvgp.kernels`) know their inputs; any other kernel comes with
    ``row_inputs`` or ``col_inputs``. All parameters and inputs are brought to ``dtype``. What the prior answers carries
    gradients to its parameters, and to inputs that require them; :meth:`sample` is constant.

    :param row_kernel: covariance of rows.
    :param col_kernel: covariance of columns.
    :param row_inputs: (M, d) inputs of the row kernel.
    :param col_inputs: (N, d) inputs of the column kernel.
    :param mean: prior mean, 0 when left out (:mod:`mvgp.priors`).
    :param dtype: double precision by default; ``prior.to(torch.float32)`` works as well.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> rows = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(rows, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> prior.shape, prior.covariance().shape
        ((3, 5), torch.Size([15, 15]))

    """

    _sum_type: ClassVar[Any]  # SumGP, which is made of these and sets it

    def __init__(
        self,
        row_kernel: Kernel,
        col_kernel: Kernel,
        row_inputs: Any = None,
        col_inputs: Any = None,
        *,
        mean: MatrixMean | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        if mean is not None and not isinstance(mean, MatrixMean):
            raise InputError(f"mean: expected a mean of mvgp.priors, got {type(mean).__name__}")
        self.row_axis = Axis(row_kernel, row_inputs, "row")
        self.col_axis = Axis(col_kernel, col_inputs, "col")
        self.mean_module = ZeroMean() if mean is None else mean
        self.to(check_dtype(dtype))
        for axis in (self.row_axis, self.col_axis):
            name = f"{axis.name}_inputs"
            refuse_where(~torch.isfinite(axis.inputs), axis.inputs, name, f"numbers within the range of {dtype}")
        self.mean_module.check_shape(self.shape)
        self.mean_module.bind(self.row_axis, self.col_axis)

    @property
    def terms(self) -> tuple[MatrixGP, ...]:
        """Itself alone: what a sum of priors has several of."""
        return (self,)

    def __add__(self, other: Any) -> Any:
        """The sum of independent terms, :class:`mvgp.priors.SumGP`."""
        sum_type = self._sum_type
        return sum_type(self, other) if isinstance(other, MatrixGP | sum_type) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        """Zero plus a prior is the prior: Python's ``sum`` begins with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __repr__(self) -> str:
        kernels = f"{type(self.row_kernel).__name__} x {type(self.col_kernel).__name__}"
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]}, {kernels})"

    @property
    def row_kernel(self) -> Kernel:
        """The kernel of the rows."""
        return self.row_axis.kernel

    @property
    def col_kernel(self) -> Kernel:
        """The kernel of the columns."""
        return self.col_axis.kernel

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return len(self.row_axis), len(self.col_axis)

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters, means and covariances."""
        return self.mean_module.zero.dtype

    def pairs(self, rows: Any, cols: Any) -> PairIndex:
        """The checked cells (``rows``, ``cols``), each (Q,) or one number."""
        return PairIndex(*check_cells(rows, cols, self.shape), self.shape)

    def snapshot(self) -> MatrixGP:
        """A copy as it is now, all of it constant: parameters and inputs require no gradient."""
        memo: dict[int, Any] = {id(b): b.detach().clone() for b in self.buffers() if b.requires_grad}
        return copy.deepcopy(self, memo).requires_grad_(False)

    def refuse_gradients(self) -> None:
        """Raise if inputs, or other data of the prior, require a gradient, which a posterior would lose."""
        for name, values in self.named_buffers():
            refuse_gradient(values, given_name(name))

    def forward(self, rows: Any, cols: Any) -> MultivariateNormal:
        """The prior at pairs (``rows``, ``cols``), each (Q,): mean (Q,) and a lazy covariance (Q, Q)."""
        pairs = self.pairs(rows, cols)
        covariance = PairLinearOperator(self.row_axis.covariance(), self.col_axis.covariance(), pairs)
        return MultivariateNormal(self.mean_module(pairs.rows, pairs.cols), covariance)

    def covariance(self) -> KroneckerLinearOperator:
        r""":math:`K_M \otimes K_N`, (M N, M N), lazy, row-major."""
        return KroneckerLinearOperator(self.row_axis.covariance(), self.col_axis.covariance())

    def mean_matrix(self) -> Tensor:
        """(M, N): the prior mean b."""
        rows, cols = (torch.arange(size, device=self.mean_module.zero.device) for size in self.shape)
        return self.mean_module.block(rows, cols).expand(self.shape)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        r"""(M, N): an exact sample :math:`b + G_M E G_N^T`, E standard normal, G the roots of the kernels.

        It carries no gradient, as torch has it for ``sample``; ``prior(rows, cols).rsample()`` does.
        """
        check_generator(generator)
        with torch.no_grad():
            row_root, col_root = root(self.row_axis.covariance()), root(self.col_axis.covariance())
            size = (row_root.shape[-1], col_root.shape[-1])
            noise = torch.randn(size, generator=generator, dtype=self.dtype, device=row_root.device)
            return self.mean_matrix() + col_root._matmul(row_root._matmul(noise).mT).mT


class Axis(gpytorch.Module):
    """The rows or the columns: a gpytorch kernel and the inputs at which it is evaluated.

    :param kernel: any gpytorch kernel.
    :param inputs: (n, d) or (n,), with their gradient; left out for kernels on nodes, which know their own.
    :param name: ``row`` or ``col``, for messages.
    """

    inputs: Tensor

    def __init__(self, kernel: Kernel, inputs: Any, name: str) -> None:
        super().__init__()
        if not isinstance(kernel, Kernel):
            raise InputError(f"{name}_kernel: expected a gpytorch kernel, got {type(kernel).__name__}")
        if kernel.batch_shape:
            raise InputError(
                f"{name}_kernel: expected a kernel without batch dimensions, got {tuple(kernel.batch_shape)}"
            )
        self.kernel, self.name = kernel, name
        own = _nodes_of(kernel, name)
        self.on_nodes = own is not None
        if inputs is None:
            if own is None:
                raise InputError(f"{name}_inputs: {type(kernel).__name__} needs inputs, shape (n, d); none were given")
            points = torch.arange(own).unsqueeze(1)
        else:
            points = checked_inputs(inputs, f"{name}_inputs")
        self.register_buffer("inputs", points, persistent=False)

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def covariance(self) -> LinearOperator:
        """(n, n), lazy; differentiable in the kernel's parameters and the inputs."""
        return self._evaluate(self.inputs, None)

    def cross(self, inputs: Tensor) -> LinearOperator:
        """(q, n): between new ``inputs`` (q, d) and the axis."""
        return self._evaluate(inputs, self.inputs)

    def block(self, inputs: Tensor) -> LinearOperator:
        """(*B, q, q): among new ``inputs`` (*B, q, d)."""
        return self._evaluate(inputs, None)

    def new_inputs(self, inputs: Any) -> Tensor:
        """(*B, q, d) checked new inputs with their gradient, in this axis's dtype and place."""
        name, (_, width), dtype = f"{self.name}_inputs", self.inputs.shape, self.inputs.dtype
        points = checked_inputs(inputs, name, batches=True).to(self.inputs.device)
        if points.shape[-1] != width:
            raise InputError(f"{name}: expected {width} columns as in the prior, got {points.shape[-1]}")
        if points.requires_grad and not dtype.is_floating_point:
            raise InputError(
                f"{name}: requires a gradient, but the prior's are whole numbers (nodes, categories), which have none"
            )
        converted = points.to(dtype)
        lost = ~torch.isfinite(converted) if converted.is_floating_point() else converted != points
        refuse_where(lost, points, name, f"a number that fits into {dtype} as in the prior")
        return converted

    def _evaluate(self, x1: Tensor, x2: Tensor | None) -> LinearOperator:
        op = to_linear_operator(self.kernel(x1, x2).evaluate_kernel())
        expected = (*x1.shape[:-1], (x1 if x2 is None else x2).shape[-2])
        if tuple(op.shape) != expected:
            raise InputError(
                f"{self.name}_kernel: expected a kernel matrix {expected} for the inputs, got {tuple(op.shape)}; "
                "kernels with several outputs per input do not fit a matrix-variate prior"
            )
        return op


def checked_inputs(inputs: Any, name: str, *, batches: bool = False) -> Tensor:
    """(n, d) finite inputs, with their gradient; whole numbers stay whole (they may be node numbers).

    :param batches: whether (*B, n, d) will do as well.
    """
    tensor = as_tensor(inputs, name, keep_gradient=True)
    if tensor.dtype == torch.bool:
        raise InputError(f"{name}: expected numbers, got booleans")
    if tensor.is_floating_point() and tensor.dtype not in FLOATS:  # half precision fits into double
        tensor = tensor.double()
    points = tensor.unsqueeze(1) if tensor.dim() == 1 else tensor
    if (points.dim() != 2 and not (batches and points.dim() > 2)) or 0 in points.shape:
        shape = "(n, d) or (*B, n, d)" if batches else "(n, d)"
        raise InputError(f"{name}: expected shape {shape} with n and d at least 1, got {tuple(tensor.shape)}")
    refuse_where(~torch.isfinite(points), points, name, "a finite number")
    return points.contiguous()


def _nodes_of(kernel: Kernel, name: str) -> int | None:
    """Number of nodes of the kernels on nodes inside ``kernel``; they have to agree."""
    counts = {int(k.num_nodes) for k in (kernel, *kernel.sub_kernels()) if hasattr(k, "num_nodes")}
    if len(counts) > 1:
        raise InputError(f"{name}_kernel: its parts are on different numbers of nodes, {sorted(counts)}")
    return counts.pop() if counts else None
