"""Parameters of a kernel or a mean in a file: raw values, bit for bit, with their constraints."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gpytorch
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

from ..errors import InputError, StorageError
from .archive import Tree
from .fields import Fields

# the class, what it is made with, and the bound that may be infinite
CONSTRAINTS: dict[str, tuple[type[Interval], tuple[float, ...], str]] = {
    "Positive": (Positive, (), "upper"),
    "GreaterThan": (GreaterThan, (0.0,), "upper"),
    "LessThan": (LessThan, (0.0,), "lower"),
    "Interval": (Interval, (0.0, 1.0), ""),
}


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
    """Give a fresh module the parameters it had, all finite.

    :param may_be_zero: those that may stand at the lower end of their constraint, whose raw value is minus infinity.
    """
    expected = {name: values for name, values in module._parameters.items() if values is not None}
    if parts.keys() != set(expected):
        raise StorageError(f"{parts.where}: expected {sorted(expected)}, got {sorted(parts.keys())!r:.200}")
    for name, fresh in expected.items():
        own = parts.fields(name)
        own.only("values", "requires_grad", "constraint")
        values = own.array("values", dtype, tuple(fresh.shape)).clone()
        constraint = _restore_constraint(own.fields("constraint"), dtype, values) if own.has("constraint") else None
        if constraint is None and f"{name}_constraint" in module._constraints:
            raise StorageError(f"{own.where}: expected a constraint, got none")
        _check_values(values, constraint, own.where, name in may_be_zero)
        module.register_parameter(name, torch.nn.Parameter(values, requires_grad=own.flag("requires_grad")))
        if constraint is not None:
            module.register_constraint(name, constraint)


def _check_values(values: Tensor, constraint: Interval | None, where: str, may_be_zero: bool) -> None:
    """Finite raw numbers that stand for finite ones, which their transform keeps within the bounds."""
    fits = torch.isfinite(values) | (values == -torch.inf if may_be_zero else torch.zeros_like(values).bool())
    if not bool(fits.all()):
        raise StorageError(f"{where}.values: expected finite numbers, got {values[~fits].flatten()[0].item()}")
    if constraint is None:
        return
    actual = constraint.transform(values)
    # rounding may put a number on its bound, but what has to be positive is not 0, save for those that may be
    at_zero = (constraint.lower_bound == 0) & (actual == 0) & ~(values == -torch.inf)
    inside = torch.isfinite(actual) & (actual >= constraint.lower_bound) & (actual <= constraint.upper_bound) & ~at_zero
    if not bool(inside.all()):
        raise StorageError(
            f"{where}.values: expected numbers within their constraint, got {actual[~inside].flatten()[0].item()}"
        )


def _describe_constraint(constraint: Any, where: str) -> Tree | None:
    if constraint is None:
        return None
    kind = type(constraint).__name__
    if (
        kind not in CONSTRAINTS
        or CONSTRAINTS[kind][0] is not type(constraint)
        or not _has_default_transform(constraint)
    ):
        raise InputError(
            f"{where}: a constraint can be saved if it is {', '.join(CONSTRAINTS)} of gpytorch with its default "
            f"transform, got {constraint!r}"
        )
    bounds = {"lower": constraint.lower_bound, "upper": constraint.upper_bound}
    return {"kind": kind, **{name: bound.detach().cpu() for name, bound in bounds.items()}}


def _has_default_transform(constraint: Interval) -> bool:
    there, back = constraint._transform, constraint._inv_transform
    if type(constraint) is Interval:
        return there is torch.sigmoid and back is inv_sigmoid
    softplus = type(there) is torch.nn.Softplus and (there.beta, there.threshold) == (1, 20)
    return softplus and back is inv_softplus


def _restore_constraint(parts: Fields, dtype: torch.dtype, values: Tensor) -> Interval:
    parts.only("kind", "lower", "upper")
    kind = parts.text("kind", CONSTRAINTS)
    bounds = {name: parts.array(name, dtype) for name in ("lower", "upper")}
    for name, bound in bounds.items():
        if not _broadcasts(bound, values):
            raise StorageError(
                f"{parts.where}.{name}: expected a bound of {tuple(values.shape)}, got {tuple(bound.shape)}"
            )
    if not bool((bounds["lower"] < bounds["upper"]).all()):
        raise StorageError(f"{parts.where}: expected lower < upper, got {bounds['lower']} and {bounds['upper']}")
    make, arguments, infinite = CONSTRAINTS[kind]
    for name, bound in bounds.items():
        if bool(torch.isinf(bound).any()) and infinite != name:
            raise StorageError(f"{parts.where}.{name}: expected a finite bound of {kind}, got {bound}")
    constraint = make(*arguments)
    constraint.lower_bound, constraint.upper_bound = bounds["lower"].clone(), bounds["upper"].clone()  # to the last bit
    return constraint


def _broadcasts(bound: Tensor, values: Tensor) -> bool:
    sizes = zip(reversed(bound.shape), reversed(values.shape), strict=False)
    return bound.dim() <= values.dim() and all(size in (1, full) for size, full in sizes)
