"""The registry of kernels and prior means that can be saved: how each class is taken apart and put together again.

Every part of a prior goes through it, a user's own as well. A file names classes of the registry and can name no
others. Parameters and their constraints are stored for every class alike; an entry adds what its constructor needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gpytorch
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import Kernel
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from scipy import sparse
from torch import Tensor

from ..checks import check_callable
from ..errors import InputError, MvgpError, StorageError
from ..kernels.graph import EIGEN_LIMIT, Graph, GraphKernel
from ..linalg.chebyshev import MAX_NODES
from ..priors.means import MatrixMean
from .archive import Tree
from .fields import Fields, Spending

MAX_COLUMNS = 10**6  # of inputs
MAX_NESTING = 8  # kernels inside kernels; gpytorch's time to list them doubles with each
GRAPH_BYTES = 200  # of a graph's matrices, for each node and each link
# what each class is made with, and the bound that may be infinite
CONSTRAINTS: dict[type[Interval], tuple[tuple[float, ...], str]] = {
    Positive: ((), "upper"),
    GreaterThan: ((0.0,), "upper"),
    LessThan: ((0.0,), "lower"),
    Interval: ((0.0, 1.0), ""),
}
NAMES = {kind.__name__: kind for kind in CONSTRAINTS}


@dataclass(frozen=True)
class RestoreContext:
    """What a part of a prior is restored with.

    :param dtype: of the prior.
    :param spending: what may still be allocated and computed.
    :param inputs: (n, d), the shape of the inputs of a kernel; None where they are all nodes in order.
    :param shape: (M, N), the shape of the prior, for means; (0, 0) for kernels, which come first.
    :param options: ``active_dims`` and ``ard_num_dims`` of a kernel, those it has, as arguments for its constructor.
    :param depth: how many kernels are around this one.
    :param shared: graphs and checked matrices by the arrays they are made of, over all parts of a file.
    """

    dtype: torch.dtype
    spending: Spending
    inputs: tuple[int, int] | None = None
    shape: tuple[int, int] = (0, 0)
    options: dict[str, Any] = field(default_factory=dict)
    depth: int = 0
    shared: dict[Any, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """d: columns of the inputs; node numbers have one."""
        return 1 if self.inputs is None else self.inputs[1]

    def kernel(self, parts: Fields) -> Kernel:
        """A kernel from what :func:`describe_part` made of it: that of an axis, or one inside another."""
        parts.require(self.depth <= MAX_NESTING, "", f"kernels in at most {MAX_NESTING} others", "more")
        self.spending.need(parts.where, kernels=1)
        parts.only("kind", "active_dims", "ard_num_dims", "parameters", "own")
        entry = _entry(parts, Kernel)
        options = _restore_options(parts, self.width, on_nodes=hasattr(entry.kind, "num_nodes"))
        on_graph = issubclass(entry.kind, GraphKernel)
        if not on_graph:
            self._need_matrix(parts.where, self.width)
        kernel = _restore(entry, parts, dataclasses.replace(self, depth=self.depth + 1, options=options))
        if on_graph:  # with a dense matrix or without
            self._check_graph_kernel(kernel, parts)
        may_be_zero = ("raw_shift",) if on_graph else ()
        restore_parameters(kernel, parts.fields("parameters"), self.dtype, may_be_zero=may_be_zero)
        if entry.kind.__module__.startswith(("mvgp.", "gpytorch.")):
            _check_signs(kernel, parts.fields("parameters"))
        return kernel

    def mean(self, parts: Fields) -> MatrixMean:
        """A mean from what :func:`describe_part` made of it: that of the prior, or one inside another."""
        parts.only("kind", "parameters", "own")
        mean: MatrixMean = _restore(_entry(parts, MatrixMean), parts, self)
        restore_parameters(mean, parts.fields("parameters"), self.dtype)
        mean.check_shape(self.shape)
        return mean

    def graph(self, parts: Fields) -> Graph:
        """A graph; kernels that shared one share it again, and with it the eigenpairs it keeps."""
        parts.only("starts", "ends", "weights")
        starts = parts.array("starts", torch.int64, (None,))
        count = starts.numel() - 1
        ends = parts.positions("ends", max(count, 0))
        weights = parts.finite("weights", torch.float64, (ends.numel(),))
        key = ("graph", id(starts), id(ends), id(weights))
        if key not in self.shared:
            check_starts(starts, ends, parts)
            self.spending.need(parts.where, memory_bytes=GRAPH_BYTES * (starts.numel() + ends.numel()))
            edges = torch.stack([torch.arange(count).repeat_interleave(starts.diff()), ends], dim=1)
            parts.require((edges[:, 0] < ends).all(), "", "links above the diagonal")
            parts.require(((edges[:, 0] * count + ends).diff() > 0).all(), "", "each link once, row by row")
            # arrays that live keep their identities
            self.shared[key] = Graph(edges, count, weights), (starts, ends, weights)
        graph: Graph = self.shared[key][0]
        return graph

    def _need_matrix(self, where: str, operations: int) -> None:
        """Ask for an n x n matrix of the inputs, if there are any, at so many operations for each entry."""
        if self.inputs is not None:
            cells = self.inputs[0] ** 2
            memory = 2 * self.dtype.itemsize * cells
            self.spending.need(where, memory_bytes=memory, operations=(20 + operations) * cells)

    def _check_graph_kernel(self, kernel: GraphKernel, parts: Fields) -> None:
        """Eigenpairs are dense; a polynomial of the graph is not."""
        nodes = kernel.num_nodes
        if not kernel.uses_eigenpairs:
            self.spending.need(parts.where, memory_bytes=8 * MAX_NODES**2)
            return
        parts.require(nodes <= EIGEN_LIMIT, "own.graph", f"at most {EIGEN_LIMIT} nodes for eigenpairs", nodes)
        self.spending.need(parts.where, memory_bytes=32 * nodes**2, operations=10 * nodes**3)
        self._need_matrix(parts.where, nodes)


Describe = Callable[[Any], Tree]
Restore = Callable[[Fields, RestoreContext], Any]


class _Entry(NamedTuple):
    kind: type
    describe: Describe
    restore: Restore


_ENTRIES: dict[str, _Entry] = {}  # by the names that stand in files


def register(kind: type, describe: Describe, restore: Restore, *, name: str | None = None) -> None:
    """Let kernels or prior means of a class be saved and loaded.

    Call it before saving, and in every process before loading. A class is registered for itself and not for its
    subclasses; registering it again replaces the functions.

    :param kind: a subclass of ``gpytorch.kernels.Kernel`` or of :class:`mvgp.priors.MatrixMean`.
    :param describe: takes a part of that class; returns, by name, what the constructor needs beside the parameters that
        gpytorch registers: numbers, texts, flags, None, tensors, graphs, kernels, means, and lists and dictionaries.
    :param restore: takes that as :class:`~mvgp.storage.Fields`, and a :class:`~mvgp.storage.RestoreContext`; returns a
        new part. Its parameters are filled in afterwards.
    :param name: of the class in files; the class's own when left out.

    Example:
        >>> import gpytorch, torch
        >>> from mvgp.storage import register
        >>> class PowerKernel(gpytorch.kernels.RBFKernel):
        ...     def __init__(self, power, **options):
        ...         super().__init__(**options)
        ...         self.power = power
        ...     def forward(self, x1, x2, diag=False, **params):
        ...         return super().forward(x1, x2, diag=diag, **params) ** self.power
        >>> register(
        ...     PowerKernel,
        ...     describe=lambda kernel: {"power": kernel.power},
        ...     restore=lambda parts, context: PowerKernel(parts.positive("power"), **context.options),
        ... )

    """
    if not isinstance(kind, type) or not issubclass(kind, Kernel | MatrixMean):
        raise InputError(f"kind: expected a class of gpytorch kernels or of mvgp.priors.MatrixMean, got {kind!r:.100}")
    check_callable(describe, "describe")
    check_callable(restore, "restore")
    label = kind.__name__ if name is None else name
    if not isinstance(label, str) or not 0 < len(label) <= 100 or not label.isprintable():
        raise InputError(f"name: expected a text of 1 to 100 letters that can be printed, got {name!r:.100}")
    taken = _ENTRIES.get(label)
    if taken is not None and _full_name(taken.kind) != _full_name(kind):
        raise InputError(f"name: {label!r} stands for {_full_name(taken.kind)}; give {_full_name(kind)} another name=")
    for other in [other for other, entry in _ENTRIES.items() if entry.kind is kind]:
        del _ENTRIES[other]
    _ENTRIES[label] = _Entry(kind, describe, restore)


def describe_part(part: Kernel | MatrixMean, where: str) -> Tree:
    """A kernel or a mean with the parts inside it; ``where`` is for messages."""
    kind = next((name for name, entry in _ENTRIES.items() if entry.kind is type(part)), None)
    if kind is None:
        base, plural = (Kernel, "kernels") if isinstance(part, Kernel) else (MatrixMean, "means")
        raise InputError(
            f"{where}: {_full_name(type(part))} cannot be saved; these {plural} can, exactly and not as subclasses: "
            f"{', '.join(_names(base))}; {_advice(type(part).__name__)}"
        )
    own = _ENTRIES[kind].describe(part)
    if not isinstance(own, dict):
        raise InputError(f"{where}: expected a dictionary from describe of {kind}, got {type(own).__name__}")
    tree = {"kind": kind, "parameters": describe_parameters(part, where), "own": _describe_value(own, where)}
    if isinstance(part, Kernel):
        dims = part.active_dims
        tree["active_dims"] = None if dims is None else [int(dim) for dim in dims]
        tree["ard_num_dims"] = None if part.ard_num_dims is None else int(part.ard_num_dims)
    return tree


def _restore(entry: _Entry, parts: Fields, context: RestoreContext) -> Any:
    try:
        part = entry.restore(parts.fields("own"), context)
    except StorageError:
        raise
    except (MvgpError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{parts.where}: {type(error).__name__}: {error}") from error
    parts.require(type(part) is entry.kind, "", _full_name(entry.kind), f"{type(part).__name__} from restore")
    return part


def _entry(parts: Fields, base: type) -> _Entry:
    names, kind = _names(base), parts.text("kind")
    parts.require(kind in names, "kind", f"one of {', '.join(names)}", f"{kind!r:.60}; {_advice('its class')}")
    return _ENTRIES[kind]


def _restore_options(parts: Fields, width: int, *, on_nodes: bool) -> dict[str, Any]:
    """The dimensions of a kernel, which its inputs have to have."""
    options: dict[str, Any] = {}
    if parts.has("active_dims"):
        dims = options["active_dims"] = tuple(parts.each("active_dims", Fields.whole))
        inside = 0 < len(dims) <= width and max(dims) < width
        parts.require(inside, "active_dims", f"columns of the {width} that the inputs have", dims)
    if parts.has("ard_num_dims"):
        count = options["ard_num_dims"] = parts.whole("ard_num_dims", 1, MAX_COLUMNS)
        parts.require(not on_nodes, "", "a kernel on nodes without ard_num_dims", count)
        parts.require(count <= width, "ard_num_dims", f"at most {width}, the columns of the inputs", count)
    return options


def _check_signs(kernel: Kernel, parts: Fields) -> None:
    """Lengths, times, variances and the like are not negative; an offset may be. A user's kernel has its own rules."""
    for name, constraint in kernel._constraints.items():
        raw = name.removesuffix("_constraint")
        fits = raw == "raw_offset" or (constraint.transform(kernel._parameters[raw]) >= 0).all()
        parts.require(fits, raw, "a number that is not negative", "another")


