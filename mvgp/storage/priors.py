"""The prior in a file: two kernels, their inputs, and a mean; and the kernels and means that can be saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpytorch.kernels as theirs
import torch
from gpytorch.kernels import Kernel
from scipy import sparse

from .. import kernels as ours
from ..errors import InputError
from ..linalg.spectra import check_covariance
from ..priors import ProductGraphGP, SumGP
from ..priors.matrix_gp import Axis, MatrixGP
from ..priors.means import BiasedMean, ConstantMean, GivenMean, MatrixMean, PopularityMean, RowBiasMean, ZeroMean
from .archive import Tree
from .fields import Fields, Spending
from .registry import RestoreContext, check_starts, describe_part, describe_sparse, register

BIASED = ("base", "row_bias", "col_bias")  # parts of a BiasedMean
TYPES = {"float32": torch.float32, "float64": torch.float64}


def describe_prior(prior: MatrixGP | SumGP) -> Tree:
    """Everything a prior is made of; a sum has a list of terms."""
    for kind in {type(prior) for prior in (prior, *prior.terms)}:
        if kind not in (MatrixGP, SumGP, ProductGraphGP):
            raise InputError(f"prior: expected mvgp.MatrixGP and not a subclass, got {kind.__name__}")
    dtype = str(prior.dtype).removeprefix("torch.")
    if dtype not in TYPES:
        raise InputError(f"prior: a posterior can be saved in {' or '.join(TYPES)}, got {dtype}")
    for name, values in [*prior.named_parameters(), *prior.named_buffers()]:
        if values.is_floating_point() and values.dtype != prior.dtype:
            raise InputError(f"prior.{name}: expected {prior.dtype} as in the rest of the prior, got {values.dtype}")
    if isinstance(prior, SumGP):
        return {"dtype": dtype, "terms": [_describe_term(term) for term in prior.terms]}
    return {"dtype": dtype, **_describe_term(prior)}


def _describe_term(prior: MatrixGP) -> Tree:
    return {
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


def restore_prior(parts: Fields, spending: Spending) -> MatrixGP | SumGP:
    """The inverse of :func:`describe_prior`."""
    shared: dict[Any, Any] = {}
    if not parts.holds("terms"):
        parts.only("dtype", "row", "col", "mean")
        return _restore_term(parts, TYPES[parts.text("dtype", TYPES)], spending, shared)
    parts.only("dtype", "terms")
    dtype, terms = TYPES[parts.text("dtype", TYPES)], []
    for term in prior_parts(parts):
        term.only("row", "col", "mean")
        terms.append(_restore_term(term, dtype, spending, shared))
        term.require(terms[-1].shape == terms[0].shape, "", f"shape {terms[0].shape}", terms[-1].shape)
    parts.require(terms, "terms", "at least one term", "none")
    return SumGP(*terms)


def prior_parts(parts: Fields) -> list[Fields]:
    """What each term of a prior is made of."""
    return parts.each("terms", Fields.fields) if parts.holds("terms") else [parts]


def _restore_term(parts: Fields, dtype: torch.dtype, spending: Spending, shared: dict[Any, Any]) -> MatrixGP:
    kernels, axes = [], []
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

Reader = Callable[[Fields, str, RestoreContext], Any]


def _register(kind: type, describe: Callable[[Any], Tree] | None = None, **readers: Reader) -> None:
    """Register a class by the arguments of its constructor: attributes too, unless ``describe`` says what they are."""

    def restore(parts: Fields, context: RestoreContext) -> Any:
        parts.only(*readers)
        arguments = {name: read(parts, name, context) for name, read in readers.items()}
        on_dtype = {} if kind.__module__.startswith("gpytorch.") else {"dtype": context.dtype}
        return kind(**arguments, **on_dtype, **context.options)

    register(kind, describe or (lambda part: {name: getattr(part, name) for name in readers}), restore)


def _tolerance(parts: Fields, name: str, context: RestoreContext) -> float | None:
    tolerance = parts.optional(name, Fields.positive)
    parts.require(tolerance is None or tolerance < 1, name, "a number below 1", tolerance)
    return tolerance


def _power(kernel: theirs.PolynomialKernel) -> Tree:
    return {"power": kernel.power if isinstance(kernel.power, int) else float(kernel.power)}


def _restore_joined(kind: type[Kernel], parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("kernels")
    kernels = [context.kernel(inner) for inner in parts.each("kernels", Fields.fields)]
    parts.require(kernels, "kernels", "at least one kernel", "none")
    return kind(*kernels, **context.options)  # it takes no options: some are an error


def _restore_precomputed(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("matrix")
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


def _restore_constant(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("num_items")
    items = parts.whole("num_items", 1, 2**31 - 1) if parts.has("num_items") else None
    context.spending.need(parts.where, memory_bytes=8 * 4 * (items or 0))
    return ours.ConstantKernel(items, dtype=context.dtype, **context.options)


def _restore_row_bias(parts: Fields, context: RestoreContext) -> MatrixMean:
    parts.only()
    return RowBiasMean(context.shape[0], context.dtype)


def _restore_biased(parts: Fields, context: RestoreContext) -> MatrixMean:
    parts.only(*BIASED)
    sizes = zip(BIASED[1:], context.shape, strict=True)
    biases = [parts.finite(name, context.dtype, (size,)) for name, size in sizes]
    return BiasedMean(context.mean(parts.fields("base")), *biases)


def _describe_features(kernel: ours.FeatureKernel) -> Tree:
    features, arrays = kernel.features, dict.fromkeys(("dense", "starts", "ends", "values"))
    arrays |= describe_sparse(features.source) if features.is_sparse else {"dense": features.source}
    return {"width": features.shape[1], **arrays}


def _restore_features(parts: Fields, context: RestoreContext) -> Kernel:
    parts.only("width", "dense", "starts", "ends", "values")
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


for _kind in (ours.DiffusionKernel, ours.RegularizedLaplacianKernel, ours.GraphMaternKernel):
    _register(
        _kind,
        graph=lambda parts, name, context: context.graph(parts.fields(name)),
        method=lambda parts, name, context: parts.text(name, ("auto", "eigen", "chebyshev")),
        tolerance=_tolerance,
    )
register(ours.PrecomputedKernel, lambda kernel: {"matrix": kernel.matrix}, _restore_precomputed)
register(ours.FeatureKernel, _describe_features, _restore_features)
register(ours.ConstantKernel, lambda kernel: {"num_items": kernel.num_items}, _restore_constant)
for _kind in (theirs.RBFKernel, theirs.RQKernel, theirs.PeriodicKernel, theirs.CosineKernel, theirs.LinearKernel):
    _register(_kind)
_register(theirs.MaternKernel, nu=lambda parts, name, context: parts.number(name))
_register(theirs.PolynomialKernel, _power, power=lambda parts, name, context: parts.positive(name))
_register(theirs.ScaleKernel, base_kernel=lambda parts, name, context: context.kernel(parts.fields(name)))
for _kind in (theirs.AdditiveKernel, theirs.ProductKernel):
    register(_kind, lambda kernel: {"kernels": list(kernel.kernels)}, partial(_restore_joined, _kind))
_register(ZeroMean)
_register(ConstantMean)
register(RowBiasMean, lambda mean: {}, _restore_row_bias)
_register(PopularityMean, counts=lambda parts, name, context: parts.finite(name, context.dtype, context.shape[1:]))
_register(GivenMean, matrix=lambda parts, name, context: parts.finite(name, context.dtype, context.shape))
register(BiasedMean, lambda mean: {name: getattr(mean, name) for name in BIASED}, _restore_biased)
