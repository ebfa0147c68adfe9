"""The prior as a plain description: two kernels, their inputs, and a mean."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError, StorageError
from ..priors.matrix_gp import Axis, MatrixGP
from ..priors.means import BiasedMean, ConstantMean, GivenMean, MatrixMean, PopularityMean, RowBiasMean, ZeroMean
from .budget import Spending, Tree
from .fields import Fields
from .kernels import Restoring, describe_kernel, restore_kernel
from .parameters import Graphs, describe_parameters, restore_parameters

KINDS: dict[str, type[MatrixMean]] = {
    kind.__name__: kind for kind in (ZeroMean, ConstantMean, RowBiasMean, PopularityMean, GivenMean, BiasedMean)
}
OWN = {"GivenMean": ("matrix",), "PopularityMean": ("counts",), "BiasedMean": ("base", "row_bias", "col_bias")}


def describe_mean(mean: MatrixMean) -> Tree:
    """A mean, and the one inside it."""
    kind = type(mean).__name__
    if KINDS.get(kind) is not type(mean):
        raise InputError(
            f"prior.mean_module: {type(mean).__module__}.{kind} cannot be saved; these means can, exactly and not as "
            f"subclasses: {', '.join(KINDS)}"
        )
    own: Tree = {}
    if isinstance(mean, GivenMean):
        own = {"matrix": mean.matrix}
    elif isinstance(mean, PopularityMean):
        own = {"counts": mean.counts}
    elif isinstance(mean, BiasedMean):
        own = {"base": describe_mean(mean.base), "row_bias": mean.row_bias, "col_bias": mean.col_bias}
    return {"kind": kind, "parameters": describe_parameters(mean, "prior.mean_module"), "own": own}


def restore_mean(given: Fields, dtype: torch.dtype, shape: tuple[int, int]) -> MatrixMean:
    """The inverse of :func:`describe_mean`, for a prior of that shape."""
    given.only("kind", "parameters", "own")
    mean = _fresh(given.text("kind", KINDS), given.fields("own"), dtype, shape)
    restore_parameters(mean, given.fields("parameters"), dtype)
    return mean


def _fresh(kind: str, own: Fields, dtype: torch.dtype, shape: tuple[int, int]) -> MatrixMean:
    own.only(*OWN.get(kind, ()))
    if kind == "RowBiasMean":
        return RowBiasMean(shape[0], dtype)
    if kind == "PopularityMean":
        return _popularity(own, dtype, shape)
    if kind == "GivenMean":
        return GivenMean(own.finite("matrix", dtype, shape), dtype)
    if kind == "BiasedMean":
        base = restore_mean(own.fields("base"), dtype, shape)
        return BiasedMean(base, own.finite("row_bias", dtype, shape[:1]), own.finite("col_bias", dtype, shape[1:]))
    return ConstantMean(dtype=dtype) if kind == "ConstantMean" else ZeroMean(dtype)


def _popularity(own: Fields, dtype: torch.dtype, shape: tuple[int, int]) -> PopularityMean:
    counts = own.finite("counts", dtype, shape[1:])
    if bool((counts < 0).any()):
        raise StorageError(f"{own.where}.counts: expected numbers that are not negative, got others")
    return PopularityMean(counts, dtype=dtype)


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
        "mean": describe_mean(prior.mean_module),
    }


def restore_prior(given: Fields, spending: Spending) -> MatrixGP:
    """The inverse of :func:`describe_prior`."""
    given.only("dtype", "row", "col", "mean")
    dtype = TYPES[given.text("dtype", TYPES)]
    graphs = Graphs()
    checked: dict[int, Tensor] = {}
    kernels, inputs = [], []
    for side in (given.fields("row"), given.fields("col")):
        side.only("kernel", "inputs")
        found = _restore_inputs(side, dtype) if side.has("inputs") else None
        shape = None if found is None else (int(found.shape[0]), int(found.shape[1]))
        common = Restoring(dtype, graphs, spending, shape, checked)
        kernels.append(restore_kernel(side.fields("kernel"), common))
        inputs.append(found)
    prior = MatrixGP(*kernels, *inputs, dtype=dtype)
    prior.mean_module = restore_mean(given.fields("mean"), dtype, prior.shape)
    return prior


def _restore_inputs(side: Fields, dtype: torch.dtype) -> Tensor:
    """(n, d), in the prior's type or whole."""
    found = side.array("inputs", shape=(None, None))
    if found.dtype not in (dtype, torch.int64, torch.int32):
        raise StorageError(f"{side.where}.inputs: expected {dtype} or whole numbers, got {found.dtype}")
    return found


def _describe_axis(axis: Axis) -> Tree:
    return {"kernel": describe_kernel(axis.kernel, f"prior.{axis.name}_kernel"), "inputs": _inputs(axis)}


def _inputs(axis: Axis) -> Tensor | None:
    """(n, d), or None where they are all nodes of the kernel in order."""
    nodes = [int(k.num_nodes) for k in (axis.kernel, *axis.kernel.sub_kernels()) if hasattr(k, "num_nodes")]
    inputs = axis.inputs.cpu()
    if nodes and inputs.dtype == torch.int64 and torch.equal(inputs, torch.arange(nodes[0]).unsqueeze(1)):
        return None
    return axis.inputs
