"""The prior in a file: two kernels, their inputs, and a mean; and the kernels and means that can be saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import gpytorch.kernels as theirs
import torch
from gpytorch.kernels import Kernel
from scipy import sparse

from .. import kernels as ours
from ..errors import InputError
from ..linalg.spectra import check_covariance
from ..priors.matrix_gp import Axis, MatrixGP
from ..priors.means import BiasedMean, ConstantMean, GivenMean, MatrixMean, PopularityMean, RowBiasMean, ZeroMean
from .archive import Tree
from .fields import Fields, Spending
from .registry import Restore, RestoreContext, check_starts, describe_part, describe_sparse, register

TYPES = {"float32": torch.float32, "float64": torch.float64}


def describe_prior(prior: MatrixGP) -> Tree:
    """Everything a prior is made of."""
    if type(prior) is not MatrixGP:
        raise InputError(f"prior: expected mvgp.MatrixGP and not a subclass, got {type(prior).__name__}")
    dtype = str(prior.dtype).removeprefix("torch.")
    if dtype not in TYPES:
        raise InputError(f"prior: a posterior can be saved in {' or '.join(TYPES)}, got {dtype}")
    for name, values in [*prior.named_parameters(), *prior.named_buffers()]:
        if values.is_floating_point() and values.dtype != prior.dtype:
            raise InputError(f"prior.{name}: expected {prior.dtype} as in the rest of the prior, got {values.dtype}")
    return {
        "dtype": dtype,
        "row": _describe_axis(prior.row_axis),
        "col": _describe_axis(prior.col_axis),
        "mean": describe_part(prior.mean_module, "prior.mean_module"),
    }


def _describe_axis(axis: Axis) -> Tree:
    """A kernel and its inputs (n, d); None for inputs that are all nodes of the kernel in order."""
    nodes = [int(k.num_nodes) for k in (axis.kernel, *axis.kernel.sub_kernels()) if hasattr(k, "num_nodes")]
    inputs = axis.inputs.cpu()
    in_order = nodes and inputs.dtype == torch.int64 and torch.equal(inputs, torch.arange(nodes[0]).unsqueeze(1))
    return {
        "kernel": describe_part(axis.kernel, f"prior.{axis.name}_kernel"),
        "inputs": None if in_order else inputs,
    }


def restore_prior(parts: Fields, spending: Spending) -> MatrixGP:
    """The inverse of :func:`describe_prior`."""
    parts.only("dtype", "row", "col", "mean")
    dtype = TYPES[parts.text("dtype", TYPES)]
    kernels, axes = [], []
    shared: dict[Any, Any] = {}
    for side in (parts.fields("row"), parts.fields("col")):
        side.only("kernel", "inputs")
        inputs, shape = None, None
        if side.has("inputs"):
            inputs = side.array("inputs", shape=(None, None))
            shape = (int(inputs.shape[0]), int(inputs.shape[1]))
            fits = inputs.dtype in (dtype, torch.int64, torch.int32)
            side.require(fits, "inputs", f"{dtype} or whole numbers", inputs.dtype)
        context = RestoreContext(dtype, spending, inputs=shape, shared=shared)
        kernels.append(context.kernel(side.fields("kernel")))
        axes.append(inputs)
    prior = MatrixGP(*kernels, *axes, dtype=dtype)
    prior.mean_module = RestoreContext(dtype, spending, shape=prior.shape).mean(parts.fields("mean"))
    return prior


# Kernels and means ----------------------------------------------------------------------------------


def _register(kind: type, names: str, restore: Restore, describe: Callable[[Any], Tree] | None = None) -> None:
    """Register a class by the names of its parts, which are its attributes unless ``describe`` makes them."""
    parts_of = names.split()

    def restore_checked(parts: Fields, context: RestoreContext) -> Any:
        parts.only(*parts_of)
        return restore(parts, context)

    register(kind, describe or (lambda part: {name: getattr(part, name) for name in parts_of}), restore_checked)


def _register_graph_kernel(kind: type[ours.GraphKernel]) -> None:
    def restore(parts: Fields, context: RestoreContext) -> Kernel:
        method = cast(Any, parts.text("method", ("auto", "eigen", "chebyshev")))
        tolerance = parts.optional("tolerance", Fields.positive)
        parts.require(tolerance is None or tolerance < 1, "tolerance", "a number below 1", tolerance)
        graph = context.graph(parts.fields("graph"))
        return kind(graph, method=method, tolerance=tolerance, dtype=context.dtype, **context.options)

    _register(kind, "graph method tolerance", restore)


def _register_joined(kind: type[Kernel]) -> None:
    def restore(parts: Fields, context: RestoreContext) -> Kernel:
        expected = f"{kind.__name__} without dimensions of its own"
        parts.require(not context.options, "", expected, context.options)
        kernels = [context.kernel(inner) for inner in parts.each("kernels", Fields.fields)]
        parts.require(kernels, "kernels", "at least one kernel", "none")
        return kind(*kernels)

    _register(kind, "kernels", restore, lambda kernel: {"kernels": list(kernel.kernels)})


def _restore_precomputed(parts: Fields, context: RestoreContext) -> Kernel:
    matrix = parts.finite("matrix", context.dtype, (None, None))
    symmetric = matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, matrix.mT)
    parts.require(symmetric, "matrix", "a symmetric matrix", f"another of {tuple(matrix.shape)}")
    parts.require(matrix.numel(), "matrix", "at least one item", "none")
    if ("covariance", id(matrix)) not in context.shared:
        context.spending.need(parts.where, memory_bytes=4 * matrix.nbytes, operations=len(matrix) ** 3)
        check_covariance(matrix, "matrix")
        context.shared["covariance", id(matrix)] = matrix
    kernel = ours.PrecomputedKernel(torch.eye(1, dtype=context.dtype), **context.options)
    kernel.matrix = matrix  # to the last bit, which making it symmetric again might change
    return kernel


def _describe_features(kernel: ours.FeatureKernel) -> Tree:
    features, arrays = kernel.features, dict.fromkeys(("dense", "starts", "ends", "values"))
    arrays |= describe_sparse(features.source) if features.is_sparse else {"dense": features.source}
    return {"width": features.shape[1], **arrays}


def _restore_features(parts: Fields, context: RestoreContext) -> Kernel:
    width = parts.whole("width", 1)
    rows = 0 if context.inputs is None else context.inputs[0]
    memory = 8 * (4 * width + 2 * rows * width)
    context.spending.need(parts.where, memory_bytes=memory, operations=2 * rows**2 * width)
    features: Any
    if parts.has("dense"):
        for name in ("starts", "ends", "values"):
            parts.require(not parts.has(name), name, "nothing beside dense features", "something")
        features = parts.finite("dense", context.dtype, (None, width))
    else:
        starts, ends = parts.array("starts", torch.int64, (None,)), parts.positions("ends", width)
        values = parts.finite("values", context.dtype, (ends.numel(),))
        check_starts(starts, ends, parts)
        arrays = (values.numpy(), ends.numpy(), starts.numpy())
        features = sparse.csr_array(arrays, shape=(starts.numel() - 1, width))
    return ours.FeatureKernel(features, dtype=context.dtype, **context.options)


def _restore_matern(parts: Fields, context: RestoreContext) -> Kernel:
    nu = parts.number("nu")
    parts.require(nu in (0.5, 1.5, 2.5), "nu", "0.5, 1.5 or 2.5", nu)
    return theirs.MaternKernel(nu=nu, **context.options)


def _restore_biased(parts: Fields, context: RestoreContext) -> MatrixMean:
    m, n = context.shape
    biases = parts.finite("row_bias", context.dtype, (m,)), parts.finite("col_bias", context.dtype, (n,))
    return BiasedMean(context.mean(parts.fields("base")), *biases)


for _kind in (ours.DiffusionKernel, ours.RegularizedLaplacianKernel, ours.GraphMaternKernel):
    _register_graph_kernel(_kind)
_register(ours.PrecomputedKernel, "matrix", _restore_precomputed)
_register(ours.FeatureKernel, "width dense starts ends values", _restore_features, _describe_features)
for _kind in (theirs.RBFKernel, theirs.RQKernel, theirs.PeriodicKernel, theirs.CosineKernel, theirs.LinearKernel):
    _register(_kind, "", partial(lambda kind, parts, context: kind(**context.options), _kind))
_register(theirs.MaternKernel, "nu", _restore_matern)
_register(
    theirs.PolynomialKernel,
    "power",
    lambda parts, context: theirs.PolynomialKernel(power=parts.positive("power"), **context.options),
    lambda kernel: {"power": kernel.power if isinstance(kernel.power, int) else float(kernel.power)},
)
_register(
    theirs.ScaleKernel,
    "base_kernel",
    lambda parts, context: theirs.ScaleKernel(context.kernel(parts.fields("base_kernel")), **context.options),
)
for _kind in (theirs.AdditiveKernel, theirs.ProductKernel):
    _register_joined(_kind)
_register(ZeroMean, "", lambda parts, context: ZeroMean(context.dtype))
_register(ConstantMean, "", lambda parts, context: ConstantMean(dtype=context.dtype))
_register(RowBiasMean, "", lambda parts, context: RowBiasMean(context.shape[0], context.dtype))
_register(
    PopularityMean,
    "counts",
    lambda parts, context: PopularityMean(
        parts.finite("counts", context.dtype, context.shape[1:]), dtype=context.dtype
    ),
)
_register(
    GivenMean,
    "matrix",
    lambda parts, context: GivenMean(parts.finite("matrix", context.dtype, context.shape), context.dtype),
)
_register(BiasedMean, "base row_bias col_bias", _restore_biased)
