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

# what each class is made with, and the bound that may be infinite
CONSTRAINTS: dict[type[Interval], tuple[tuple[float, ...], str]] = {
    Positive: ((), "upper"),
    GreaterThan: ((0.0,), "upper"),
    LessThan: ((0.0,), "lower"),
    Interval: ((0.0, 1.0), ""),
}
NAMES = {kind.__name__: kind for kind in CONSTRAINTS}


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
