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
from torch import Tensor

from .. import kernels as ours
from ..errors import InputError, MvgpError, StorageError
from ..kernels.graph import EIGEN_LIMIT
from ..kernels.graph_kernels import EIGEN_SIZE
from ..linalg.chebyshev import MAX_NODES
from ..linalg.spectra import check_covariance
from .budget import Spending, Tree
from .fields import Fields
from .parameters import Graphs, check_starts, describe_graph, describe_parameters, restore_parameters

MOST_DIMS = 10**6  # columns of inputs
DEEPEST = 8  # kernels inside kernels; gpytorch's time to list them doubles with each


@dataclass(frozen=True)
class Restoring:
    """What the parts of a prior have in common while they are restored.

    :param dtype: of the prior.
    :param graphs: made so far.
    :param spending: what may still be allocated and computed.
    :param inputs: (n, d), the shape of the axis's inputs; None for nodes in order.
    :param checked: precomputed matrices that were found to be covariances, by their identity.
    :param depth: how many kernels are around this one.
    """

    dtype: torch.dtype
    graphs: Graphs
    spending: Spending
    inputs: tuple[int, int] | None = None
    checked: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    depth: int = 0

    @property
    def width(self) -> int:
        """d: columns of the inputs; node numbers have one."""
        return 1 if self.inputs is None else self.inputs[1]

    def need_dense(self, where: str, each: int = 1) -> None:
        """Ask for an n x n matrix of the inputs, if there are any, at so many operations for each entry."""
        if self.inputs is not None:
            cells = self.inputs[0] ** 2
            self.spending.need(where, memory_bytes=2 * self.dtype.itemsize * cells, operations=(20 + each) * cells)


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
    common.spending.need(given.where, kernels=1)
    given.only("kind", "active_dims", "ard_num_dims", "parameters", "own")
    recipe = RECIPES[given.text("kind", RECIPES)]
    options: dict[str, Any] = {}
    if given.has("active_dims"):
        options["active_dims"] = tuple(given.wholes("active_dims", 0, MOST_DIMS))
        if not 0 < len(options["active_dims"]) <= common.width or max(options["active_dims"]) >= common.width:
            raise StorageError(
                f"{given.where}.active_dims: expected columns of the {common.width} that the inputs have, got "
                f"{options['active_dims']!r:.100}"
            )
    if given.has("ard_num_dims"):
        options["ard_num_dims"] = given.whole("ard_num_dims", 1, MOST_DIMS)
        if options["ard_num_dims"] > common.width and not hasattr(recipe.kind, "num_nodes"):
            raise StorageError(
                f"{given.where}.ard_num_dims: expected at most {common.width}, the columns of the inputs, got "
                f"{options['ard_num_dims']}"
            )
    try:
        kernel = recipe.build(given.fields("own"), common, options)
    except StorageError:
        raise
    except MvgpError as error:  # what a constructor refuses
        raise StorageError(f"{given.where}: {type(error).__name__}: {error}") from error
    may_be_zero = ("raw_shift",) if isinstance(kernel, ours.GraphKernel) else ()
    restore_parameters(kernel, given.fields("parameters"), common.dtype, may_be_zero=may_be_zero)
    _check_signs(kernel, given.where)
    return kernel


def _check_signs(kernel: Kernel, where: str) -> None:
    """Lengths, times, variances and the like are not negative; an offset may be."""
    for name, constraint in kernel._constraints.items():
        raw = name.removesuffix("_constraint")
        if raw != "raw_offset" and bool((constraint.transform(kernel._parameters[raw]) < 0).any()):
            raise StorageError(f"{where}.parameters.{raw}: expected a number that is not negative, got another")


def _nothing(_kernel: Kernel, _where: str) -> Tree:
    return {}


