"""A graph by the links above its diagonal, row by row."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from scipy import sparse
from torch import Tensor

from ..errors import InputError, StorageError
from ..kernels.graph import Graph
from .budget import Spending, Tree
from .fields import Fields

CONSTRAINTS: dict[str, type[Interval]] = {
    "Positive": Positive,
    "GreaterThan": GreaterThan,
    "LessThan": LessThan,
    "Interval": Interval,
}
INFINITE = {"Positive": "upper", "GreaterThan": "upper", "LessThan": "lower", "Interval": ""}  # the bound that may be


def describe_parameters(module: gpytorch.Module, where: str) -> Tree:
    """The module's own parameters by name; not those of modules inside it."""
    return {
        name: {
            "values": values.detach(),
            "requires_grad": bool(values.requires_grad),
            "constraint": _describe_constraint(module._constraints.get(f"{name}_constraint"), f"{where}.{name}"),
        }
        for name, values in module._parameters.items()
    }


def restore_parameters(
    module: gpytorch.Module, given: Fields, dtype: torch.dtype, *, may_be_zero: Collection[str] = ()
) -> None:
    """Give a fresh module the parameters it had, all finite.

    :param may_be_zero: those that may stand at the lower end of their constraint, whose raw value is minus infinity.
    """
    expected = set(module._parameters)
    if given.keys() != expected:
        raise StorageError(f"{given.where}: expected {sorted(expected)}, got {sorted(given.keys())!r:.200}")
    for name, fresh in list(module._parameters.items()):
        one = given.fields(name)
        one.only("values", "requires_grad", "constraint")
        values = one.array("values", dtype, tuple(fresh.shape)).clone()
        constraint = _restore_constraint(one.fields("constraint"), dtype, values) if one.has("constraint") else None
        if constraint is None and f"{name}_constraint" in module._constraints:
            raise StorageError(f"{one.where}: expected a constraint, got none")
        _check_values(values, constraint, one.where, name in may_be_zero)
        module.register_parameter(name, torch.nn.Parameter(values, requires_grad=one.flag("requires_grad")))
        if constraint is not None:
            module.register_constraint(name, constraint)


def _check_values(values: Tensor, constraint: Interval | None, where: str, may_be_zero: bool) -> None:
    """Finite raw numbers that stand for finite ones, which their transform keeps within the bounds."""
    fits = torch.isfinite(values) | (values == -torch.inf if may_be_zero else torch.zeros_like(values).bool())
    if not bool(fits.all()):
        raise StorageError(f"{where}.values: expected finite numbers, got {values[~fits].flatten()[0].item()}")
    if constraint is None:
        return
    found = constraint.transform(values)
    # rounding may put a number on its bound, but what has to be positive is not 0, save for those that may be
    at_zero = (constraint.lower_bound == 0) & (found == 0) & ~(values == -torch.inf)
    inside = torch.isfinite(found) & (found >= constraint.lower_bound) & (found <= constraint.upper_bound) & ~at_zero
    if not bool(inside.all()):
        raise StorageError(
            f"{where}.values: expected numbers within their constraint, got {found[~inside].flatten()[0].item()}"
        )


def _describe_constraint(constraint: Any, where: str) -> Tree | None:
    if constraint is None:
        return None
    kind = type(constraint).__name__
    if CONSTRAINTS.get(kind) is not type(constraint) or not _has_default_transform(constraint):
        raise InputError(
            f"{where}: a constraint can be saved if it is {', '.join(CONSTRAINTS)} of gpytorch with its default "
            f"transform, got {constraint!r}"
        )
    return {"kind": kind, "lower": constraint.lower_bound.detach(), "upper": constraint.upper_bound.detach()}


def _has_default_transform(constraint: Interval) -> bool:
    there, back = constraint._transform, constraint._inv_transform
    if type(constraint) is Interval:
        return there is torch.sigmoid and back is inv_sigmoid
    softplus = type(there) is torch.nn.Softplus and (there.beta, there.threshold) == (1, 20)
    return softplus and back is inv_softplus


