"""Kernels as plain descriptions. Those of the list can be saved; a subclass of one is another kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import gpytorch.kernels as theirs
import torch
from gpytorch.kernels import Kernel
from scipy import sparse

from .. import kernels as ours
from ..errors import InputError, StorageError
from .fields import Fields
from .graphs import Graphs, describe_graph
from .parameters import describe_parameters, restore_parameters
from .tree import Tree

MOST_DIMS = 10**6  # columns of inputs
DEEPEST = 8  # kernels inside kernels; gpytorch's time to list them doubles with each


@dataclass(frozen=True)
class Restoring:
    """What the parts of a prior have in common while they are restored.

    :param dtype: of the prior.
    :param graphs: made so far.
    :param depth: how many kernels are around this one.
    """

    dtype: torch.dtype
    graphs: Graphs
    depth: int = 0


@dataclass(frozen=True)
class Recipe:
    """How a class of kernels is taken apart and put together again, up to its parameters.

    :param kind: the class.
    :param describe: what is particular to a kernel of this class; takes it and its place, for messages.
    :param build: a fresh kernel from that; takes it, what is common to all parts, and options for the constructor.
    """

    kind: type[Kernel]
    describe: Callable[[Any, str], Tree]
    build: Callable[[Fields, Restoring, dict[str, Any]], Kernel]


def describe_kernel(kernel: Kernel, where: str) -> Tree:
    """A kernel and its parts; ``where`` is for messages."""
    recipe = RECIPES.get(type(kernel).__name__)
    if recipe is None or recipe.kind is not type(kernel):
        raise InputError(
            f"{where}: {type(kernel).__module__}.{type(kernel).__name__} cannot be saved; these kernels can, exactly "
            f"and not as subclasses: {', '.join(RECIPES)}"
        )
    dims = kernel.active_dims
    return {
        "kind": type(kernel).__name__,
        "active_dims": None if dims is None else [int(dim) for dim in dims],
        "ard_num_dims": None if kernel.ard_num_dims is None else int(kernel.ard_num_dims),
        "parameters": describe_parameters(kernel, where),
        "own": recipe.describe(kernel, where),
    }


def restore_kernel(given: Fields, common: Restoring) -> Kernel:
    """The inverse of :func:`describe_kernel`."""
    if common.depth > DEEPEST:
        raise StorageError(f"{given.where}: expected kernels in at most {DEEPEST} others, got more")
    common = dataclasses.replace(common, depth=common.depth + 1)
    recipe = RECIPES[given.text("kind", RECIPES)]
    options: dict[str, Any] = {}
    if given.has("active_dims"):
        options["active_dims"] = tuple(given.wholes("active_dims", 0, MOST_DIMS))
    if given.has("ard_num_dims"):
        options["ard_num_dims"] = given.whole("ard_num_dims", 1, MOST_DIMS)
    kernel = recipe.build(given.fields("own"), common, options)
    restore_parameters(kernel, given.fields("parameters"), common.dtype)
    return kernel


def _nothing(_kernel: Kernel, _where: str) -> Tree:
    return {}


def _simple(kind: type[Kernel]) -> Recipe:
    return Recipe(kind, _nothing, lambda _own, _common, options: kind(**options))


def _on_graph(kind: type[ours.GraphKernel]) -> Recipe:
    def describe(kernel: ours.GraphKernel, _where: str) -> Tree:
        tolerance = None if kernel.tolerance is None else float(kernel.tolerance)
        return {"graph": describe_graph(kernel.graph), "method": kernel.method, "tolerance": tolerance}

    def build(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
        _only_active_dims(options, own)
        return kind(
            common.graphs.restore(own.fields("graph")),
            method=cast(Any, own.text("method", ("auto", "eigen", "chebyshev"))),
            tolerance=own.number("tolerance") if own.has("tolerance") else None,
            dtype=common.dtype,
            **options,
        )

    return Recipe(kind, describe, build)


def _build_precomputed(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
    _only_active_dims(options, own)
    matrix = own.finite("matrix", common.dtype, (None, None))
    if matrix.shape[0] != matrix.shape[1] or not torch.equal(matrix, matrix.mT):
        raise StorageError(f"{own.where}.matrix: expected a symmetric matrix, got another of {tuple(matrix.shape)}")
    kernel = ours.PrecomputedKernel(torch.eye(1, dtype=common.dtype), **options)
    kernel.matrix = matrix  # was checked to be positive semi-definite when it was first given
    return kernel


def _describe_features(kernel: ours.FeatureKernel, _where: str) -> Tree:
    source = kernel.features.source
    if not kernel.features.is_sparse:
        return {"width": kernel.features.shape[1], "dense": source, "starts": None, "ends": None, "values": None}
    return {
        "width": kernel.features.shape[1],
        "dense": None,
        "starts": torch.from_numpy(source.indptr.astype("int64")),
        "ends": torch.from_numpy(source.indices.astype("int64")),
        "values": torch.from_numpy(source.data),
    }


def _build_features(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
    _only_active_dims(options, own)
    width = own.whole("width", 1)
    if own.has("dense"):
        return ours.FeatureKernel(own.finite("dense", common.dtype, (None, width)), dtype=common.dtype, **options)
    starts, ends = own.array("starts", torch.int64, (None,)), own.positions("ends", width)
    values = own.finite("values", common.dtype, (ends.numel(),))
    if starts.numel() < 2 or int(starts[0]) != 0 or int(starts[-1]) != ends.numel() or bool((starts.diff() < 0).any()):
        raise StorageError(f"{own.where}.starts: expected ascending numbers from 0 to {ends.numel()}, got others")
    parts = (values.numpy(), ends.numpy(), starts.numpy())
    matrix = sparse.csr_array(parts, shape=(starts.numel() - 1, width))
    return ours.FeatureKernel(matrix, dtype=common.dtype, **options)


def _only_active_dims(options: dict[str, Any], own: Fields) -> None:
    if "ard_num_dims" in options:
        raise StorageError(f"{own.where}: expected a kernel on nodes without ard_num_dims, got {options}")


def _joined(kind: type[Kernel]) -> Recipe:
    def describe(kernel: Any, where: str) -> Tree:
        return {"parts": [describe_kernel(part, f"{where}.kernels[{at}]") for at, part in enumerate(kernel.kernels)]}

    def build(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
        if options:
            raise StorageError(f"{own.where}: expected {kind.__name__} without dimensions of its own, got {options}")
        return kind(*(restore_kernel(part, common) for part in own.each("parts")))

    return Recipe(kind, describe, build)


_ALL = [
    *(_on_graph(kind) for kind in (ours.DiffusionKernel, ours.RegularizedLaplacianKernel, ours.GraphMaternKernel)),
    Recipe(ours.PrecomputedKernel, lambda kernel, _: {"matrix": kernel.matrix}, _build_precomputed),
    Recipe(ours.FeatureKernel, _describe_features, _build_features),
    *(_simple(kind) for kind in (theirs.RBFKernel, theirs.RQKernel, theirs.PeriodicKernel)),
    *(_simple(kind) for kind in (theirs.CosineKernel, theirs.LinearKernel)),
    Recipe(
        theirs.MaternKernel,
        lambda kernel, _: {"nu": float(kernel.nu)},
        lambda own, _, options: theirs.MaternKernel(nu=own.number("nu"), **options),
    ),
    Recipe(
        theirs.PolynomialKernel,
        lambda kernel, _: {"power": kernel.power if isinstance(kernel.power, int) else float(kernel.power)},
        lambda own, _, options: theirs.PolynomialKernel(power=own.number("power"), **options),
    ),
    Recipe(
        theirs.ScaleKernel,
        lambda kernel, where: {"base": describe_kernel(kernel.base_kernel, f"{where}.base_kernel")},
        lambda own, common, options: theirs.ScaleKernel(restore_kernel(own.fields("base"), common), **options),
    ),
    *(_joined(kind) for kind in (theirs.AdditiveKernel, theirs.ProductKernel)),
]
RECIPES = {recipe.kind.__name__: recipe for recipe in _ALL}
