"""Parameters of a gpytorch module, bit for bit, with the constraints that give them their meaning."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

from ..errors import InputError, StorageError
from .fields import Fields
from .tree import Tree

CONSTRAINTS: dict[str, type[Interval]] = {
    "Positive": Positive,
    "GreaterThan": GreaterThan,
    "LessThan": LessThan,
    "Interval": Interval,
}


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


def restore_parameters(module: gpytorch.Module, given: Fields, dtype: torch.dtype) -> None:
    """Give a fresh module the parameters it had."""
    expected = set(module._parameters)
    if given.keys() != expected:
        raise StorageError(f"{given.where}: expected {sorted(expected)}, got {sorted(given.keys())!r:.200}")
    for name, fresh in list(module._parameters.items()):
        one = given.fields(name)
        values = one.array("values", dtype, tuple(fresh.shape)).clone()
        constraint = _restore_constraint(one.fields("constraint"), dtype, values) if one.has("constraint") else None
        module.register_parameter(name, torch.nn.Parameter(values, requires_grad=one.flag("requires_grad")))
        if constraint is not None:
            module.register_constraint(name, constraint)
        elif f"{name}_constraint" in module._constraints:
            raise StorageError(f"{one.where}: expected a constraint, got none")


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
    kind = given.text("kind", CONSTRAINTS)
    bounds = {name: given.array(name, dtype) for name in ("lower", "upper")}
    for name, bound in bounds.items():
        if torch.broadcast_shapes(bound.shape, values.shape) != values.shape:
            raise StorageError(
                f"{given.where}.{name}: expected a bound of {tuple(values.shape)}, got {tuple(bound.shape)}"
            )
    if not bool((bounds["lower"] < bounds["upper"]).all()):
        raise StorageError(f"{given.where}: expected lower < upper, got {bounds['lower']} and {bounds['upper']}")
    start = {"Positive": (), "GreaterThan": (0.0,), "LessThan": (0.0,), "Interval": (0.0, 1.0)}[kind]
    made = CONSTRAINTS[kind](*start)
    made.lower_bound, made.upper_bound = bounds["lower"].clone(), bounds["upper"].clone()  # their own last bit
    return made
