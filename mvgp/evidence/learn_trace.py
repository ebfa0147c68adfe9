r"""Learning hyperparameters of the trace-constrained GP: warm-started fits inside L-BFGS.

Maximised is :math:`\mathcal{L} - \mu \|B\|_*`, the bound of :mod:`~mvgp.evidence.trace_bound` less its penalty, over
B (the fit) and the hyperparameters; mu is held fixed, and with it the trade between the bound and the trace norm.
The Hilbert part of the penalty follows the noise, form (4).
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from scipy.optimize import minimize
from torch import Tensor
from tqdm import tqdm

from ..checks import check_flag, check_iterations, check_positive, check_tolerance, refuse_gradient, shown
from ..data import ObservedMatrix
from ..errors import InputError
from ..likelihoods import RankingLikelihood
from ..posteriors import TracePosterior
from ..posteriors.trace import trace_posterior, trace_problem
from ..priors import MatrixGP
from ..solvers import MeanSolution, SpectralElasticNet
from ..solvers.proximal import carried_over
from .parameters import ParameterVector
from .trace_bound import TraceBound, trace_bound


@dataclass(frozen=True)
class LearnedTrace:
    r"""The outcome of :func:`learn_trace`; the parameters themselves were changed in place.

    :param parameters: constrained value of each parameter, by name.
    :param posterior: the one at the end.
    :param bound: the evidence bound at the end.
    :param history: :math:`\mathcal{L} - \mu \|B\|_*` after each step.
    :param converged: whether ``gradient`` is within ``tolerance``.
    :param gradient: largest derivative by a raw parameter, divided by the root of T.
    :param tolerance: what was asked for.
    :param evaluations: how many fits there were.
    """

    parameters: dict[str, Tensor]
    posterior: TracePosterior
    bound: TraceBound
    history: list[float]
    converged: bool
    gradient: float
    tolerance: float
    evaluations: int


@dataclass
class TraceObjective:
    """The objective and its gradient in raw parameters; every call is a fit that starts from the one before.

    :param prior: in place.
    :param likelihood: in place.
    :param mu: multiplier of the trace norm.
    :param fit_tolerance: relative duality gap of the fits; the gradient is off by about its root.
    """

    prior: MatrixGP
    likelihood: Any
    data: ObservedMatrix
    mu: float
    vector: ParameterVector
    fit_tolerance: float
    max_iterations: int
    options: dict[str, Any]
    evaluations: int = 0
    posterior: TracePosterior | None = None
    bound: TraceBound | None = None
    history: list[float] = field(default_factory=list)

    def fit(self) -> TracePosterior:
        """The posterior at the parameters as they are."""
        noise = self.likelihood.noise.detach().to(self.prior.dtype).reshape(())
        given = trace_problem(
            self.prior, self.data, self.likelihood, noise, row_bias=None, col_bias=None, tolerance=1e-8
        )
        start = copy.copy(self.posterior)
        if start is not None:
            before = start.solution
            assert isinstance(before, MeanSolution)
            start.solution = carried_over(before, given.problem)
        penalty = SpectralElasticNet.from_noise(float(noise), self.mu)
        return trace_posterior(
            given,
            penalty,
            solver="proximal",
            tolerance=self.fit_tolerance,
            max_iterations=self.max_iterations,
            strict=False,
            start=start,
        )

    def both(self, raw: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient (n,) at ``raw`` (n,)."""
        self.vector.set(raw)
        for parameter in self.vector.raw:
            parameter.grad = None
        self.posterior = self.fit()
        with torch.enable_grad():
            self.bound = trace_bound(self.prior, self.likelihood, self.data, self.posterior, **self.options)
            self.bound.value.backward()
        self.evaluations += 1
        gradient = self.vector.gradient()
        for parameter in self.vector.raw:
            parameter.grad = None
        return float(self.bound.value.detach()) - self.mu * self.bound.trace_norm, gradient


def learn_trace(
    model: Any,
    data: ObservedMatrix,
    *,
    mu: float = 1.0,
    max_steps: int = 50,
    tolerance: float = 1e-3,
    fit_tolerance: float = 1e-7,
    max_iterations: int = 2000,
    progress: bool = False,
    **options: Any,
) -> LearnedTrace:
    r"""Maximise the evidence bound less :math:`\mu \|B\|_*` over all raw parameters that take gradients, in place.

    :param model: a recipe with ``prior`` and ``likelihood``, Gaussian or ranking, such as :class:`mvgp.TraceGP`; its
        own strength and penalty are not used.
    :param data: the observed pairs, or labels of them.
    :param mu: multiplier of the trace norm, form (4); 0 would be the plain marginal likelihood.
    :param tolerance: on the largest derivative by a raw parameter, divided by the root of the number of observations.
        Missing it warns.
    :param max_steps: of L-BFGS, each with a fit of the mean.
    :param fit_tolerance: relative duality gap of the fits on the way.
    :param max_iterations: of a fit.
    :param progress: show a progress bar.
    :param options: of :func:`~mvgp.evidence.marginal.pair_log_marginal`.
    """
    prior, likelihood = getattr(model, "prior", None), getattr(model, "likelihood", None)
    if not isinstance(prior, MatrixGP) or not isinstance(likelihood, GaussianLikelihood | RankingLikelihood):
        raise InputError(f"model: expected mvgp.TraceGP, or a recipe with a prior and a likelihood, got {shown(model)}")
    if not isinstance(data, ObservedMatrix):
        raise InputError(f"data: expected mvgp.ObservedMatrix, got {type(data).__name__}")
    refuse_gradient(data, "data")
    prior.refuse_gradients()
    mu = check_positive(mu, "mu (without a trace norm use learn)")
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    fit_tolerance = check_tolerance(fit_tolerance, "fit_tolerance")
    max_iterations, progress = check_iterations(max_iterations), check_flag(progress, "progress")
    if not isinstance(likelihood, RankingLikelihood):
        likelihood.to(prior.dtype)
    vector = ParameterVector({"": prior, "likelihood": likelihood})
    objective = TraceObjective(prior, likelihood, data, mu, vector, fit_tolerance, max_iterations, options)
    root = len(data) ** 0.5

    def minus(raw: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.both(torch.from_numpy(np.array(raw)))
        return -value / root, -gradient.numpy() / root

    with tqdm(total=max_steps, disable=not progress, desc="evidence bound", leave=False) as bar:

        def note(intermediate_result: Any) -> None:
            objective.history.append(-root * float(intermediate_result.fun))
            bar.update()

        found = minimize(
            minus,
            vector.get().numpy(),
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options={"maxiter": max_steps, "gtol": tolerance, "ftol": 1e-12, "maxls": 30},
        )
    _, gradient = objective.both(torch.from_numpy(np.asarray(found.x)))
    steepest = float(gradient.abs().max()) / root
    if steepest > tolerance:
        warnings.warn(
            f"the largest derivative is {steepest:.1e} after {objective.evaluations} fits, the tolerance is "
            f"{tolerance:.1e}; allow more steps, or tighten fit_tolerance",
            RuntimeWarning,
            stacklevel=2,
        )
    assert objective.posterior is not None
    assert objective.bound is not None
    return LearnedTrace(
        vector.constrained(),
        objective.posterior,
        objective.bound,
        objective.history,
        steepest <= tolerance,
        steepest,
        tolerance,
        objective.evaluations,
    )