def _describe_value(value: Any, where: str) -> Any:
    """Plain values and tensors, for whatever ``describe`` may return."""
    if isinstance(value, Kernel | MatrixMean):
        return describe_part(value, where)
    if isinstance(value, Graph):  # by the links from each node to later ones
        upper = sparse.csr_array(sparse.triu(value.adjacency(), k=1), dtype="float64")
        upper.sort_indices()
        return describe_sparse(upper, "weights")
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        if not all(isinstance(key, str) and not key.startswith("$") for key in value):
            raise InputError(f"{where}: expected texts that do not begin with $ as names, got {list(value)!r:.100}")
        return {key: _describe_value(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_describe_value(part, f"{where}[{index}]") for index, part in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"{where}: expected a plain value, a tensor, a graph, a kernel or a mean, got {type(value).__name__}"
    )


def describe_sparse(matrix: sparse.csr_array, values: str = "values") -> Tree:
    """Where each row starts (N + 1,), the columns of its entries (E,), and the entries (E,), called ``values``."""
    starts, ends = (torch.from_numpy(part.astype("int64")) for part in (matrix.indptr, matrix.indices))
    return {"starts": starts, "ends": ends, values: torch.from_numpy(matrix.data)}


def check_starts(starts: Tensor, ends: Tensor, parts: Fields) -> None:
    """Where the rows of a sparse matrix start: ascending numbers from 0 to how many entries there are."""
    count = ends.numel()
    inside = starts.numel() >= 2 and int(starts[0]) == 0 and int(starts[-1]) == count
    parts.require(inside and (starts[1:] >= starts[:-1]).all(), "starts", f"ascending numbers from 0 to {count}")


def _names(base: type) -> list[str]:
    return [name for name, entry in _ENTRIES.items() if issubclass(entry.kind, base)]


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _advice(kind: str) -> str:
    return f"for a class of your own, call mvgp.storage.register({kind}, describe, restore) first"


# Parameters: raw values, bit for bit, with their constraints -----------------------------------------


def describe_parameters(module: gpytorch.Module, where: str) -> Tree:
    """The module's own parameters by name; not those of modules inside it."""
    return {
        name: {
            "values": values.detach().cpu(),
            "requires_grad": bool(values.requires_grad),
            "constraint": _describe_constraint(module._constraints.get(f"{name}_constraint"), f"{where}.{name}"),
        }
        for name, values in module._parameters.items()
        if values is not None
    }


def restore_parameters(
    module: gpytorch.Module, parts: Fields, dtype: torch.dtype, *, may_be_zero: Collection[str] = ()
) -> None:
    """Give a fresh module the parameters it had, all finite; those that may be zero have raw values from -infinity."""
    expected = {name: values for name, values in module._parameters.items() if values is not None}
    parts.require(parts.keys() == set(expected), "", str(sorted(expected)), sorted(parts.keys()))
    for name, fresh in expected.items():
        own = parts.fields(name)
        own.only("values", "requires_grad", "constraint")
        values = own.array("values", dtype, tuple(fresh.shape)).clone()
        constraint = _restore_constraint(own.fields("constraint"), dtype, values) if own.has("constraint") else None
        missing = constraint is None and f"{name}_constraint" in module._constraints
        own.require(not missing, "", "a constraint", "none")
        _check_values(values, constraint, own.where, name in may_be_zero)
        module.register_parameter(name, torch.nn.Parameter(values, requires_grad=own.flag("requires_grad")))
        if constraint is not None:
            module.register_constraint(name, constraint)


def _check_values(values: Tensor, constraint: Interval | None, where: str, may_be_zero: bool) -> None:
    """Finite raw numbers that stand for finite ones, which their transform keeps within the bounds."""
    at_end = (values == -torch.inf) & may_be_zero
    checks = [("finite numbers", values, torch.isfinite(values) | at_end)]
    if constraint is not None:
        actual, low, high = constraint.transform(values), constraint.lower_bound, constraint.upper_bound
        # rounding may put a number on its bound, but what has to be positive is not 0, save for those that may be
        inside = torch.isfinite(actual) & (actual >= low) & (actual <= high) & ~((low == 0) & (actual == 0) & ~at_end)
        checks.append(("numbers within their constraint", actual, inside))
    for expected, numbers, fits in checks:
        if not bool(fits.all()):
            raise StorageError(f"{where}.values: expected {expected}, got {numbers[~fits].flatten()[0].item()}")


def _describe_constraint(constraint: Any, where: str) -> Tree | None:
    if constraint is None:
        return None
    if type(constraint) not in CONSTRAINTS or not _has_default_transform(constraint):
        raise InputError(
            f"{where}: a constraint can be saved if it is {', '.join(NAMES)} of gpytorch with its default "
            f"transform, got {constraint!r}"
        )
    lower, upper = (bound.detach().cpu() for bound in (constraint.lower_bound, constraint.upper_bound))
    return {"kind": type(constraint).__name__, "lower": lower, "upper": upper}


def _has_default_transform(constraint: Interval) -> bool:
    there, back = constraint._transform, constraint._inv_transform
    if type(constraint) is Interval:
        return there is torch.sigmoid and back is inv_sigmoid
    softplus = type(there) is torch.nn.Softplus and (there.beta, there.threshold) == (1, 20)
    return softplus and back is inv_softplus


def _restore_constraint(parts: Fields, dtype: torch.dtype, values: Tensor) -> Interval:
    parts.only("kind", "lower", "upper")
    kind = NAMES[parts.text("kind", NAMES)]
    arguments, infinite = CONSTRAINTS[kind]
    lower, upper = (parts.array(name, dtype) for name in ("lower", "upper"))
    for name, bound in (("lower", lower), ("upper", upper)):
        sizes = zip(reversed(bound.shape), reversed(values.shape), strict=False)
        broadcasts = bound.dim() <= values.dim() and all(size in (1, full) for size, full in sizes)
        parts.require(broadcasts, name, f"a bound of {tuple(values.shape)}", tuple(bound.shape))
        finite = name == infinite or not bool(torch.isinf(bound).any())
        parts.require(finite, name, f"a finite bound of {kind.__name__}", bound)
    parts.require((lower < upper).all(), "", "lower < upper")
    constraint = kind(*arguments)
    constraint.lower_bound, constraint.upper_bound = lower.clone(), upper.clone()  # to the last bit
    return constraint
