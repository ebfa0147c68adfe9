"""Standard errors of learned parameters from the observed information."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch import Module
from gpytorch.constraints import Interval
from torch import Tensor
from torch.nn import Parameter

from ..errors import InputError


class ParameterVector:
    """Raw parameters that take gradients, laid end to end.

    :param modules: name and module, the names come before those of the parameters; an empty one adds nothing.
    """

    def __init__(self, modules: dict[str, Module]) -> None:
        self.items: dict[str, tuple[Parameter, Interval | None]] = {}
        seen: set[int] = set()
        for prefix, module in modules.items():
            for name, parameter, constraint in module.named_parameters_and_constraints():
                if parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    *path, last = name.split(".")
                    full = ".".join([*([prefix] if prefix else []), *path, last.removeprefix("raw_")])
                    _refuse_end(parameter, full)
                    self.items[full] = (parameter, constraint)
        if not self.items:
            raise InputError("nothing to learn: no parameter of the prior or the likelihood takes gradients")

    @property
    def raw(self) -> list[Parameter]:
        """The parameters themselves."""
        return [parameter for parameter, _ in self.items.values()]

    def get(self) -> Tensor:
        """(n,) float64: all raw numbers."""
        return torch.cat([p.detach().double().reshape(-1).cpu() for p in self.raw])

    @torch.no_grad()
    def set(self, vector: Tensor) -> None:
        """Put (n,) raw numbers in place."""
        for parameter, part in zip(self.raw, self.split(vector), strict=True):
            parameter.copy_(part)

    def gradient(self) -> Tensor:
        """(n,) float64: what the last backward pass left; 0 where it left nothing."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.raw]
        return torch.cat([part.double().reshape(-1).cpu() for part in parts])

    def split(self, vector: Tensor) -> list[Tensor]:
        """The parts of (n,) numbers, each in its parameter's shape."""
        parts = vector.split([p.numel() for p in self.raw])
        return [part.reshape(p.shape) for part, p in zip(parts, self.raw, strict=True)]

    def constrained(self) -> dict[str, Tensor]:
        """Each parameter as the model sees it."""
        return {name: _transform(p.detach(), c).clone() for name, (p, c) in self.items.items()}

    def slopes(self) -> Tensor:
        """(n,) float64: derivative of each constrained number by its raw one."""
        found = []
        for parameter, constraint in self.items.values():
            raw = parameter.detach().double().requires_grad_(True)
            found.append(torch.autograd.grad(_transform(raw, constraint).sum(), raw)[0].reshape(-1).cpu())
        return torch.cat(found)


def _refuse_end(parameter: Parameter, name: str) -> None:
    """A raw number that is not finite stays where it is, whatever its gradient: nothing to learn."""
    if not bool(torch.isfinite(parameter).all()):
        raise InputError(
            f"{name}: lies at an end of its constraint (its raw number is not finite), from where nothing is learned; "
            "give it a value inside, or keep it with requires_grad_(False)"
        )


def _transform(raw: Tensor, constraint: Interval | None) -> Tensor:
    if constraint is None:
        return raw + 0
    found: Tensor = constraint.transform(raw)
    return found


STEP = 1e-3  # of the central differences, in raw parameters
FLAT = 1e-2  # information below which a raw parameter is taken not to be determined by the data


def observed_information(gradient: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """(n, n): minus the Hessian at ``at`` (n,), by central differences of the gradient.

    :param gradient: maps raw parameters (n,) to the gradient (n,) of the log marginal likelihood.
    """
    columns = []
    for place in range(len(at)):
        step = torch.zeros_like(at)
        step[place] = STEP
        columns.append((gradient(at - step) - gradient(at + step)) / (2 * STEP))
    found = torch.stack(columns, dim=1)
    return (found + found.mT) / 2


def standard_errors(information: Tensor, slopes: Tensor) -> Tensor:
    r"""(n,) standard errors of constrained parameters: the roots of the diagonal of :math:`J I^{-1} J`.

    A parameter whose raw form the data do not determine (a weight that went to 0, say) has none, NaN; the others are
    then those with that one fixed. All are NaN where the information is not positive definite: not a maximum.

    :param information: (n, n) I, in raw parameters.
    :param slopes: (n,) the diagonal J, derivative of constrained by raw parameters.
    """
    found = torch.full_like(slopes, torch.nan)
    free = (information.diagonal() > FLAT).nonzero().squeeze(1)
    chol, info = torch.linalg.cholesky_ex(information[free][:, free])
    if int(info) == 0 and len(free):
        found[free] = torch.cholesky_inverse(chol).diagonal().sqrt() * slopes[free].abs()
    return found