def _simple(kind: type[Kernel]) -> Recipe:
    def build(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
        own.only()
        common.need_dense(own.where, common.width)
        return kind(**options)

    return Recipe(kind, _nothing, build)


def _on_graph(kind: type[ours.GraphKernel]) -> Recipe:
    def describe(kernel: ours.GraphKernel, _where: str) -> Tree:
        tolerance = None if kernel.tolerance is None else float(kernel.tolerance)
        return {"graph": describe_graph(kernel.graph), "method": kernel.method, "tolerance": tolerance}

    def build(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
        _only_active_dims(options, own)
        own.only("graph", "method", "tolerance")
        method = own.text("method", ("auto", "eigen", "chebyshev"))
        tolerance = own.positive("tolerance") if own.has("tolerance") else None
        if tolerance is not None and tolerance >= 1:
            raise StorageError(f"{own.where}.tolerance: expected a number below 1, got {tolerance}")
        graph = common.graphs.restore(own.fields("graph"), common.spending)
        nodes = graph.num_nodes
        if method == "eigen" and nodes > EIGEN_LIMIT:
            raise StorageError(f"{own.where}.graph: expected at most {EIGEN_LIMIT} nodes for eigenpairs, got {nodes}")
        if method == "eigen" or (method == "auto" and nodes <= EIGEN_SIZE):
            common.spending.need(own.where, memory_bytes=32 * nodes**2, operations=10 * nodes**3)
            common.need_dense(own.where, nodes)
        else:
            common.spending.need(own.where, memory_bytes=8 * MAX_NODES**2)
        return kind(graph, method=cast(Any, method), tolerance=tolerance, dtype=common.dtype, **options)

    return Recipe(kind, describe, build)


def _build_precomputed(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
    _only_active_dims(options, own)
    own.only("matrix")
    matrix = own.finite("matrix", common.dtype, (None, None))
    if matrix.shape[0] != matrix.shape[1] or not torch.equal(matrix, matrix.mT):
        raise StorageError(f"{own.where}.matrix: expected a symmetric matrix, got another of {tuple(matrix.shape)}")
    if matrix.numel() == 0:
        raise StorageError(f"{own.where}.matrix: expected at least one item, got none")
    if id(matrix) not in common.checked:
        size = len(matrix)
        common.spending.need(own.where, memory_bytes=4 * matrix.nbytes, operations=size**3)
        check_covariance(matrix, "matrix")
        common.checked[id(matrix)] = matrix
    common.need_dense(own.where)
    kernel = ours.PrecomputedKernel(torch.eye(1, dtype=common.dtype), **options)
    kernel.matrix = matrix  # to the last bit, which making it symmetric again might change
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
    own.only("width", "dense", "starts", "ends", "values")
    width = own.whole("width", 1)
    rows = 0 if common.inputs is None else common.inputs[0]
    common.spending.need(own.where, memory_bytes=8 * (4 * width + 2 * rows * width), operations=2 * rows**2 * width)
    common.need_dense(own.where)
    if own.has("dense"):
        _absent(own, "starts", "ends", "values")
        return ours.FeatureKernel(own.finite("dense", common.dtype, (None, width)), dtype=common.dtype, **options)
    starts, ends = own.array("starts", torch.int64, (None,)), own.positions("ends", width)
    values = own.finite("values", common.dtype, (ends.numel(),))
    check_starts(starts, ends, own.where)
    parts = (values.numpy(), ends.numpy(), starts.numpy())
    matrix = sparse.csr_array(parts, shape=(starts.numel() - 1, width))
    return ours.FeatureKernel(matrix, dtype=common.dtype, **options)


def _absent(own: Fields, *names: str) -> None:
    for name in names:
        if own.has(name):
            raise StorageError(f"{own.where}.{name}: expected nothing beside dense features, got something")


def _only_active_dims(options: dict[str, Any], own: Fields) -> None:
    if "ard_num_dims" in options:
        raise StorageError(f"{own.where}: expected a kernel on nodes without ard_num_dims, got {options}")


def _build_matern(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
    own.only("nu")
    nu = own.number("nu")
    if nu not in (0.5, 1.5, 2.5):
        raise StorageError(f"{own.where}.nu: expected 0.5, 1.5 or 2.5, got {nu}")
    common.need_dense(own.where, common.width)
    return theirs.MaternKernel(nu=nu, **options)


def _build_polynomial(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
    own.only("power")
    common.need_dense(own.where, common.width)
    return theirs.PolynomialKernel(power=own.positive("power"), **options)


def _build_scale(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
    own.only("base")
    common.need_dense(own.where)
    return theirs.ScaleKernel(restore_kernel(own.fields("base"), common), **options)


def _joined(kind: type[Kernel]) -> Recipe:
    def describe(kernel: Any, where: str) -> Tree:
        return {"parts": [describe_kernel(part, f"{where}.kernels[{at}]") for at, part in enumerate(kernel.kernels)]}

    def build(own: Fields, common: Restoring, options: dict[str, Any]) -> Kernel:
        if options:
            raise StorageError(f"{own.where}: expected {kind.__name__} without dimensions of its own, got {options}")
        own.only("parts")
        common.need_dense(own.where)
        parts = own.each("parts")
        if not parts:
            raise StorageError(f"{own.where}.parts: expected at least one kernel, got none")
        return kind(*(restore_kernel(part, common) for part in parts))

    return Recipe(kind, describe, build)


_ALL = [
    *(_on_graph(kind) for kind in (ours.DiffusionKernel, ours.RegularizedLaplacianKernel, ours.GraphMaternKernel)),
    Recipe(ours.PrecomputedKernel, lambda kernel, _: {"matrix": kernel.matrix}, _build_precomputed),
    Recipe(ours.FeatureKernel, _describe_features, _build_features),
    *(_simple(kind) for kind in (theirs.RBFKernel, theirs.RQKernel, theirs.PeriodicKernel)),
    *(_simple(kind) for kind in (theirs.CosineKernel, theirs.LinearKernel)),
    Recipe(theirs.MaternKernel, lambda kernel, _: {"nu": float(kernel.nu)}, _build_matern),
    Recipe(
        theirs.PolynomialKernel,
        lambda kernel, _: {"power": kernel.power if isinstance(kernel.power, int) else float(kernel.power)},
        _build_polynomial,
    ),
    Recipe(
        theirs.ScaleKernel,
        lambda kernel, where: {"base": describe_kernel(kernel.base_kernel, f"{where}.base_kernel")},
        _build_scale,
    ),
    *(_joined(kind) for kind in (theirs.AdditiveKernel, theirs.ProductKernel)),
]
RECIPES = {recipe.kind.__name__: recipe for recipe in _ALL}
