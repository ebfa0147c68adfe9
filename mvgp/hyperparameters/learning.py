"""Learning hyperparameters: the maximum of the marginal likelihood by L-BFGS."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from scipy.optimize import minimize
from torch import Tensor
from tqdm import tqdm

from ..checks import check_flag, check_iterations, check_tolerance, refuse_gradient
from ..data.observed import ObservedMatrix
from ..errors import InputError, SizeError
from ..priors.matrix_gp import MatrixGP
from .marginal import LogMarginal, MarginalMethod, MatrixMarginalLogLikelihood
from .parameters import ParameterVector, observed_information, standard_errors
from .probes import PROBES

FIRST, AGAIN = 1.0, 0.02  # length of the first step in raw parameters
TURNS = 5  # of L-BFGS, at most, each with a new preconditioner
MOST_INFORMATION = 200  # parameters up to which standard errors are computed


@dataclass(frozen=True)
class Learned:
    """The outcome of :func:`learn`; the parameters themselves were changed in place.

    :param parameters: constrained value of each parameter, by name.
    :param standard_errors: the same for its standard error; NaN where the data do not determine it. Empty if they
        were not asked for.
    :param log_marginal: at the end, with its own error bar.
    :param history: objective after each step: log marginal likelihood plus log densities of priors on parameters.
    :param converged: whether ``gradient`` is within ``tolerance``.
    :param gradient: largest derivative of the objective by a raw parameter, divided by the root of T.
    :param tolerance: what was asked for.
    :param evaluations: how often value and gradient were computed.
    """

    parameters: dict[str, Tensor]
    standard_errors: dict[str, Tensor]
    log_marginal: LogMarginal
    history: list[float]
    converged: bool
    gradient: float
    tolerance: float
    evaluations: int

    def __str__(self) -> str:
        lines = [f"log marginal likelihood {float(self.log_marginal.value):.4f}, converged: {self.converged}"]
        for name, value in self.parameters.items():
            error = self.standard_errors.get(name)
            for place in range(min(value.numel(), 5)):
                bar = "" if error is None else f" +- {error.reshape(-1)[place]:.3g}"
                lines.append(f"  {name} {value.reshape(-1)[place]:.6g}{bar}")
        return "\n".join(lines)


@dataclass
class _Objective:
    """The objective and its gradient in raw parameters."""

    mll: MatrixMarginalLogLikelihood
    data: ObservedMatrix
    vector: ParameterVector
    evaluations: int = 0
    history: list[float] = field(default_factory=list)

    def both(self, raw: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient (n,) at ``raw`` (n,)."""
        self.vector.set(raw)
        for parameter in self.vector.raw:
            parameter.grad = None
        prior, data = self.mll.model, self.data
        value = self.mll(prior(data.rows, data.cols), data.values, weights=data.weights) * len(data)
        value.backward()
        self.evaluations += 1
        gradient = self.vector.gradient()
        for parameter in self.vector.raw:
            parameter.grad = None
        return float(value.detach()), gradient


