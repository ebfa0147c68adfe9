"""FactorGP: the factor Gaussian process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_iterations, check_seed, check_whole_number
from ..data.observed import ObservedMatrix
from ..errors import InputError, SizeError
from ..likelihoods.losses import Data, Loss, data_loss, is_pointwise, observed_parts
from ..likelihoods.pointwise import PointwiseLoss, density_of
from ..linalg.cost import DEFAULT_LIMITS, Estimate, Work
from ..linalg.spectra import as_terms
from ..linalg.sums import pair_covariance
from ..mean.factored import FactoredProblem, svd_of_product
from ..mean.problem import MeanProblem, SpectralElasticNet
from ..posteriors.covariance import NoCovariance, PosteriorCovariance, WholeListCovariance
from ..posteriors.factor import FactorPosterior, LaplaceCovariance
from ..posteriors.query import LowRankCoefficients
from ..posteriors.updates import Fit
from ..priors.matrix_gp import MatrixGP
from ..progress import Progress, progress_bar
from .estimates import FitSize
from .pointwise import MAX_ROUNDS, spelled_out
from .recipe import Recipe, condition, constant_copy, kernel_operators, known_links, low_rank_duals, remembered

TOO_LONG = (
    f"the Laplace covariance of a factor GP is conditioned on up to {DEFAULT_LIMITS.listed_cells:,} cells of whole "
    "lists; its mean is available at any size, for variances use FullGP or TraceGP"
)
NOTHING = (
    "the covariance of a factor GP is linearised at its mean, which is 0 without observations, and says nothing there; "
    "for variances use FullGP or TraceGP"
)
EVALUATION = 2.5  # times the products of one evaluation that it takes, with the bookkeeping of L-BFGS


class FactorGP(Recipe):
    r"""Row factors and column factors with GP priors: :math:`\psi = U V^T`, equation (7), of user-chosen rank.

    Not convex: several restarts, best kept. The mean is a maximum a posteriori; variances are a Laplace
    approximation and for small problems only.

    :param prior: the matrix-variate prior whose kernels are those of the factors.
    :param likelihood: gpytorch's ``GaussianLikelihood``, or a ranking likelihood, or a smooth pointwise one (Bernoulli,
        Poisson, ...): then the loss is the negative log-likelihood and 1 stands for the noise in equation (7).
    :param rank: number of factors.
    :param restarts: random starts.
    :param max_iterations: of L-BFGS, for each start.
    :param seed: of the starts.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2, 1], [1, 4, 4], [0.5, -1.0, 2.0], shape=(3, 5))
        >>> posterior = mvgp.FactorGP(prior, gpytorch.likelihoods.GaussianLikelihood(), rank=2).fit(data)
        >>> posterior.mean([0, 1], [1, 4]).shape
        torch.Size([2])

    """

    takes_pointwise = True

    def __init__(
        self,
        prior: MatrixGP,
        likelihood: Any,
        rank: int,
        *,
        restarts: int = 3,
        max_iterations: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__(prior, likelihood)
        self.rank, self.restarts = check_whole_number(rank, "rank"), check_whole_number(restarts, "restarts")
        self.max_iterations, self.seed = check_iterations(max_iterations), check_seed(seed)

    def fit(self, data: Data, *, progress: Progress = "auto") -> FactorPosterior:
        """The best of several maxima a posteriori.

        :param progress: True, False or "auto", see :mod:`mvgp.progress`.
        """
        with progress_bar("fit", progress=progress):
            posterior = self._maximise(self._weighted(data), self._noise_for(data), None)
        posterior._fit = Fit(data, remembered(self, posterior.prior))
        return posterior

    def _expected(self, size: FitSize, data: Any) -> Estimate:
        """Evaluations of the objective by L-BFGS; see :meth:`Recipe.estimate`."""
        evaluations = EVALUATION * self.max_iterations * self.restarts  # as a rule it goes to its limit
        width = float(self.rank)
        work = evaluations * (size.factor_products(width) + Work(move=40.0 * sum(size.active) * width))
        return size.estimate("FactorGP", "l-bfgs", work, 40.0 * sum(size.prior.shape) * width + 8.0 * size.count)

    def _update(self, posterior: FactorPosterior, data: Data) -> FactorPosterior:
        """The maximum next to the old one, which is the only start; from scratch if the old mean is 0."""
        updated = self._maximise(self._weighted(data), self._noise_for(data), posterior)
        updated._fit = Fit(data, self)
        return updated

    @torch.no_grad()
    def _maximise(self, data: Data, noise: Tensor, before: FactorPosterior | None) -> FactorPosterior:
        r"""Equation (7) times noise / 2.

        :math:`\tfrac12 \sum w (r - u \cdot v)^2 + \tfrac{\sigma^2}{2} (\|X\|^2 + \|Z\|^2)` in whitened factors. At
        sufficient rank its global optimum is that of the trace norm with lam = noise and alpha = 1.
        """
        prior = self.prior.snapshot() if before is None else before.prior
        ops = kernel_operators(prior, data) if before is None else before._ops
        pointwise, known = is_pointwise(self.likelihood), known_links(data)
        if pointwise:
            data, noise = spelled_out(data), torch.ones_like(noise)
        conditional = condition(ops, data, noise, tolerance=1e-8)
        loss = self._loss(data, prior)
        factored = FactoredProblem(MeanProblem(*ops, data.pattern.to(noise.device), loss))
        size = 1.0  # of the targets: links are 1 on whole lists
        if isinstance(data, ObservedMatrix) and len(data) and not pointwise:
            rows, cols, values, _ = observed_parts(data, prior.mean_module)
            size = float((values - prior.mean_module(rows, cols)).square().mean().sqrt().clamp_min(1e-6))
        scale = (size / self.rank**0.5) ** 0.5 / max(factored.sizes) ** 0.25
        generator = torch.Generator().manual_seed(self.seed)
        starts = [factored.random(self.rank, scale, generator) for _ in range(self.restarts)]
        if before is not None and before.rank:
            starts = [_next_to(before, factored, starts[0])]
        solutions: list[tuple[float, Tensor, Tensor]] = []
        if len(data.pattern) == 0:  # then 0 is best
            solutions, starts = [(0.0, starts[0][0][:, :0], starts[0][1][:, :0])], []
        for start in starts:
            x, z, value, _ = factored.minimise(*start, float(noise), 0.0, max_iterations=self.max_iterations)
            for _ in range(MAX_ROUNDS):
                psi = factored.psi(x, z)
                if not isinstance(loss, PointwiseLoss) or loss.inside(psi):
                    break
                loss = self._loss(data, prior, psi)  # somewhere there tangents stood for it
                factored = factored.with_loss(loss)
                x, z, value, _ = factored.minimise(x, z, float(noise), 0.0, max_iterations=self.max_iterations)
            solutions.append((value, x, z))
        solutions.sort(key=lambda solution: solution[0])
        u, s, v = svd_of_product(*solutions[0][1:])
        mean = factored.from_svd(u, s, v)
        if pointwise:
            loss = self._loss(data, prior, mean.psi(factored.problem))
            factored = factored.with_loss(loss)
        laplace: PosteriorCovariance
        if isinstance(conditional, WholeListCovariance):
            laplace = NoCovariance(conditional.pairs, TOO_LONG, SizeError)
        elif len(conditional.pairs) == 0:
            laplace = NoCovariance(conditional.pairs, NOTHING)
        else:
            variances = conditional.noise
            if isinstance(loss, PointwiseLoss):
                precision, smallest = loss.precisions(mean.psi(factored.problem)), torch.finfo(noise.dtype).eps / 10
                diagonal = pair_covariance(as_terms(ops), conditional.pairs)._diagonal()
                variances = 1 / torch.maximum(precision, smallest / diagonal.clamp_min(1e-30))
            laplace = LaplaceCovariance(
                factored.row_root, factored.col_root, u * s.sqrt(), v * s.sqrt(), conditional.pairs, variances
            )
        coefficients = LowRankCoefficients(mean.left * mean.values, mean.right)
        objectives = [solution[0] for solution in solutions]
        posterior = FactorPosterior(
            prior, ops, coefficients, laplace, objective=objectives[0], restarts=objectives, rank=mean.rank
        )
        at = loss(mean.psi(factored.problem))
        penalty = SpectralElasticNet(float(noise), 1.0)  # stationary factors are stationary for the trace norm, too
        posterior._duals = low_rank_duals(factored.problem, mean, -at.gradient, penalty, known)
        self._tell_noise(posterior, float(noise))
        if pointwise:
            posterior._noise, posterior.likelihood = None, constant_copy(self.likelihood, prior)
        return posterior

    def _loss(self, data: Data, prior: MatrixGP, psi: Tensor | None = None) -> Loss:
        """That of the likelihood; minus the log-likelihood of a pointwise one, exact about psi (T,)."""
        if not is_pointwise(self.likelihood) or not isinstance(data, ObservedMatrix):
            return data_loss(self.likelihood, data, prior.mean_module)
        rows, cols, values, weights = observed_parts(data, prior.mean_module)
        density = density_of(constant_copy(self.likelihood, prior), values)
        if not density.smooth:
            raise InputError(
                f"likelihood: FactorGP needs second derivatives, and {type(self.likelihood).__name__} has a kink; use "
                "FullGP or TraceGP"
            )
        return PointwiseLoss(density, weights, None, prior.mean_module(rows, cols), psi)


def _next_to(before: FactorPosterior, factored: FactoredProblem, other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Balanced factors of the old mean, and small random ones for the ranks it does not use."""
    assert isinstance(before.coefficients, LowRankCoefficients)
    of_rows = factored.row_root.mT._matmul(before.coefficients.left)  # G_M^T A G_N is B
    of_cols = factored.col_root.mT._matmul(before.coefficients.right)
    u, s, v = svd_of_product(of_rows, of_cols)
    spare = 0.01 * s[-1:].sqrt() / torch.stack([part.square().mean().sqrt() for part in other]).max()
    x, z = (torch.cat([old * s.sqrt(), spare * new[:, len(s) :]], 1) for old, new in zip((u, v), other, strict=True))
    return x, z
