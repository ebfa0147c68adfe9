"""What every recipe prior x likelihood shares: its likelihoods, the noise of an observation, what a fit will take."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, _GaussianLikelihoodBase
from torch import Tensor

from ..checks import check_instance, refuse_gradient, shown
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..hooks import Described
from ..kernels.feature import ConstantKernel
from ..kernels.graph import GraphKernel
from ..likelihoods.axis_noise import AxisNoiseGaussianLikelihood, check_gaussian
from ..likelihoods.losses import Data, is_pointwise
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.cost import DEFAULT_LIMITS, GEMM, MEMORY, Estimate, Rates, Work, measured_rates
from ..linalg.solvers import PAIR_BATCH, PLAIN_CONDITION
from ..mean.low_rank import LowRank, MeanSolution
from ..mean.problem import Certificate, MeanProblem, Penalty, SpectralElasticNet, times
from ..mean.ridge import RidgeSolution, kernel_product
from ..posteriors.explain import Duals
from ..posteriors.gaussian import GaussianPosterior, TracePosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.updates import Fantasies, moved_coefficients
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..tensor_checks import refuse_where


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


# What a fit will take ------------------------------------------------------------------------------

LONGEST_SERIES = 64  # terms of a Chebyshev series, where finding out would take long


@dataclass(frozen=True)
class AxisSize:
    """What a kernel on one axis costs, known without evaluating it.

    :param count: rows or columns.
    :param setup: to make the operator.
    :param column: a product with one column.
    :param entries: numbers that the operator keeps.
    :param ends: of its spectrum; None where nobody knows.
    """

    count: int
    setup: Work
    column: Work
    entries: float
    ends: tuple[float, float] | None = None

    @classmethod
    def of(cls, kernel: Any, count: int) -> AxisSize:
        """Of a gpytorch kernel on ``count`` inputs."""
        if isinstance(kernel, ScaleKernel):
            inner, scale = cls.of(kernel.base_kernel, count), float(kernel.outputscale.detach())
            return replace(inner, ends=inner.ends and (scale * inner.ends[0], scale * inner.ends[1]))
        if isinstance(kernel, AdditiveKernel):
            parts = [cls.of(part, count) for part in kernel.kernels]
            known = [part.ends for part in parts if part.ends is not None]
            return cls(
                count,
                sum((part.setup for part in parts), Work()),
                sum((part.column for part in parts), Work()),
                sum(part.entries for part in parts),
                (sum(low for low, _ in known), sum(high for _, high in known)) if len(known) == len(parts) else None,
            )
        dense = Work(gemm=float(count) ** 2, call=1)
        if isinstance(kernel, GraphKernel):
            values = kernel._function(torch.linspace(0, 2, 65, dtype=torch.float64)).detach()
            ends = float(values.min()), float(values.max())
            if kernel.uses_eigenpairs:
                return cls(count, Work(factor=float(count) ** 3), 2 * dense, 2.0 * count**2, ends)
            entries = float(2 * kernel.graph.num_links + count)
            column = Work(sparse=LONGEST_SERIES / 2 * entries, move=LONGEST_SERIES / 8 * count, call=1)
            return cls(count, Work(move=8 * entries), column, 2 * entries, ends)
        if isinstance(kernel, ConstantKernel):
            return cls(count, Work(call=4), Work(move=float(count), call=1), float(count))
        return cls(count, Work(move=4.0 * count**2), dense, float(count) ** 2)

    def best(self, columns: float, rates: Rates, reuse: float = 1.0) -> Work:
        """A product with so many columns, by the operator or by its dense block, formed once for ``reuse`` of them."""
        dense = Work(gemm=columns * self.count**2) + self.count / reuse * self.column
        lazy = columns * self.column
        fits = 8.0 * self.count**2 <= MEMORY
        return dense if fits and dense.seconds(rates) < lazy.seconds(rates) else lazy


class FitSize:
    """Sizes of a fit, and the work of its parts; nothing of the size of a kernel is made.

    :param prior: one term or several.
    :param data: observed entries, or whole lists.
    :param rates: those of this machine when left out.
    """

    def __init__(
        self, prior: MatrixGP | SumGP, data: ObservedMatrix | PositiveUnlabelled, rates: Rates | None = None
    ) -> None:
        if data.shape != prior.shape:
            raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
        self.rates, self.limits, self.prior = rates or measured_rates(), DEFAULT_LIMITS, prior
        self.lists = isinstance(data, PositiveUnlabelled)
        self.count = len(data.pattern)  # T
        self.axes = [
            (AxisSize.of(term.row_kernel, data.shape[0]), AxisSize.of(term.col_kernel, data.shape[1]))
            for term in prior.terms
        ]
        if isinstance(data, PositiveUnlabelled):
            self.active = len(data.pattern.chosen), data.shape[1]
        else:
            rows, cols = (int((at.bincount() > 0).sum()) for at in (data.rows, data.cols))
            self.active = rows, cols
        weights = getattr(data, "weights", None)
        self.complete = not self.lists and weights is None and self.count == data.shape[0] * data.shape[1]
        self.itemsize = prior.dtype.itemsize

    @property
    def setup(self) -> Work:
        """The operators of the kernels."""
        return sum((row.setup + col.setup for row, col in self.axes), Work())

    @property
    def entries(self) -> float:
        """Numbers that kernels and data keep, dense blocks of kernels included where they are small enough."""
        total = 5.0 * self.count
        for axis in (axis for pair in self.axes for axis in pair):
            total += axis.entries + (axis.count**2 if 8 * axis.count**2 <= MEMORY else 0)
        return total

    def product(self, columns: float = 1.0) -> Work:
        """K_TT times so many vectors, as :class:`~mvgp.linalg.pair_operator.PairProduct` does it."""
        rows, cols = self.active
        total = Work()
        for row, col in self.axes:
            ways = []
            for inner, outer, height, width in ((col, row, rows, cols), (row, col, cols, rows)):
                first = [Work(sparse=float(self.count * width)), inner.best(height, self.rates, 50)]
                second = [Work(sparse=2.5 * self.count * height), outer.best(width, self.rates, 50)]
                ways.append(self.cheapest(first) + self.cheapest(second) + Work(move=float(2 * rows * cols), call=20))
            total += self.cheapest(ways)
        return columns * total

    def cheapest(self, ways: Sequence[Work]) -> Work:
        """The one that takes the least time."""
        return min(ways, key=lambda work: work.seconds(self.rates))

    def factor_products(self, columns: float) -> Work:
        """A step of a mean of low rank: both kernels and the observed entries, with so many columns."""
        total = Work(gemm=6.0 * sum(self.active) * columns**2, call=400)
        for row, col in self.axes:
            each = 2 * (row.best(columns, self.rates, 200) + col.best(columns, self.rates, 200))
            cells = self.count * columns
            total += each + (Work(gemm=4.0 * cells) if self.lists else Work(sparse=4.5 * cells))
        return total

    def condition(self, noise: float) -> float | None:
        """Bound on the condition number of K_TT + D with equal noise; None where nobody knows."""
        low = high = noise
        for row, col in self.axes:
            if row.ends is None or col.ends is None:
                return None
            low, high = low + row.ends[0] * col.ends[0], high + row.ends[1] * col.ends[1]
        return high / low

    def cg_iterations(self, noise: float, tolerance: float) -> float:
        """Expected iterations of conjugate gradients."""
        condition = self.condition(noise)
        if condition is None or condition > PLAIN_CONDITION:
            return 60.0  # preconditioned
        return 2.0 + 0.4 * condition**0.5 * math.log(2 / tolerance)

    def solve_method(self, method: str) -> str:
        """How K_TT + D is solved, by the rule of :func:`~mvgp.linalg.solvers.make_solver`."""
        small = max(self.active) <= self.limits.eigenpairs
        if method != "auto":
            return method
        if self.complete and small and (len(self.axes) == 1 or self._share_eigenvectors()):
            return "spectral"
        return "cholesky" if self.count <= self.limits.cholesky else "cg"

    def _share_eigenvectors(self) -> bool:
        """Whether all terms have kernels of one graph, small enough for its eigenpairs, on each axis."""
        sides = ([getattr(term, f"{name}_kernel") for term in self.prior.terms] for name in ("row", "col"))
        return all(
            all(isinstance(kernel, GraphKernel) and kernel.uses_eigenpairs for kernel in side)
            and len({id(kernel.graph) for kernel in side}) == 1
            for side in sides
        )

    def solve(self, method: str, noise: float, tolerance: float) -> tuple[Work, float]:
        """One system with K_TT + D, and the numbers that it keeps."""
        count, (rows, cols) = float(self.count), self.active
        if method == "cholesky":
            return Work(gemm=count**3 / 2, move=4 * count**2), 4 * count**2
        grid = float(rows * cols)
        if method == "spectral":
            return Work(factor=float(rows) ** 3 + float(cols) ** 3, gemm=6 * grid * (rows + cols)), 6 * grid
        iterations = self.cg_iterations(noise, tolerance)
        work, kept = iterations * self.product(), 12 * count + 3 * grid
        condition = self.condition(noise)
        if condition is None or condition > PLAIN_CONDITION:
            sides = [min(size, self.limits.eigenpairs) for size in self.active]
            rank = min(4096.0, (20 * GEMM / max(count, 1)) ** 0.5, float(sides[0] * sides[1]))
            setup = Work(factor=sum(float(size) ** 3 for size in sides), gemm=2 * min(count * rank**2, 20 * GEMM))
            work, kept = work + len(self.axes) * setup, kept + 5 * rank**2 + 2 * PAIR_BATCH * rank
        return work, kept

    def estimate(self, what: str, method: str, work: Work, entries: float) -> Estimate:
        """The sum of it, with the kernels."""
        m, n = self.prior.shape
        cells = f"{self.count:,} cells of whole lists" if self.lists else f"{self.count:,} observed cells"
        needed = self.itemsize * (self.entries + entries)
        text = f"{what} on {cells} of a {m:,} x {n:,} matrix"
        return Estimate((self.setup + work).seconds(self.rates), int(needed), method, text)
