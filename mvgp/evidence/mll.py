"""MatrixMarginalLogLikelihood: the objective of gpytorch's training loop for a matrix-variate prior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from ..checks import check_choice, check_seed, check_values, check_weights
from ..errors import ConvergenceError, InputError
from ..likelihoods.overrides import check_gaussian
from ..linalg import PairLinearOperator
from ..priors import MatrixGP
from .marginal import METHODS, LogMarginal, MarginalMethod, check_limits, choose_method, noise_of, pair_log_marginal
from .reference import PROBES, Reference, check_probes

SLACK = 2.0  # a reference is kept until this many times the iterations are needed that it needed at first
GRACE = 10


class MatrixMarginalLogLikelihood(MarginalLogLikelihood):
    r"""(log p(r) + log densities of gpytorch priors on parameters) / T, as gpytorch's ``ExactMarginalLogLikelihood``.

    Up to 3,000 observed pairs, and on complete grids with equal noise, it is exact. Beyond that the log determinant is
    estimated; ``last`` has the error bar. The probes and the preconditioner they are drawn from stay the same from
    call to call, so that value and gradient belong to one smooth function and L-BFGS works; they are made anew when
    conjugate gradients slow down because the parameters have moved far, or by :meth:`refresh`.

    :param likelihood: gpytorch's ``GaussianLikelihood``.
    :param prior: the matrix-variate prior.
    :param method: see :func:`~mvgp.evidence.log_marginal`.
    :param tolerance: relative residual of the linear system.
    :param probe_tolerance: relative residual of the probes.
    :param max_iterations: of conjugate gradients.
    :param probes: how many random vectors estimate the log determinant.
    :param seed: of the probes.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.evidence import MatrixMarginalLogLikelihood
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.linspace(0, 1, 5))
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> mll = MatrixMarginalLogLikelihood(likelihood, prior)
        >>> loss = -mll(prior([0, 1, 2], [0, 3, 4]), torch.tensor([1.0, 0.5, -0.3]))
        >>> loss.backward()
        >>> mll.last.method
        'cholesky'

    """

    def __init__(
        self,
        likelihood: GaussianLikelihood,
        prior: MatrixGP,
        *,
        method: MarginalMethod = "auto",
        tolerance: float | None = None,
        probe_tolerance: float | None = None,
        max_iterations: int = 1000,
        probes: int = PROBES,
        seed: int = 0,
    ) -> None:
        if not isinstance(prior, MatrixGP):
            raise InputError(f"prior: expected mvgp.MatrixGP, got {type(prior).__name__}")
        check_gaussian(likelihood, "the marginal likelihood")
        super().__init__(likelihood, prior)
        self.method: MarginalMethod = check_choice(method, "method", METHODS)
        self.tolerance, self.probe_tolerance, self.max_iterations = check_limits(
            tolerance, probe_tolerance, max_iterations
        )
        self.probes, self.seed = check_probes(probes), check_seed(seed)
        self._reference: Reference | None = None
        self._limit = self.max_iterations
        self._last: LogMarginal | None = None

    @property
    def last(self) -> LogMarginal:
        """The log marginal likelihood of the last call: not divided by T, no priors on parameters, no gradient."""
        if self._last is None:
            raise InputError("mll.last: nothing has been computed yet; call mll(prior(rows, cols), values) first")
        return self._last

    def refresh(self) -> None:
        """Let the next call make a new preconditioner, of the parameters as they are then."""
        self._reference = None

    def forward(self, function_dist: MultivariateNormal, target: Any, weights: Any = None, **_: Any) -> Tensor:
        """(): for ``prior(rows, cols)`` and the values (T,) observed there.

        :param weights: (T,) positive; an entry has noise variance noise / weight.
        """
        if not isinstance(function_dist, MultivariateNormal) or not isinstance(
            function_dist.lazy_covariance_matrix, PairLinearOperator
        ):
            raise InputError(f"function_dist: expected prior(rows, cols), got {type(function_dist).__name__}")
        mean, covariance = function_dist.loc, function_dist.lazy_covariance_matrix
        count = len(mean)
        values = check_values(target, count, "target", keep_gradient=True).to(mean)
        given = None if weights is None else check_weights(weights, count, mean.dtype, keep_gradient=True).to(mean)
        noise = noise_of(self.likelihood, mean, given)
        found = self._evaluate(covariance, values - mean, noise)
        self._last = replace(found, value=found.value.detach())  # it would keep the graph alive
        return (found.value + self.log_parameter_prior()) / count

    def log_parameter_prior(self) -> Tensor:
        """(): the log densities of the gpytorch priors that are registered on parameters."""
        total, seen = self.model.mean_module.zero, set()
        for part in (self.model, self.likelihood):
            for _, module, prior, closure, _ in part.named_priors():
                if (id(module), id(prior)) not in seen:  # a kernel may serve both axes
                    seen.add((id(module), id(prior)))
                    total = total + prior.log_prob(closure(module)).sum()
        return total

    def _evaluate(self, covariance: PairLinearOperator, residual: Tensor, noise: Tensor) -> LogMarginal:
        chosen = choose_method(covariance, noise, self.method)
        if chosen != "probes":
            return pair_log_marginal(covariance, residual, noise, method=chosen, tolerance=self.tolerance)
        if self._reference is not None and self._reference.fits(covariance.left):
            try:
                return self._probe(covariance, residual, noise, self._reference, self._limit)
            except ConvergenceError:
                pass  # the parameters have moved too far for this preconditioner
        each = noise.expand(len(residual))
        self._reference = Reference.build(covariance, each, probes=self.probes, seed=self.seed)
        found = self._probe(covariance, residual, noise, self._reference, self.max_iterations)
        used = max(e.iterations for e in (found.evidence, found.probe_evidence) if e is not None)
        self._limit = min(self.max_iterations, int(SLACK * used) + GRACE)
        return found

    def _probe(
        self, covariance: PairLinearOperator, residual: Tensor, noise: Tensor, reference: Reference, limit: int
    ) -> LogMarginal:
        return pair_log_marginal(
            covariance,
            residual,
            noise,
            method="probes",
            reference=reference,
            tolerance=self.tolerance,
            probe_tolerance=self.probe_tolerance,
            max_iterations=limit,
        )