def learn(
    model: Any,
    likelihood: GaussianLikelihood,
    data: ObservedMatrix,
    *,
    max_steps: int = 200,
    tolerance: float = 1e-4,
    errors: bool = True,
    progress: bool = False,
    method: MarginalMethod = "auto",
    probes: int = PROBES,
    seed: int = 0,
    **options: Any,
) -> Learned:
    r"""Maximise the log marginal likelihood over all raw parameters that take gradients, in place.

    With probes L-BFGS runs at least twice: with the preconditioner of the starting point, and again from where it ended
    with the preconditioner of that point. P probes move the optimum by at most about :math:`1 / \sqrt{P}` of a
    standard error.

    :param model: a :class:`mvgp.MatrixGP`, or a recipe that has one as ``prior``.
    :param likelihood: gpytorch's ``GaussianLikelihood``; it is brought to the prior's precision.
    :param data: the observed pairs.
    :param max_steps: of L-BFGS.
    :param tolerance: on the largest derivative by a raw parameter, divided by the root of the number of observations;
        about the distance to the optimum in standard errors. Missing it warns.
    :param errors: whether to compute standard errors, two gradients for each parameter.
    :param progress: show a progress bar.
    :param method: of the value, as in :func:`~mvgp.hyperparameters.log_marginal`.
    :param probes: how many random vectors estimate the log determinant.
    :param seed: of the probes.
    :param options: further ones of :class:`MatrixMarginalLogLikelihood`.
    """
    prior = getattr(model, "prior", model)
    if not isinstance(prior, MatrixGP):
        raise InputError(f"model: expected mvgp.MatrixGP or a recipe with one, got {type(model).__name__}")
    if not isinstance(data, ObservedMatrix):
        raise InputError(f"data: expected mvgp.ObservedMatrix, got {type(data).__name__}")
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    refuse_gradient(data, "data")
    prior.refuse_gradients()
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    errors, progress = check_flag(errors, "errors"), check_flag(progress, "progress")
    mll = MatrixMarginalLogLikelihood(likelihood, prior, method=method, probes=probes, seed=seed, **options)
    likelihood.to(prior.dtype)
    vector = ParameterVector({"": prior, "likelihood": likelihood})
    if errors and len(vector.get()) > MOST_INFORMATION:
        raise SizeError(
            f"errors: standard errors are offered for up to {MOST_INFORMATION} parameters, "
            f"there are {len(vector.get())}; pass errors=False"
        )
    objective = _Objective(mll, data, vector)
    goal = tolerance * len(data) ** 0.5
    for turn in range(TURNS):
        _climb(objective, max_steps, goal, progress, FIRST if turn == 0 else AGAIN)
        best = vector.get()
        steepest = float(objective.both(best)[1].abs().max())
        if mll.last.method != "probes" or (turn > 0 and steepest <= goal):
            break
        mll.refresh()
    last = mll.last
    found: dict[str, Tensor] = {}
    if errors:
        found = _standard_errors(objective, best)
    result = Learned(
        vector.constrained(),
        found,
        last,
        objective.history,
        steepest <= goal,
        steepest / len(data) ** 0.5,
        tolerance,
        objective.evaluations,
    )
    if not result.converged:
        warnings.warn(
            f"learning ended with gradient {result.gradient:.2e} after {len(result.history)} steps, the tolerance is "
            f"{tolerance:.2e}; allow more steps, or begin elsewhere",
            RuntimeWarning,
            stacklevel=2,
        )
    return result


def _climb(objective: _Objective, max_steps: int, goal: float, progress: bool, first: float) -> None:
    """L-BFGS from where the parameters are; it leaves them at the best point it found.

    :param first: length of the first step in raw parameters; L-BFGS-B begins with a step of length 1 in its own.
    """
    start = objective.vector.get()

    def minus(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.both(start + first * torch.from_numpy(np.array(u)))
        return -value, -first * gradient.numpy()

    with tqdm(total=max_steps, disable=not progress, desc="log marginal likelihood", leave=False) as bar:

        def note(intermediate_result: Any) -> None:
            objective.history.append(-float(intermediate_result.fun))
            bar.update()
            bar.set_postfix(value=f"{objective.history[-1]:.3f}")

        found = minimize(
            minus,
            np.zeros(len(start)),
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options={"maxiter": max_steps, "gtol": first * goal, "ftol": 1e-15, "maxls": 40},
        )
    objective.vector.set(start + first * torch.from_numpy(np.asarray(found.x)))


def _standard_errors(objective: _Objective, best: Tensor) -> dict[str, Tensor]:
    """By name; the parameters are put back to ``best`` (n,)."""
    try:
        information = observed_information(lambda raw: objective.both(raw)[1], best)
    finally:
        objective.vector.set(best)
    parts = objective.vector.split(standard_errors(information, objective.vector.slopes()))
    return dict(zip(objective.vector.items, parts, strict=True))
