"""Prior means as plain descriptions."""

from __future__ import annotations

import torch

from ..errors import InputError, StorageError
from ..priors import BiasedMean, ConstantMean, GivenMean, MatrixMean, PopularityMean, RowBiasMean, ZeroMean
from .fields import Fields
from .parameters import describe_parameters, restore_parameters
from .tree import Tree

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
