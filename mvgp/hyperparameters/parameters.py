"""What every way of learning shares: raw parameters as a vector, L-BFGS, its outcome, and standard errors."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch import Module
from gpytorch.constraints import Interval
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import Parameter
from tqdm import tqdm

from ..errors import InputError

STEP = 1e-3  # of the central differences of the observed information, in raw parameters
FLAT = 1e-2  # information below which the data do not determine a raw parameter


@dataclass(frozen=True, kw_only=True)
class LearningResult:
    """The outcome of learning; the parameters themselves were changed in place.

    :param parameters: constrained value of each parameter, by name.
    :param history: objective after each step.
    :param converged: whether ``gradient`` is within ``tolerance``.
    :param gradient: largest derivative by a raw parameter, divided by the root of the number of observations.
    :param tolerance: what was requested.
    :param evaluations: how often value and gradient were computed.
    """

    parameters: dict[str, Tensor]
    history: Sequence[float]
    converged: bool
    gradient: float
    tolerance: float
    evaluations: int

    def warn_unless_converged(self, advice: str) -> None:
        """Warn the caller's caller if the tolerance was missed."""
        if not self.converged:
            warnings.warn(
                f"learning ended with gradient {self.gradient:.2e} after {len(self.history)} steps, the tolerance is "
                f"{self.tolerance:.2e}; {advice}",
                RuntimeWarning,
                stacklevel=3,
            )


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
        slopes = []
        for parameter, constraint in self.items.values():
            raw = parameter.detach().double().requires_grad_(True)
            slopes.append(torch.autograd.grad(_transform(raw, constraint).sum(), raw)[0].reshape(-1).cpu())
        return torch.cat(slopes)


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
    value: Tensor = constraint.transform(raw)
    return value


class Objective(ABC):
    """A function of raw parameters, to be maximised by its gradient.

    :param vector: the parameters.
    """

    def __init__(self, vector: ParameterVector) -> None:
        self.vector, self.evaluations = vector, 0
        self.history: list[float] = []

    @abstractmethod
    def evaluate(self) -> tuple[Tensor, float]:
        """At the parameters as they are: a tensor () with the objective's gradient, and the objective."""

    def both(self, raw: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient (n,) at ``raw`` (n,)."""
        self.vector.set(raw)
        self._clear()
        with torch.enable_grad():
            tensor, value = self.evaluate()
            tensor.backward()
        self.evaluations += 1
        gradient = self.vector.gradient()
        self._clear()
        return value, gradient

    def _clear(self) -> None:
        for parameter in self.vector.raw:
            parameter.grad = None

    def maximise(
        self,
        *,
        max_steps: int,
        goal: float,
        unit: float,
        first_step: float | None = None,
        precision: float = 1e-15,
        searches: int = 40,
        label: str,
        progress: bool,
    ) -> None:
        """L-BFGS from where the parameters are; it leaves them at the best point it found.

        :param goal: largest derivative at which it stops.
        :param unit: by which the objective is divided, so that the first step is not too long.
        :param first_step: its length in raw parameters, on which the search is then scaled.
        :param precision: relative change of the objective at which it stops.
        :param searches: evaluations of a line search.
        """
        start = self.vector.get()
        origin, step = (torch.zeros_like(start), 1.0) if first_step is None else (start, first_step)

        def minus(u: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.both(origin + step * torch.from_numpy(np.array(u)))
            return -value / unit, -step * gradient.numpy() / unit

        with tqdm(total=max_steps, disable=not progress, desc=label, leave=False) as bar:

            def note(intermediate_result: Any) -> None:
                self.history.append(-float(intermediate_result.fun) * unit)
                bar.update()
                bar.set_postfix(value=f"{self.history[-1]:.3f}")

            optimum = minimize(
                minus,
                ((start - origin) / step).numpy(),
                jac=True,
                method="L-BFGS-B",
                callback=note,
                options={"maxiter": max_steps, "gtol": step * goal / unit, "ftol": precision, "maxls": searches},
            )
        self.vector.set(origin + step * torch.from_numpy(np.asarray(optimum.x)))

    def result_fields(self, tolerance: float, count: int) -> dict[str, Any]:
        """The fields of a :class:`LearningResult` at the parameters as they are, for ``count`` observations."""
        steepest = float(self.both(self.vector.get())[1].abs().max()) / count**0.5
        return {
            "parameters": self.vector.constrained(),
            "history": self.history,
            "converged": steepest <= tolerance,
            "gradient": steepest,
            "tolerance": tolerance,
            "evaluations": self.evaluations,
        }


def observed_information(gradient: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """(n, n): minus the Hessian at ``at`` (n,), by central differences of the gradient.

    :param gradient: maps raw parameters (n,) to the gradient (n,) of the log marginal likelihood.
    """
    columns = []
    for index in range(len(at)):
        step = torch.zeros_like(at)
        step[index] = STEP
        columns.append((gradient(at - step) - gradient(at + step)) / (2 * STEP))
    matrix = torch.stack(columns, dim=1)
    return (matrix + matrix.mT) / 2


def standard_errors(information: Tensor, slopes: Tensor) -> Tensor:
    r"""(n,) standard errors of constrained parameters: the roots of the diagonal of :math:`J I^{-1} J`.

    A parameter whose raw form the data do not determine (a weight that went to 0, say) has none, NaN; the others are
    then those with that one fixed. All are NaN where the information is not positive definite: not a maximum.

    :param information: (n, n) I, in raw parameters.
    :param slopes: (n,) the diagonal J, derivative of constrained by raw parameters.
    """
    errors = torch.full_like(slopes, torch.nan)
    free = (information.diagonal() > FLAT).nonzero().squeeze(1)
    chol, info = torch.linalg.cholesky_ex(information[free][:, free])
    if int(info) == 0 and len(free):
        errors[free] = torch.cholesky_inverse(chol).diagonal().sqrt() * slopes[free].abs()
    return errors