def _restore_constraint(given: Fields, dtype: torch.dtype, values: Tensor) -> Interval:
    given.only("kind", "lower", "upper")
    kind = given.text("kind", CONSTRAINTS)
    bounds = {name: given.array(name, dtype) for name in ("lower", "upper")}
    for name, bound in bounds.items():
        if not _broadcasts(bound, values):
            raise StorageError(
                f"{given.where}.{name}: expected a bound of {tuple(values.shape)}, got {tuple(bound.shape)}"
            )
    if not bool((bounds["lower"] < bounds["upper"]).all()):
        raise StorageError(f"{given.where}: expected lower < upper, got {bounds['lower']} and {bounds['upper']}")
    for name, bound in bounds.items():
        if bool(torch.isinf(bound).any()) and INFINITE[kind] != name:
            raise StorageError(f"{given.where}.{name}: expected a finite bound of {kind}, got {bound}")
    start = {"Positive": (), "GreaterThan": (0.0,), "LessThan": (0.0,), "Interval": (0.0, 1.0)}[kind]
    made = CONSTRAINTS[kind](*start)
    made.lower_bound, made.upper_bound = bounds["lower"].clone(), bounds["upper"].clone()  # their own last bit
    return made


def _broadcasts(bound: Tensor, values: Tensor) -> bool:
    sizes = zip(reversed(bound.shape), reversed(values.shape), strict=False)
    return bound.dim() <= values.dim() and all(size in (1, full) for size, full in sizes)


BYTES = 200  # of a graph's matrices, for each node and each link


def describe_graph(graph: Graph) -> Tree:
    """Where each row of links starts (N + 1,), their other ends (E,), their weights (E,)."""
    upper = sparse.csr_array(sparse.triu(graph.adjacency(), k=1))
    upper.sort_indices()
    return {
        "starts": torch.from_numpy(upper.indptr.astype(np.int64)),
        "ends": torch.from_numpy(upper.indices.astype(np.int64)),
        "weights": torch.from_numpy(upper.data.astype(np.float64)),
    }


class Graphs:
    """The graphs of a file. Kernels that shared one share it again, and with it the eigenpairs it keeps."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], tuple[Graph, tuple[Tensor, ...]]] = {}

    def restore(self, given: Fields, spending: Spending) -> Graph:
        """The graph; the same one for the same arrays."""
        given.only("starts", "ends", "weights")
        starts = given.array("starts", torch.int64, (None,))
        count = starts.numel() - 1
        ends = given.positions("ends", max(count, 0))
        weights = given.finite("weights", torch.float64, (ends.numel(),))
        key = (id(starts), id(ends), id(weights))
        if key not in self._made:
            check_starts(starts, ends, given.where)
            spending.need(given.where, memory_bytes=BYTES * (starts.numel() + ends.numel()))
            edges = torch.stack([torch.arange(count).repeat_interleave(starts.diff()), ends], dim=1)
            if bool((edges[:, 0] >= ends).any()):
                raise StorageError(f"{given.where}: expected links above the diagonal, got others")
            key_of_link = edges[:, 0] * count + ends
            if bool((key_of_link.diff() <= 0).any()):
                raise StorageError(f"{given.where}: expected each link once, row by row, got others")
            self._made[key] = Graph(edges, count, weights), (starts, ends, weights)
        return self._made[key][0]


def check_starts(starts: Tensor, ends: Tensor, where: str) -> None:
    """Where the rows of a sparse matrix start: ascending numbers from 0 to how many entries there are."""
    inside = starts.numel() >= 2 and int(starts.min()) >= 0 and int(starts.max()) <= ends.numel()
    if not inside or int(starts[0]) != 0 or int(starts[-1]) != ends.numel() or bool((starts[1:] < starts[:-1]).any()):
        raise StorageError(f"{where}.starts: expected ascending numbers from 0 to {ends.numel()}, got others")
