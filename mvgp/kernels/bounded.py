"""What our kernels share: parameters under a constraint, with one rule for the ends of it, and numbered items."""

from __future__ import annotations

from typing import Any, Self

import gpytorch
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.module import RandomModuleMixin
from torch import Tensor

from ..checks import check_flag, check_instance, check_whole_number
from ..errors import InputError
from ..tensor_checks import as_reals, as_tensor, check_list, refuse_where


class BoundedParameters(gpytorch.Module):
    """What kernels and likelihoods of ours share: parameters ``raw_<name>`` under a constraint.

    A value at an end of its constraint (0, if it has to be positive) has an infinite raw number, from where nothing is
    learned. So it is a constant that does not require a gradient, until a value inside replaces it, however that is
    given (constructor, assignment, ``initialize``, ``load_state_dict``). Otherwise ``requires_grad`` stays as it is.
    """

    _parameter_dtype: torch.dtype = torch.float64

    def _add_parameter(
        self,
        name: str,
        value: Any,
        constraint: Interval | None,
        *,
        may_be_zero: bool = False,
        shape: torch.Size | tuple[int, ...] | None = None,
    ) -> None:
        """Register ``raw_<name>`` with a constraint, positive when left out, at a starting value."""
        if constraint is not None:
            check_instance(constraint, f"{name}_constraint", Interval, "a constraint of gpytorch")
        size = self.batch_shape if shape is None else shape
        raw = torch.nn.Parameter(torch.zeros(size, dtype=self._parameter_dtype))
        self.register_parameter(f"raw_{name}", raw)
        self.register_constraint(f"raw_{name}", Positive() if constraint is None else constraint)
        self._set_parameter(name, value, may_be_zero=may_be_zero)

    def _get_parameter(self, name: str) -> Tensor:
        value: Tensor = getattr(self, f"raw_{name}_constraint").transform(getattr(self, f"raw_{name}"))
        return value

    def _set_parameter(self, name: str, value: Any, *, may_be_zero: bool = False) -> None:
        """Give a parameter a value, which is copied and checked."""
        raw, constraint = getattr(self, f"raw_{name}"), getattr(self, f"raw_{name}_constraint")
        if isinstance(self, RandomModuleMixin):  # gpytorch's random modules hold samples, with their gradient
            expanded = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).expand(raw.shape)
            self.initialize(**{f"raw_{name}": constraint.inverse_transform(expanded)})
            return
        numbers = as_reals(value, name, raw.dtype).to(raw.device)
        bad = (numbers < 0) if may_be_zero else (numbers <= 0)
        refuse_where(bad, numbers, name, f"a finite number that is {'not negative' if may_be_zero else 'positive'}")
        try:
            expanded = numbers.expand(raw.shape)
        except RuntimeError:
            shape = f"one number, or shape {tuple(raw.shape)}" if raw.dim() else "one number"
            raise InputError(f"{name}: expected {shape}, got shape {tuple(numbers.shape)}") from None
        self.initialize(**{f"raw_{name}": _raw(expanded, constraint, name)})

    def initialize(self, **kwargs: Any) -> Self:
        """Set parameters, as gpytorch does; those that leave an end of their constraint are learned again."""
        before = self._at_an_end()
        super().initialize(**kwargs)
        self._settle(before)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        before = self._at_an_end()
        super()._load_from_state_dict(*args, **kwargs)
        self._settle(before)

    def _at_an_end(self) -> set[str]:
        return {name for name, raw in self._parameters.items() if raw is not None and bool(torch.isinf(raw).any())}

    def _settle(self, before: set[str]) -> None:
        """Freeze what is at an end; what was at one ``before`` and is not any more is learned."""
        now = self._at_an_end()
        for name in now | before:
            self._parameters[name].requires_grad_(name not in now)


def bounded_parameter(name: str, meaning: str, *, may_be_zero: bool = False) -> Any:
    """A property of :class:`BoundedParameters`: the value of ``raw_<name>``, with a setter that checks."""

    def get(self: BoundedParameters) -> Tensor:
        return self._get_parameter(name)

    def put(self: BoundedParameters, value: Any) -> None:
        self._set_parameter(name, value, may_be_zero=may_be_zero)

    get.__doc__ = meaning
    return property(get, put, doc=meaning)


