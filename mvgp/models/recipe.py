"""What every recipe prior x likelihood shares: its likelihoods, the noise of an observation, what a fit will take."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, _GaussianLikelihoodBase
from torch import Tensor

from ..checks import check_instance, refuse_gradient, shown
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..hooks import Described
from ..likelihoods.axis_noise import AxisNoiseGaussianLikelihood, check_gaussian
from ..likelihoods.losses import Data, is_pointwise
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.cost import DEFAULT_LIMITS, Estimate, Limits
from ..linalg.pairs import PairIndex
from ..linalg.spectra import Operators, Terms, as_terms
from ..mean.low_rank import LowRank, MeanSolution
from ..mean.problem import Certificate, MeanProblem, Penalty, SpectralElasticNet, times
from ..mean.ridge import RidgeSolution, kernel_product
from ..posteriors.covariance import ConditionalCovariance, PosteriorCovariance, WholeListCovariance
from ..posteriors.explain import Duals
from ..posteriors.gaussian import GaussianPosterior, TracePosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.updates import Fantasies, moved_coefficients, updated_covariance
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..tensor_checks import refuse_where
from .estimates import FitSize


class Recipe(Described, gpytorch.Module):
    """A prior and a likelihood, checked.

    :param prior: the matrix-variate prior.
    :param likelihood: gpytorch's ``GaussianLikelihood``, or a ranking likelihood of ours; its noise is the variance of
        an observation (or of a score) with weight 1. ``FixedNoiseGaussianLikelihood`` counts as noise 1 and weights
        1 / noise. A likelihood of one's own has a method ``data_loss``, and noise 1 unless it says otherwise.
    """

    takes_pointwise = False  # whether likelihoods of single observations are taken, too

    def __init__(self, prior: MatrixGP | SumGP, likelihood: Any) -> None:
        super().__init__()
        check_instance(prior, "prior", (MatrixGP, SumGP), "mvgp.MatrixGP")
        known = isinstance(likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood | RankingLikelihood)
        known |= callable(getattr(likelihood, "data_loss", None)) and not isinstance(likelihood, type)
        if not known and not (self.takes_pointwise and is_pointwise(likelihood)):
            pointwise = ", a pointwise likelihood such as BernoulliLikelihood" if self.takes_pointwise else ""
            raise InputError(
                f"likelihood: {type(self).__name__} takes gpytorch's GaussianLikelihood, a ranking "
                f"likelihood{pointwise}, or one with a method data_loss, got {shown(likelihood)} (for known noise of "
                "each entry, give the data weights)"
            )
        if isinstance(likelihood, GaussianLikelihood):
            check_gaussian(likelihood, type(self).__name__, axis_noise=True)
        self.prior, self.likelihood = prior, likelihood

    def __repr__(self) -> str:
        size = f"{self.prior.shape[0]} x {self.prior.shape[1]}"
        return f"{type(self).__name__}({size}, {type(self.likelihood).__name__})"

    def forward(self, rows: Any, cols: Any) -> MultivariateNormal:
        """The prior at pairs (``rows``, ``cols``)."""
        return self.prior(rows, cols)

    def _fantasies(self, posterior: Any, rows: Any, cols: Any, values: Any, weights: Any) -> Fantasies:
        raise InputError(
            f"fantasise: FullGP with a GaussianLikelihood on an ObservedMatrix has it, whose means are linear in the "
            f"values, got a posterior of {type(self).__name__} with {type(self.likelihood).__name__} on "
            f"{type(posterior._fit.data).__name__}; use condition for one vector of values at a time"
        )

    def estimate(self, data: Any) -> Estimate:
        """What :meth:`fit` of ``data`` will take on this machine: ``seconds``, ``bytes`` and the ``method``.

        It counts operations, and times a few products for less than 0.1 s; nothing is fitted. Ranks and iterations
        follow from the data, so the time may be wrong by a factor of three.
        """
        self._noise_for(data)
        return self._expected(FitSize(self.prior, data), data)

    def _expected(self, size: FitSize, data: Any) -> Estimate:
        raise NotImplementedError

    def _noise_for(self, data: Any) -> Tensor:
        """() noise variance of an observation with weight 1, once ``data`` is known to be data."""
        check_instance(data, "data", (ObservedMatrix, PositiveUnlabelled), "mvgp.ObservedMatrix")
        refuse_gradient(data, "data")
        self.prior.refuse_gradients()
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood) or not hasattr(self.likelihood, "noise"):
            return torch.ones_like(self.prior.mean_module.zero)
        noise = torch.as_tensor(self.likelihood.noise).detach().to(self.prior.dtype).reshape(-1)
        if noise.numel() != 1:
            raise InputError(f"likelihood: expected one noise variance, got {noise.numel()}")
        if not 0 < float(noise) < float("inf"):
            raise InputError(
                f"likelihood: expected a positive finite noise variance in {noise.dtype}, got {float(noise)!r}"
            )
        return noise[0]

    def _weighted(self, data: Any) -> Any:
        """The data; noise of each entry, or of each row and column, is in their weights."""
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            return fixed_noise(self.likelihood, data)
        return self.likelihood.weighted(data) if isinstance(self.likelihood, AxisNoiseGaussianLikelihood) else data

    def _tell_noise(self, posterior: Any, noise: float) -> None:
        """Tell a posterior its noise, and under Gaussian noise the likelihood as it is now."""
        posterior._noise = None if isinstance(self.likelihood, AxisNoiseGaussianLikelihood) else noise
        is_gaussian = isinstance(self.likelihood, _GaussianLikelihoodBase)
        posterior.likelihood = constant_copy(self.likelihood, self.prior) if is_gaussian else None


def fixed_noise(likelihood: FixedNoiseGaussianLikelihood, data: Any) -> ObservedMatrix:
    """Noise variances as weights: noise 1, each weight divided by the noise of its entry.

    The noise has one number for each entry of the data, in their order (row by row), or for each cell of the matrix.
    """
    if type(likelihood) is not FixedNoiseGaussianLikelihood:
        raise InputError(
            f"likelihood: {type(likelihood).__name__} may have another noise than the one it was given; use "
            "FixedNoiseGaussianLikelihood itself, or give the data weights"
        )
    if not isinstance(data, ObservedMatrix):
        raise InputError("data: FixedNoiseGaussianLikelihood takes an ObservedMatrix")
    noise = likelihood.noise.detach().to(data.values)
    if noise.dim() == 2 and tuple(noise.shape) == data.shape:
        noise = noise[data.rows, data.cols]
    elif noise.dim() != 1 or len(noise) not in (1, len(data)):
        raise InputError(
            f"likelihood: expected a noise variance for each of the {len(data)} entries, in the order of the data, or "
            f"for each cell {data.shape}, got shape {tuple(noise.shape)}"
        )
    elif getattr(data, "_reordered", False) and bool((noise != noise[:1]).any()):
        raise InputError(
            "likelihood: the noise of each entry goes by the order of the data, row by row, and the entries were given "
            "in another order; sort them first, give the noise of every cell (M, N), or give the data weights"
        )
    refuse_where(~((noise > 0) & torch.isfinite(noise)), noise, "likelihood.noise", "a positive finite variance")
    weights = 1 / noise.expand(len(data))
    if data.weights is not None:
        weights = weights * data.weights
    return ObservedMatrix(data.rows, data.cols, data.values, data.shape, weights=weights)


def constant_copy(likelihood: Any, prior: MatrixGP | SumGP) -> Any:
    """The likelihood as it is now, in the precision of the prior."""
    return copy.deepcopy(likelihood).to(prior.dtype).requires_grad_(False).eval()


def remembered(model: Any, prior: MatrixGP | SumGP) -> Any:
    """A copy of a model as it is now around ``prior``, a snapshot of its own: what a posterior goes on with."""
    memo: dict[int, Any] = {id(model.prior): prior}
    parts = getattr(model, "likelihood", None)
    for values in (*parts.parameters(), *parts.buffers()) if isinstance(parts, torch.nn.Module) else ():
        if not values.is_leaf:  # torch copies no others
            memo[id(values)] = values.detach().clone()
    return copy.deepcopy(model, memo)


def moved_solution(posterior: GaussianPosterior, problem: MeanProblem) -> MeanSolution | RidgeSolution | None:
    """The mean of a posterior given other data under the same prior, as a start for the solver of ``problem``."""
    if isinstance(posterior.coefficients, SparseCoefficients):
        before = posterior.coefficients
        alpha = moved_coefficients(before.pattern, before.values, problem.pattern)
        certificate = Certificate(0.0, 0.0, 1.0, 0, 0, "start")
        return RidgeSolution(alpha, kernel_product([problem])(alpha), certificate)
    solution = posterior.solution if isinstance(posterior, TracePosterior) else None
    if not isinstance(solution, MeanSolution) or solution.mean.rank == 0:
        return None
    psi = solution.mean.psi(problem)
    return replace(solution, psi=psi, loss=problem.loss(psi))


def known_links(data: Data) -> Tensor | None:
    """(P,): which of the cells of whole lists are links; None for observed pairs, all of which are known."""
    return data.positions if isinstance(data, PositiveUnlabelled) else None


def low_rank_duals(
    problem: MeanProblem, mean: LowRank, values: Tensor, penalty: Penalty, known: Tensor | None
) -> Duals:
    """What the observed pairs carry of a mean of low rank, equation (14).

    :param values: (T,) minus the gradient of the loss at the mean.
    """
    if isinstance(penalty, SpectralElasticNet):
        slopes = penalty.trace + penalty.ridge * mean.values
    else:  # the ball's multiplier takes the place of l1: the gradient's singular values along the mean are equal to it
        theta, _ = problem.sparse(values)
        slopes = (mean.left_image * times(theta, mean.right_image)).sum(0).mean().expand(mean.rank)
    factors = mean.left * mean.values, mean.right, mean.left_image * mean.values, mean.right_image
    gains = torch.where(mean.values > 0, 1 / (mean.values * slopes), 0.0)
    return Duals(problem.pattern, values, known, factors, gains)


def check_start(start: TracePosterior | None, name: str) -> None:
    """Refuse what a solver cannot start from."""
    if start is None:
        return
    check_instance(start, name, TracePosterior, "mvgp.posteriors.TracePosterior")
    if start.solution is None:
        raise InputError(
            f"{name}: expected a posterior that was fitted in this process, got one from a file, which does not hold "
            f"the state of the solver; fit without {name}"
        )


def kernel_operators(prior: MatrixGP, data: ObservedMatrix | PositiveUnlabelled) -> Operators:
    """(K_M, K_N) of a prior of one term that fits the data."""
    if isinstance(prior, SumGP):
        raise InputError("prior: expected a prior of one term, got a sum of terms, which this model does not take")
    return prior_terms(prior, data)[0]


def prior_terms(prior: MatrixGP | SumGP, data: ObservedMatrix | PositiveUnlabelled) -> Terms:
    """(K_M, K_N) of each term of a prior that fits the data."""
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    return tuple((term.row_axis.covariance().detach(), term.col_axis.covariance().detach()) for term in prior.terms)


def condition(
    ops: Operators | Terms,
    data: ObservedMatrix | PositiveUnlabelled,
    noise: Tensor,
    *,
    tolerance: float,
    before: GaussianPosterior | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> PosteriorCovariance:
    """The covariance given data; what costs time is done when somebody asks.

    :param noise: () noise variance of an observation with weight 1; on whole lists every cell of a row is one.
    :param before: a posterior given other data under the same prior, whose solver serves again where it can.
    :param options: of :class:`ConditionalCovariance`.
    """
    device, dtype = as_terms(ops)[0][0].device, as_terms(ops)[0][0].dtype
    if isinstance(data, ObservedMatrix):
        rows, cols = data.rows.to(device), data.cols.to(device)
        each = noise if data.weights is None else noise / data.weights.to(dtype=dtype, device=device)
    elif data.num_cells > limits.listed_cells:
        return WholeListCovariance(ops, data, noise, tolerance=tolerance, limits=limits)
    else:
        pattern = data.pattern.to(device)
        rows, cols, each = pattern.rows, pattern.cols, noise
        if data.weight != 1:
            weights = torch.full((data.num_cells,), data.weight, dtype=dtype, device=device)
            weights[data.positions.to(device)] = 1.0
            each = noise / weights
    pairs = PairIndex(rows, cols, data.shape)
    conditional = ConditionalCovariance(ops, pairs, each, tolerance=tolerance, limits=limits, **options)
    return conditional if before is None else updated_covariance(before.conditional, conditional)
