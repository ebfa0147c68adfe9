"""The prior in a file: two kernels, their inputs, and a mean; and the means of mvgp that can be saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, StorageError
from ..priors.matrix_gp import Axis, MatrixGP
from ..priors.means import BiasedMean, ConstantMean, GivenMean, MatrixMean, PopularityMean, RowBiasMean, ZeroMean
from . import kernels as _kernels  # noqa: F401 (which registers them)
from .archive import Tree
from .budget import Spending
from .fields import Fields
from .registry import RestoreContext, describe_part, register, register_plain

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


def restore_prior(parts: Fields, spending: Spending) -> MatrixGP:
    """The inverse of :func:`describe_prior`."""
    parts.only("dtype", "row", "col", "mean")
    dtype = TYPES[parts.text("dtype", TYPES)]
    kernels, axes = [], []
    shared: dict[Any, Any] = {}
    for side in (parts.fields("row"), parts.fields("col")):
        side.only("kernel", "inputs")
        inputs = _restore_inputs(side, dtype) if side.has("inputs") else None
        shape = None if inputs is None else (int(inputs.shape[0]), int(inputs.shape[1]))
        context = RestoreContext(dtype, spending, inputs=shape, shared=shared)
        kernels.append(context.kernel(side.fields("kernel")))
        axes.append(inputs)
    prior = MatrixGP(*kernels, *axes, dtype=dtype)
    prior.mean_module = RestoreContext(dtype, spending, shape=prior.shape).mean(parts.fields("mean"))
    return prior


def _restore_inputs(side: Fields, dtype: torch.dtype) -> Tensor:
    """(n, d), in the prior's type or whole."""
    inputs = side.array("inputs", shape=(None, None))
    if inputs.dtype not in (dtype, torch.int64, torch.int32):
        raise StorageError(f"{side.where}.inputs: expected {dtype} or whole numbers, got {inputs.dtype}")
    return inputs


def _describe_axis(axis: Axis) -> Tree:
    """A kernel and its inputs (n, d); None for inputs that are all nodes of the kernel in order."""
    nodes = [int(k.num_nodes) for k in (axis.kernel, *axis.kernel.sub_kernels()) if hasattr(k, "num_nodes")]
    inputs = axis.inputs.cpu()
    in_order = nodes and inputs.dtype == torch.int64 and torch.equal(inputs, torch.arange(nodes[0]).unsqueeze(1))
    return {
        "kernel": describe_part(axis.kernel, f"prior.{axis.name}_kernel"),
        "inputs": None if in_order else inputs,
    }


def _restore_popularity(parts: Fields, context: RestoreContext) -> MatrixMean:
    parts.only("counts")
    return PopularityMean(parts.finite("counts", context.dtype, context.shape[1:]), dtype=context.dtype)


def _restore_given(parts: Fields, context: RestoreContext) -> MatrixMean:
    parts.only("matrix")
    return GivenMean(parts.finite("matrix", context.dtype, context.shape), context.dtype)


def _restore_biased(parts: Fields, context: RestoreContext) -> MatrixMean:
    parts.only("base", "row_bias", "col_bias")
    m, n = context.shape
    base = context.mean(parts.fields("base"))
    biases = parts.finite("row_bias", context.dtype, (m,)), parts.finite("col_bias", context.dtype, (n,))
    return BiasedMean(base, *biases)


register_plain(ZeroMean, lambda context: ZeroMean(context.dtype))
register_plain(ConstantMean, lambda context: ConstantMean(dtype=context.dtype))
register_plain(RowBiasMean, lambda context: RowBiasMean(context.shape[0], context.dtype))
register(PopularityMean, lambda mean: {"counts": mean.counts}, _restore_popularity)
register(GivenMean, lambda mean: {"matrix": mean.matrix}, _restore_given)
register(
    BiasedMean,
    lambda mean: {"base": mean.base, "row_bias": mean.row_bias, "col_bias": mean.col_bias},
    _restore_biased,
)