def _raw(values: Tensor, constraint: Interval, name: str) -> Tensor:
    """The raw numbers of values under a constraint; infinite at its ends."""
    low, high = (_side_of_bound(values, bound) for bound in (constraint.lower_bound, constraint.upper_bound))
    if bool((low < 0).any()) or bool((high > 0).any()):
        raise InputError(f"{name}: expected a value that fulfils {constraint!r}, got {values.tolist()!r}")
    at_end = (low == 0) | (high == 0)
    if not constraint.enforced or not bool(at_end.any()):
        raw = torch.as_tensor(constraint.inverse_transform(values)).to(values).clone()
        # gpytorch's inverse of softplus overflows where softplus is the identity: from about 700 on
        raw = torch.where(torch.isfinite(raw), raw, values - constraint.lower_bound.to(values))
        back = torch.as_tensor(constraint.transform(raw)).to(values)
        if not bool(torch.isclose(back, values, rtol=1e-3, atol=0.0).all()):
            raise InputError(f"{name}: expected a value that {constraint!r} can represent, got {values.tolist()!r}")
        return raw
    if not bool(at_end.all()):
        raise InputError(
            f"{name}: expected values inside {constraint!r}, or all at an end of it, where they are constants, "
            f"got {values.tolist()!r}"
        )
    return torch.where(low == 0, -torch.inf, torch.full_like(values, torch.inf))


def _side_of_bound(values: Tensor, bound: Tensor) -> Tensor:
    """-1, 0 or 1: below, at or above a bound; in the bound's precision, in which a number may have become the bound."""
    bound = bound.to(values.device)
    rounded = values.to(bound.dtype)
    exact = torch.sign(values - bound.to(values.dtype))
    return torch.where((rounded == bound) & (bound != 0) & torch.isfinite(bound), 0.0, exact)


def check_options(batch_shape: Any, active_dims: Any, **constraints: Any) -> None:
    """What gpytorch's kernels are made with: sizes, numbers of input columns, and constraints; each may be None."""
    for name, option in (("batch_shape", batch_shape), ("active_dims", active_dims)):
        for size in [] if option is None else check_list(option, name, "whole numbers"):
            check_whole_number(size, name, 0)
    for name, option in constraints.items():
        if option is not None:
            check_instance(option, name, Interval, "a constraint of gpytorch")


def both_node_numbers(
    x1: Any, x2: Any, count: int, diag: Any, params: dict[str, Any], kind: str = "items"
) -> tuple[Tensor, Tensor]:
    """The nodes of both arguments of a kernel, which fit together; further arguments of ``forward`` are refused."""
    if params.pop("last_dim_is_batch", False):
        raise InputError(f"a kernel on {kind} has one input column: last_dim_is_batch does not apply")
    if params:
        raise InputError(f"expected no further arguments of a kernel on {kind}, got {', '.join(params)}")
    first, second = node_numbers(x1, count, "x1"), node_numbers(x2, count, "x2")
    if check_flag(diag, "diag") and first.shape[-1] != second.shape[-1]:
        raise InputError(f"x2: expected {first.shape[-1]} nodes as in x1, for the diagonal, got {second.shape[-1]}")
    try:
        torch.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    except RuntimeError:
        shapes = f"{tuple(first.shape[:-1])} and {tuple(second.shape[:-1])}"
        raise InputError(f"x1, x2: expected batches that fit together, got {shapes}") from None
    return first, second


def node_numbers(inputs: Any, count: int, name: str = "inputs") -> Tensor:
    """(..., n) int64 node numbers from kernel inputs (..., n, 1), which gpytorch may hold as floats."""
    if not isinstance(inputs, Tensor):
        raise InputError(f"{name}: expected a tensor of node numbers, got {type(inputs).__name__}")
    inputs = as_tensor(inputs, name)
    if inputs.dim() < 2 or inputs.dtype == torch.bool:
        came = f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        raise InputError(f"{name}: expected node numbers of shape (..., n, 1), got {came}")
    if inputs.shape[-1] != 1:
        raise InputError(f"a kernel on nodes takes one input column, the node's number, got {inputs.shape[-1]}")
    numbers = inputs.squeeze(-1)
    nodes = numbers.round().long() if numbers.is_floating_point() else numbers.long()
    bad = (nodes != numbers) | (nodes < 0) | (nodes >= count)
    if bad.any():
        raise InputError(f"expected node numbers in [0, {count}), got {numbers[bad][0].item()}")
    return nodes


def is_everything(numbers: Tensor, count: int) -> bool:
    """Whether the node numbers are 0, ..., count - 1 in order."""
    everything = torch.arange(count, device=numbers.device)
    return numbers.dim() == 1 and len(numbers) == count and torch.equal(numbers, everything)
