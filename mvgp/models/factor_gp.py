"""FactorGP: the factor Gaussian process."""

from __future__ import annotations

from gpytorch.likelihoods import GaussianLikelihood

from ..checks import check_iterations, check_seed, check_whole_number
from ..data import ObservedMatrix, PositiveUnlabelled
from ..errors import InputError
from ..likelihoods import RankingLikelihood
from ..posteriors import FactorPosterior
from ..posteriors.factor import factor_posterior
from ..priors import MatrixGP
from .recipe import Recipe


class FactorGP(Recipe):
    r"""Row factors and column factors with GP priors: :math:`\psi = U V^T`, equation (7), of user-chosen rank.

    Not convex: several restarts, best kept. The mean is a maximum a posteriori; variances are a Laplace
    approximation and for small problems only.

    :param prior: the matrix-variate prior whose kernels are those of the factors.
    :param likelihood: gpytorch's ``GaussianLikelihood``, or a ranking likelihood.
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

    def __init__(
        self,
        prior: MatrixGP,
        likelihood: GaussianLikelihood | RankingLikelihood,
        rank: int,
        *,
        restarts: int = 3,
        max_iterations: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__(prior, likelihood)
        self.rank, self.restarts = check_whole_number(rank, "rank"), check_whole_number(restarts, "restarts")
        self.max_iterations, self.seed = check_iterations(max_iterations), check_seed(seed)

    def fit(self, data: ObservedMatrix) -> FactorPosterior:
        """The best of several maxima a posteriori."""
        noise = self._noise_for(data)
        if isinstance(data, PositiveUnlabelled):
            raise InputError("data: FactorGP takes an ObservedMatrix; for whole lists use TraceGP")
        return factor_posterior(
            self.prior,
            data,
            self.likelihood,
            noise,
            rank=self.rank,
            restarts=self.restarts,
            max_iterations=self.max_iterations,
            seed=self.seed,
        )
