"""Learning: raw parameters as a vector, L-BFGS on any objective, and ``learn``, with standard errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch import Module
from gpytorch.constraints import Interval
from gpytorch.likelihoods import GaussianLikelihood
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import Parameter

from ..checks import check_flag, check_instance, check_iterations, check_tolerance, check_whole_number, refuse_gradient
from ..data.observed import ObservedMatrix
from ..errors import InputError, SizeError
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..progress import Progress, check_progress, progress_bar
from .marginal import LogMarginal, MatrixMarginalLogLikelihood, check_problem

FIRST, AGAIN = 1.0, 0.02  # length of the first step in raw parameters
TURNS = 5  # of L-BFGS, at most, each with a new preconditioner
STEP = 1e-3  # of the central differences of the observed information, in raw parameters
FLAT = 1e-2  # information below which the data do not determine a raw parameter
FLAT_DIRECTION = 1e-5  # the same of a combination of parameters, or this, when each alone has information 1


def learn(
    model: Any,
    likelihood: GaussianLikelihood,
    data: ObservedMatrix,
    *,
    max_steps: int = 200,
    tolerance: float = 1e-4,
    errors: bool = True,
    max_errors: int = 200,
    progress: Progress = "auto",
    **options: Any,
) -> Learned:
    r"""Maximise the log marginal likelihood over all raw parameters that take gradients, in place.

    With probes L-BFGS runs again from where it ended, with the preconditioner of that point. P probes move the optimum
    by at most about :math:`1 / \sqrt{P}` of a standard error.

    :param model: a :class:`mvgp.MatrixGP`, a sum of those, or a recipe that has one as ``prior``.
    :param likelihood: gpytorch's ``GaussianLikelihood``; it is brought to the prior's precision.
    :param data: the observed pairs.
    :param max_steps: of L-BFGS.
    :param tolerance: on the largest derivative by a raw parameter, divided by the root of the number of observations;
        about the distance to the optimum in standard errors. Missing it warns.
    :param errors: whether to compute standard errors, two gradients for each parameter.
    :param max_errors: parameters up to which they are computed.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param options: ``method``, ``probes``, ``seed`` and so on, as of :class:`MatrixMarginalLogLikelihood`.
    """
    kinds = (MatrixGP, SumGP)
    prior = check_instance(getattr(model, "prior", model), "model", kinds, "mvgp.MatrixGP or a recipe with one")
    check_problem(prior, data)
    refuse_gradient(data, "data")
    prior.refuse_gradients()
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    errors, progress = check_flag(errors, "errors"), check_progress(progress)
    max_errors = check_whole_number(max_errors, "max_errors", 0)
    mll = MatrixMarginalLogLikelihood(likelihood, prior, **options)
    likelihood.to(prior.dtype)
    vector = ParameterVector({"": prior, "likelihood": likelihood})
    if errors and len(vector.get()) > max_errors:
        raise SizeError(
            f"errors: standard errors are offered for up to {max_errors} parameters, "
            f"there are {len(vector.get())}; pass errors=False"
        )

    def replicates() -> Tensor:
        return data.replicate_log_prob(likelihood.noise.reshape(-1)[0])

    objective = Objective(
        vector, lambda: mll(prior(data.rows, data.cols), data.values, weights=data.weights) * len(data) + replicates()
    )
    for turn in range(TURNS):
        first_step = FIRST if turn == 0 else AGAIN
        objective.maximise(max_steps, tolerance * len(data) ** 0.5, first_step=first_step, progress=progress)
        fields = objective.result_fields(tolerance, len(data))
        if mll.last.method != "probes" or (turn > 0 and fields["converged"]):
            break
        mll.refresh()
    last = replace(mll.last, value=mll.last.value + replicates().detach())
    bars = _standard_errors(objective) if errors else {}
    result = Learned(**fields | {"evaluations": objective.evaluations}, standard_errors=bars, log_marginal=last)
    result.warn_unless_converged("allow more steps, or begin elsewhere")
    return result


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
    history: tuple[float, ...]
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


@dataclass(frozen=True, kw_only=True)
class Learned(LearningResult):
    """The outcome of :func:`learn`; its objective is the log marginal likelihood plus log densities of priors.

    :param standard_errors: of each parameter, by name; NaN where the data do not determine it. Empty if they were not
        requested.
    :param log_marginal: at the end, with its own error bar.
    """

    standard_errors: dict[str, Tensor]
    log_marginal: LogMarginal

    def __str__(self) -> str:
        lines = [f"log marginal likelihood {float(self.log_marginal.value):.4f}, converged: {self.converged}"]
        for name, value in self.parameters.items():
            error = self.standard_errors.get(name)
            for at in range(min(value.numel(), 5)):
                bar = "" if error is None else f" +- {error.reshape(-1)[at]:.3g}".replace("+- nan", "(not determined)")
                lines.append(f"  {name} {value.reshape(-1)[at]:.6g}{bar}")
        return "\n".join(lines)


class ParameterVector:
    """Raw parameters that take gradients, laid end to end; the names of ``modules`` come before theirs."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.items: dict[str, tuple[Parameter, Interval | None]] = {}
        self.raw: list[Parameter] = []
        for prefix, module in modules.items():
            for name, parameter, constraint in module.named_parameters_and_constraints():
                if not parameter.requires_grad or any(parameter is other for other in self.raw):
                    continue
                *path, last = name.split(".")
                full = ".".join([*([prefix] if prefix else []), *path, last.removeprefix("raw_")])
                if not bool(torch.isfinite(parameter).all()):
                    raise InputError(
                        f"{full}: lies at an end of its constraint (its raw number is not finite), from where nothing "
                        "is learned; give it a value inside, or keep it with requires_grad_(False)"
                    )
                self.items[full] = (parameter, constraint)
                self.raw.append(parameter)
        if not self.items:
            raise InputError("nothing to learn: no parameter of the prior or the likelihood takes gradients")

    def get(self) -> Tensor:
        """(n,) float64: all raw numbers."""
        return _flat(self.raw)

    @torch.no_grad()
    def set(self, vector: Tensor) -> None:
        """Put (n,) raw numbers in place."""
        for parameter, part in zip(self.raw, self.split(vector), strict=True):
            parameter.copy_(part)

    def split(self, vector: Tensor) -> list[Tensor]:
        """The parts of (n,) numbers, each in its parameter's shape."""
        parts = vector.split([p.numel() for p in self.raw])
        return [part.reshape(p.shape) for part, p in zip(parts, self.raw, strict=True)]

    def constrained(self) -> dict[str, Tensor]:
        """Each parameter as the model sees it."""
        return {name: _transform(p.detach(), c).clone() for name, (p, c) in self.items.items()}

    def slopes(self) -> Tensor:
        """(n,) float64: derivative of each constrained number by its raw one."""
        slopes: list[Tensor] = []
        for parameter, constraint in self.items.values():
            raw = parameter.detach().double().requires_grad_(True)
            slopes += torch.autograd.grad(_transform(raw, constraint).sum(), raw)
        return _flat(slopes)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    """(n,) float64: all numbers, end to end."""
    return torch.cat([tensor.detach().double().reshape(-1).cpu() for tensor in tensors])


