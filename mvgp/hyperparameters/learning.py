"""Learning hyperparameters: the maximum of the marginal likelihood by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..checks import check_flag, check_instance, check_iterations, check_tolerance, check_whole_number, refuse_gradient
from ..data.observed import ObservedMatrix
from ..errors import InputError, SizeError
from ..priors.matrix_gp import MatrixGP
from .marginal import LogMarginal, MarginalMethod, MatrixMarginalLogLikelihood
from .parameters import LearningResult, Objective, ParameterVector, observed_information, standard_errors
from .probes import PROBES

FIRST, AGAIN = 1.0, 0.02  # length of the first step in raw parameters
TURNS = 5  # of L-BFGS, at most, each with a new preconditioner


def learn(
    model: Any,
    likelihood: GaussianLikelihood,
    data: ObservedMatrix,
    *,
    max_steps: int = 200,
    tolerance: float = 1e-4,
    errors: bool = True,
    max_errors: int = 200,
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
    :param max_errors: parameters up to which they are computed.
    :param progress: show a progress bar.
    :param method: of the value, as in :func:`~mvgp.hyperparameters.log_marginal`.
    :param probes: how many random vectors estimate the log determinant.
    :param seed: of the probes.
    :param options: further ones of :class:`MatrixMarginalLogLikelihood`.
    """
    prior = getattr(model, "prior", model)
    if not isinstance(prior, MatrixGP):
        raise InputError(f"model: expected mvgp.MatrixGP or a recipe with one, got {type(model).__name__}")
    check_instance(data, "data", ObservedMatrix, "mvgp.ObservedMatrix")
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    refuse_gradient(data, "data")
    prior.refuse_gradients()
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    errors, progress = check_flag(errors, "errors"), check_flag(progress, "progress")
    max_errors = check_whole_number(max_errors, "max_errors", 0)
    mll = MatrixMarginalLogLikelihood(likelihood, prior, method=method, probes=probes, seed=seed, **options)
    likelihood.to(prior.dtype)
    vector = ParameterVector({"": prior, "likelihood": likelihood})
    if errors and len(vector.get()) > max_errors:
        raise SizeError(
            f"errors: standard errors are offered for up to {max_errors} parameters, "
            f"there are {len(vector.get())}; pass errors=False"
        )
    objective = _MarginalObjective(mll, data, vector)
    goal = tolerance * len(data) ** 0.5
    for turn in range(TURNS):
        objective.maximise(
            max_steps=max_steps,
            goal=goal,
            unit=1.0,
            first_step=FIRST if turn == 0 else AGAIN,
            label="log marginal likelihood",
            progress=progress,
        )
        fields = objective.result_fields(tolerance, len(data))
        if mll.last.method != "probes" or (turn > 0 and fields["converged"]):
            break
        mll.refresh()
    last = mll.last
    bars = _standard_errors(objective) if errors else {}
    result = Learned(**fields | {"evaluations": objective.evaluations}, standard_errors=bars, log_marginal=last)
    result.warn_unless_converged("allow more steps, or begin elsewhere")
    return result


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
                bar = "" if error is None else f" +- {error.reshape(-1)[at]:.3g}"
                lines.append(f"  {name} {value.reshape(-1)[at]:.6g}{bar}")
        return "\n".join(lines)


class _MarginalObjective(Objective):
    """The log marginal likelihood plus log densities of priors on parameters."""

    def __init__(self, mll: MatrixMarginalLogLikelihood, data: ObservedMatrix, vector: ParameterVector) -> None:
        super().__init__(vector)
        self.mll, self.data = mll, data

    def evaluate(self) -> tuple[Tensor, float]:
        """See :class:`Objective`."""
        prior, data = self.mll.model, self.data
        value = self.mll(prior(data.rows, data.cols), data.values, weights=data.weights) * len(data)
        return value, float(value.detach())


def _standard_errors(objective: Objective) -> dict[str, Tensor]:
    """By name, at the parameters as they are."""
    best = objective.vector.get()
    try:
        information = observed_information(lambda raw: objective.both(raw)[1], best)
    finally:
        objective.vector.set(best)
    parts = objective.vector.split(standard_errors(information, objective.vector.slopes()))
    return dict(zip(objective.vector.items, parts, strict=True))
