"""The kernels of mvgp and gpytorch that can be saved."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import gpytorch.kernels as theirs
import torch
from gpytorch.kernels import Kernel
from scipy import sparse

from .. import kernels as ours
from ..errors import StorageError
from ..linalg.spectra import check_covariance
from .archive import Tree
from .fields import Fields
from .graphs import check_starts, describe_sparse
from .registry import RestoreContext, register, register_plain


def _make_simple(context: RestoreContext, *, kind: type[Kernel]) -> Kernel:
    return kind(**context.options)


def _describe_graph_kernel(kernel: ours.GraphKernel) -> Tree:
    tolerance = None if kernel.tolerance is None else float(kernel.tolerance)
    return {"graph": kernel.graph, "method": kernel.method, "tolerance": tolerance}


def _restore_graph_kernel(parts: Fields, context: RestoreContext, *, kind: type[ours.GraphKernel]) -> Kernel:
    parts.only("graph", "method", "tolerance")
    method = cast(Any, parts.text("method", ("auto", "eigen", "chebyshev")))
    tolerance = parts.positive("tolerance") if parts.has("tolerance") else None
    if tolerance is not None and tolerance >= 1:
        raise StorageError(f"{parts.where}.tolerance: expected a number below 1, got {tolerance}")
    graph = context.graph(parts.fields("graph"))
    return kind(graph, method=method, tolerance=tolerance, dtype=context.dtype, **context.options)


def _restore_precomputed(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("matrix")
    matrix = parts.finite("matrix", context.dtype, (None, None))
    if matrix.shape[0] != matrix.shape[1] or not torch.equal(matrix, matrix.mT):
        raise StorageError(f"{parts.where}.matrix: expected a symmetric matrix, got another of {tuple(matrix.shape)}")
    if matrix.numel() == 0:
        raise StorageError(f"{parts.where}.matrix: expected at least one item, got none")
    if ("covariance", id(matrix)) not in context.shared:
        context.spending.need(parts.where, memory_bytes=4 * matrix.nbytes, operations=len(matrix) ** 3)
        check_covariance(matrix, "matrix")
        context.shared["covariance", id(matrix)] = matrix
    kernel = ours.PrecomputedKernel(torch.eye(1, dtype=context.dtype), **context.options)
    kernel.matrix = matrix  # to the last bit, which making it symmetric again might change
    return kernel


def _describe_features(kernel: ours.FeatureKernel) -> Tree:
    features = kernel.features
    arrays: Tree = {"dense": features.source, "starts": None, "ends": None, "values": None}
    if features.is_sparse:
        arrays = {"dense": None, **describe_sparse(features.source)}
    return {"width": features.shape[1], **arrays}


def _restore_features(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("width", "dense", "starts", "ends", "values")
    width = parts.whole("width", 1)
    rows = 0 if context.inputs is None else context.inputs[0]
    memory = 8 * (4 * width + 2 * rows * width)
    context.spending.need(parts.where, memory_bytes=memory, operations=2 * rows**2 * width)
    if parts.has("dense"):
        for name in ("starts", "ends", "values"):
            if parts.has(name):
                raise StorageError(f"{parts.where}.{name}: expected nothing beside dense features, got something")
        dense = parts.finite("dense", context.dtype, (None, width))
        return ours.FeatureKernel(dense, dtype=context.dtype, **context.options)
    starts, ends = parts.array("starts", torch.int64, (None,)), parts.positions("ends", width)
    values = parts.finite("values", context.dtype, (ends.numel(),))
    check_starts(starts, ends, parts.where)
    arrays = (values.numpy(), ends.numpy(), starts.numpy())
    matrix = sparse.csr_array(arrays, shape=(starts.numel() - 1, width))
    return ours.FeatureKernel(matrix, dtype=context.dtype, **context.options)


def _restore_matern(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("nu")
    nu = parts.number("nu")
    if nu not in (0.5, 1.5, 2.5):
        raise StorageError(f"{parts.where}.nu: expected 0.5, 1.5 or 2.5, got {nu}")
    return theirs.MaternKernel(nu=nu, **context.options)


def _describe_polynomial(kernel: theirs.PolynomialKernel) -> Tree:
    return {"power": kernel.power if isinstance(kernel.power, int) else float(kernel.power)}


def _restore_polynomial(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("power")
    return theirs.PolynomialKernel(power=parts.positive("power"), **context.options)


def _restore_scale(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("base_kernel")
    return theirs.ScaleKernel(context.kernel(parts.fields("base_kernel")), **context.options)


def _restore_joined(parts: Fields, context: RestoreContext, *, kind: type[Kernel]) -> Kernel:
    if context.options:
        raise StorageError(
            f"{parts.where}: expected {kind.__name__} without dimensions of its own, got {context.options}"
        )
    parts.only("kernels")
    kernels = [context.kernel(inner) for inner in parts.each("kernels", Fields.fields)]
    if not kernels:
        raise StorageError(f"{parts.where}.kernels: expected at least one kernel, got none")
    return kind(*kernels)


for _graph_kernel in (ours.DiffusionKernel, ours.RegularizedLaplacianKernel, ours.GraphMaternKernel):
    register(_graph_kernel, _describe_graph_kernel, partial(_restore_graph_kernel, kind=_graph_kernel))
register(ours.PrecomputedKernel, lambda kernel: {"matrix": kernel.matrix}, _restore_precomputed)
register(ours.FeatureKernel, _describe_features, _restore_features)
for _kernel in (theirs.RBFKernel, theirs.RQKernel, theirs.PeriodicKernel, theirs.CosineKernel, theirs.LinearKernel):
    register_plain(_kernel, partial(_make_simple, kind=_kernel))
register(theirs.MaternKernel, lambda kernel: {"nu": float(kernel.nu)}, _restore_matern)
register(theirs.PolynomialKernel, _describe_polynomial, _restore_polynomial)
register(theirs.ScaleKernel, lambda kernel: {"base_kernel": kernel.base_kernel}, _restore_scale)
for _kernel in (theirs.AdditiveKernel, theirs.ProductKernel):
    register(_kernel, lambda kernel: {"kernels": list(kernel.kernels)}, partial(_restore_joined, kind=_kernel))