def _transform(raw: Tensor, constraint: Interval | None) -> Tensor:
    value: Tensor = raw + 0 if constraint is None else constraint.transform(raw)
    return value


class Objective:
    """A function of raw parameters, to be maximised; ``evaluate`` gives it, (), with a gradient, where they are."""

    def __init__(self, vector: ParameterVector, evaluate: Callable[[], Tensor]) -> None:
        self.vector, self.evaluate, self.evaluations, self.value = vector, evaluate, 0, math.nan
        self.history: list[float] = []

    def both(self, raw: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient (n,) at ``raw`` (n,)."""
        self.vector.set(raw)
        with torch.enable_grad():
            value = self.evaluate()
        parts = torch.autograd.grad(value, self.vector.raw, allow_unused=True, materialize_grads=True)
        self.evaluations, self.value = self.evaluations + 1, float(value.detach())
        return self.value, _flat(parts)

    def maximise(
        self,
        max_steps: int,
        goal: float,
        *,
        unit: float = 1.0,
        first_step: float | None = None,
        precision: float = 1e-15,
        searches: int = 40,
        label: str = "log marginal likelihood",
        progress: Progress,
    ) -> None:
        """L-BFGS from where the parameters are; it leaves them at the best point it found.

        It stops at the largest derivative ``goal``, or at the relative change ``precision`` of the objective. So that
        the first step is not too long, the objective is divided by ``unit``, or the search scaled to ``first_step``.
        """
        start = self.vector.get()
        origin, step = (torch.zeros_like(start), 1.0) if first_step is None else (start, first_step)

        def minus(u: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.both(origin + step * torch.from_numpy(np.array(u)))
            return -value / unit, -step * gradient.numpy() / unit

        with progress_bar(label, max_steps, unit="steps at most", progress=progress) as bar:

            def note(intermediate_result: Any) -> None:
                self.history.append(-float(intermediate_result.fun) * unit)
                bar.update(1, f"value {self.history[-1]:.3f}")

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
            "history": tuple(self.history),
            "converged": steepest <= tolerance,
            "gradient": steepest,
            "tolerance": tolerance,
            "evaluations": self.evaluations,
        }


def _standard_errors(objective: Objective) -> dict[str, Tensor]:
    """By name, from the observed information: minus the Hessian, by central differences of the gradient."""
    best, columns = objective.vector.get(), []
    try:
        for step in STEP * torch.eye(len(best), dtype=best.dtype):
            columns.append((objective.both(best - step)[1] - objective.both(best + step)[1]) / (2 * STEP))
    finally:
        objective.vector.set(best)
    matrix = torch.stack(columns, dim=1)
    parts = objective.vector.split(standard_errors((matrix + matrix.mT) / 2, objective.vector.slopes()))
    return dict(zip(objective.vector.items, parts, strict=True))


def standard_errors(information: Tensor, slopes: Tensor) -> Tensor:
    r"""(n,) standard errors of constrained parameters: the roots of the diagonal of :math:`J I^{-1} J`.

    I (n, n) is the ``information`` of raw parameters, J (n,) the slopes of constrained by raw ones. A parameter that
    the data do not determine has NaN, be it alone (a weight that went to 0) or in a combination (two output scales of
    which only the product counts); the others are then those with that parameter or combination fixed. All are NaN
    where the information has a negative direction: not a maximum.
    """
    errors = torch.full_like(slopes, torch.nan)
    free = (information.diagonal() > FLAT).nonzero().squeeze(1)
    scale = information.diagonal()[free].rsqrt()
    values, vectors = torch.linalg.eigh(scale.unsqueeze(1) * information[free][:, free] * scale)
    along = values / (scale.unsqueeze(1) * vectors).square().sum(0)  # information of a step of length 1
    flat = (values <= FLAT_DIRECTION) | (along <= FLAT)
    if not ((values < -FLAT_DIRECTION) & (along < -FLAT)).any():
        determined = vectors[:, flat].square().sum(1) < FLAT_DIRECTION
        variances = (vectors[:, ~flat].square() / values[~flat]).sum(1)
        errors[free[determined]] = (variances.sqrt() * scale * slopes[free].abs())[determined]
    return errors
