"""FullGP: the plain matrix-variate GP."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from gpytorch.likelihoods import _GaussianLikelihoodBase
from torch import Tensor

from ..checks import check_choice, check_flag, check_iterations, check_tolerance, check_whole_number, free_memory
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError, SizeError
from ..likelihoods.losses import Data, WholeListSquaredLoss, data_loss, is_pointwise, long_dot, observed_parts
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.complete_rows import CompleteRowsSystem
from ..linalg.complete_sums import make_rows_system
from ..linalg.conjugate_gradients import Solution
from ..linalg.cost import NOMINAL, Estimate, Work, spoken_bytes
from ..linalg.pairs import CompleteRows, cell_slots
from ..linalg.solvers import CholeskySolver, Method, SpectralSolver
from ..linalg.spectra import Terms
from ..linalg.updates import UpdatedSolver
from ..mean.problem import Certificate, MeanProblem, SpectralElasticNet, warn_or_raise
from ..mean.ridge import RidgeSolution, kernel_product, solve_ridge
from ..posteriors.covariance import ConditionalCovariance, PosteriorCovariance, unscaled
from ..posteriors.explain import Duals
from ..posteriors.gaussian import FullPosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.updates import Fantasies, Fit, moved_coefficients
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..progress import Progress, progress_bar
from ..tensor_checks import check_cells, check_matrix
from .estimates import FitSize
from .pointwise import APPROXIMATIONS, Approximation, PointwiseFit, own_covariance
from .recipe import Recipe, condition, known_links, moved_solution, prior_terms, remembered
from .trace_gp import trace_posterior, trace_problem

MOST_KEPT = 5000  # rows or columns, whichever are fewer, up to which a posterior keeps the eigenpairs of whole lists


class FullGP(Recipe):
    r"""The recipe prior x likelihood; :meth:`fit` returns the exact posterior under Gaussian noise.

    The posterior is that of equations (2) and (3). Under a pointwise likelihood (Bernoulli, Poisson, ...) it is the
    Gaussian of largest evidence bound, or Laplace's approximation.

    :param prior: the matrix-variate prior, or a sum of such terms.
    :param likelihood: gpytorch's ``GaussianLikelihood``; its noise is the variance of an observation
        with weight 1. Or ``FixedNoiseGaussianLikelihood``; or a ranking likelihood: values are labels, rows are tasks;
        or a pointwise likelihood; or one with a method ``data_loss``.
    :param approximation: under a pointwise likelihood, ``variational`` or ``laplace``.
    :param tolerance: relative residual of every linear system; 1e-8 in double precision, 1e-5 in single. Under a
        pointwise likelihood, of the equations of the posterior (1e-10 for Laplace's approximation).
    :param method: ``cholesky``, ``spectral``, ``cg``, or ``auto`` by size and structure.
    :param max_iterations: limit for conjugate gradients.
    :param strict: missing the tolerance is an error, for direct methods too; False to warn instead.
    :param memory: bytes that a fit may take; one that is expected to need more is refused. What is free, when left out.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 4], [0.5, -1.0], shape=(3, 5))
        >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> posterior.variance([0, 1], [1, 1]).shape
        torch.Size([2])

    """

    takes_pointwise = True

    def __init__(
        self,
        prior: MatrixGP | SumGP,
        likelihood: Any,
        *,
        approximation: Approximation = "variational",
        tolerance: float | None = None,
        method: Method = "auto",
        max_iterations: int = 1000,
        strict: bool = True,
        memory: int | None = None,
    ) -> None:
        super().__init__(prior, likelihood)
        self.memory = None if memory is None else check_whole_number(memory, "memory")
        self.approximation: Approximation = check_choice(approximation, "approximation", APPROXIMATIONS)
        self.method: Method = check_choice(method, "method", ("auto", "cholesky", "spectral", "cg"))
        self.tolerance = None if tolerance is None else check_tolerance(tolerance)
        self.max_iterations, self.strict = check_iterations(max_iterations), check_flag(strict, "strict")

    def fit(self, data: Data, *, progress: Progress = "auto") -> FullPosterior:
        """The posterior given ``data``, with the hyperparameters as they are now.

        With a ranking likelihood it is the posterior of :class:`TraceGP` without a trace norm, lam the noise: the
        paper's "Hilbert" model, on one dual coefficient for each observed pair.

        On whole lists (``PositiveUnlabelled``) every cell of a list is observed, a link with value 1 and an unlabelled
        cell with value 0 and its weight; see :mod:`mvgp.linalg.complete_rows` for how that is solved.

        :param progress: True, False or "auto", see :mod:`mvgp.progress`.
        """
        with progress_bar("fit", progress=progress):
            self._check_room(data)
            posterior = self._fit_to(data, None)
        model = remembered(self, posterior.prior)
        posterior._fit = Fit(data, model) if posterior._fit is None else replace(posterior._fit, model=model)
        return posterior

    def _expected(self, size: FitSize, data: Any) -> Estimate:
        """By the rules of :meth:`fit`; see :meth:`Recipe.estimate`."""
        noise = float(self._noise_for(data))
        if is_pointwise(self.likelihood):
            rounds = 12 if self.approximation == "variational" else 8
            count = float(size.count)
            dense = Work(gemm=count**3, move=4 * count**2)  # a factor, and the diagonal of its inverse
            large = 40 * size.product(size.limits.sketch / 8)
            small = size.count <= size.limits.dense
            entries = 5 * count**2 if small else 20 * count + 2 * count * size.limits.sketch
            return size.estimate("FullGP", self.approximation, rounds * (dense if small else large), entries)
        if not isinstance(self.likelihood, _GaussianLikelihoodBase):
            steps = 100 * (size.product() + Work(call=1000))
            return size.estimate("FullGP", "ridge", steps, 12.0 * size.count)
        if size.lists and self.method == "auto":
            short, cells = float(min(size.active)), float(size.active[0] * size.active[1])
            special = min(float(len(data)), 3000.0)
            work = Work(factor=short**3, gemm=8 * cells * short) + size.product(4 + special / 100)
            return size.estimate("FullGP", "complete rows", work, 10 * cells + 2 * short**2)
        method = size.solve_method(self.method)
        return size.estimate("FullGP", method, *size.solve(method, noise, self._tolerance(1e-5, 1e-8)))

    def _check_room(self, data: Data) -> None:
        """Refuse a fit that this machine has no memory for."""
        self._noise_for(data)
        limit, needed = self.memory or free_memory(), self._expected(FitSize(self.prior, data, NOMINAL), data).bytes
        if limit is not None and needed > limit:
            raise SizeError(
                f"memory: {self.estimate(data)}, and there are {spoken_bytes(limit)}; use TraceGP, whose mean "
                "has low rank, FactorGP, fewer observations, or kernels of sparse graphs"
            )

    def _update(self, posterior: FullPosterior, data: Data) -> FullPosterior:
        """From the solver and the coefficients of the old posterior."""
        return self._fit_to(data, posterior)

    def _fit_to(self, data: Data, before: FullPosterior | None) -> FullPosterior:
        """The posterior; ``before`` is given other data, under the same prior."""
        noise = self._noise_for(data)
        if is_pointwise(self.likelihood):
            return self._pointwise(data)
        weighted = self._weighted(data)
        is_gaussian = isinstance(self.likelihood, _GaussianLikelihoodBase)
        posterior = self._gaussian(weighted, noise, before) if is_gaussian else self._ranking(weighted, noise, before)
        self._tell_noise(posterior, float(noise))
        if posterior._fit is not None:
            posterior._fit = replace(posterior._fit, data=data)  # as they were given, without the noise as weights
        return posterior

    def _pointwise(self, data: Data) -> FullPosterior:
        """The sites of the observations, and a plain posterior with noise 1 / Lambda."""
        fit = PointwiseFit(
            self.prior,
            data,
            self.likelihood,
            self.approximation,
            tolerance=self._tolerance(1e-5, 1e-8),
            method=self.method,
            max_iterations=self.max_iterations,
            strict=self.strict,
        )
        usual = 1e-8 if self.approximation == "variational" else 1e-10
        sites = fit.full(tolerance=self._tolerance(1e-4, usual), max_iterations=self.max_iterations)
        sites.report.warn_or_raise(strict=self.strict, stacklevel=3)  # where fit is called
        coefficients = SparseCoefficients(fit.data.pattern.to(sites.psi.device), sites.coefficients)
        posterior = FullPosterior(fit.prior, fit.terms, coefficients, fit.conditional(sites))
        posterior.likelihood, posterior.sites = fit.likelihood, sites
        posterior._duals = Duals(coefficients.pattern, sites.coefficients, known_links(data))
        posterior._fit = Fit(data, self)
        return posterior

    def _tolerance(self, single: float, double: float) -> float:
        return self.tolerance or (single if self.prior.dtype == torch.float32 else double)

    @torch.no_grad()
    def _gaussian(self, data: Data, noise: Tensor, before: FullPosterior | None) -> FullPosterior:
        r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
        tolerance = self._tolerance(1e-5, 1e-8)
        options: dict[str, Any] = {"method": self.method, "max_iterations": self.max_iterations, "strict": self.strict}
        prior = self.prior.snapshot() if before is None else before.prior
        ops = prior_terms(prior, data) if before is None else before._terms
        conditional = condition(ops, data, noise, tolerance=tolerance, before=before, **options)
        start, system = None, None
        if before is not None:
            assert isinstance(before.coefficients, SparseCoefficients)
            pattern = data.pattern.to(ops[0][0].device)
            start = moved_coefficients(before.coefficients.pattern, before.coefficients.values, pattern)
        if isinstance(data, PositiveUnlabelled):
            loss = data_loss(self.likelihood, data, prior.mean_module)
            assert isinstance(loss, WholeListSquaredLoss)
            target = loss.targets(prior.dtype, data.num_cells)
        else:
            rows, cols, values, _ = observed_parts(data, prior.mean_module)
            target = values - prior.mean_module(rows, cols)
        if isinstance(data, PositiveUnlabelled) and self.method == "auto":
            system = _whole_lists(ops, data, float(noise), before)
            near = None if start is None else start.view(system.shape)
            solution = system.solve(target.view(system.shape), tolerance, self.max_iterations, near)
        elif isinstance(conditional, ConditionalCovariance):
            left = None if before is None or before._fit is None else before._fit.residual
            solution = _solve(conditional, target.unsqueeze(1), tolerance, start, left)
        else:
            raise InputError(f"method: whole lists of {len(data.pattern):,} cells need 'auto', got {self.method!r}")
        alpha = solution.checked(strict=self.strict).value.reshape(-1)
        coefficients = SparseCoefficients(data.pattern.to(target.device), alpha)
        square, count = long_dot(target, alpha), len(alpha)
        if isinstance(data, ObservedMatrix):
            square, count = square + data.replicate_spread / float(noise), data.num_measurements
        scale = square / count if count else 1.0
        posterior = FullPosterior(
            prior, ops, coefficients, conditional, solve_report=solution.solve_report, evidence_scale=scale
        )
        posterior._duals = Duals(coefficients.pattern, alpha, known_links(data))
        keep = type(system) is CompleteRowsSystem and system.short_side <= MOST_KEPT
        left = None if solution.residual is None else solution.residual.squeeze(1)
        posterior._fit = Fit(data, self, system if keep else None, left)
        return posterior

    @torch.no_grad()
    def _fantasies(self, posterior: FullPosterior, rows: Any, cols: Any, values: Any, weights: Any) -> Fantasies:
        r"""By linearity: :math:`\alpha(v) = \alpha(v_0) + A^{-1} E (v - v_0)` with E the unit vectors of new pairs."""
        fit = posterior._fit
        if (
            fit is None
            or not isinstance(self.likelihood, _GaussianLikelihoodBase)
            or isinstance(fit.data, PositiveUnlabelled)
        ):
            return super()._fantasies(posterior, rows, cols, values, weights)
        many = check_matrix(values, "values", self.prior.dtype, shape="(S, k)")  # (S, k)
        order = torch.argsort(_keys(rows, cols, fit.data.shape))
        if len(order) != many.shape[1]:
            raise InputError(f"values: expected {len(order)} for each fantasy, one of each pair, got {many.shape[1]}")
        more = ObservedMatrix(rows, cols, many[0], fit.data.shape, weights=weights)
        first: FullPosterior = posterior.condition(more)
        assert first._fit is not None
        assert isinstance(first.coefficients, SparseCoefficients)
        data, tolerance = first._fit.data, self._tolerance(1e-5, 1e-8)
        assert isinstance(data, ObservedMatrix)
        new = cell_slots(more.rows, more.cols, data.rows, data.cols, data.shape[1]).to(first.device)  # (k,)
        off = (many - many[0])[:, order].to(first.device)  # (S, k)
        conditional, pattern = unscaled(first.conditional)[0], first.coefficients.pattern
        assert isinstance(conditional, ConditionalCovariance)
        few = off.shape[1] <= off.shape[0]
        unit = off.new_zeros(len(data), off.shape[1] if few else off.shape[0])
        unit[new] = torch.eye(off.shape[1], dtype=off.dtype, device=off.device) if few else off.mT
        steps = _solve(conditional, unit, tolerance).checked(strict=self.strict).value
        alphas = first.coefficients.values.unsqueeze(1) + (steps @ off.mT if few else steps)  # (T, S)

        def make(number: int) -> FullPosterior:
            other, changed = copy.copy(first), data.values.clone()
            changed[new.to(changed.device)] += off[number].to(changed)
            replaced = data.with_values(changed)
            target = replaced.values.to(off) - first.prior.mean_module(
                replaced.rows.to(off.device), replaced.cols.to(off.device)
            )
            alpha = alphas[:, number].contiguous()
            other.coefficients, other._duals = SparseCoefficients(pattern, alpha), Duals(pattern, alpha)
            other._evidence_scale, other._fit = long_dot(target, alpha) / len(replaced), Fit(replaced, self)
            return other

        return Fantasies(first, conditional, alphas, make)

    def _ranking(self, data: Data, noise: Tensor, before: FullPosterior | None) -> FullPosterior:
        """The posterior without a trace norm, lam the noise."""
        if len(self.prior.terms) > 1:
            return self._sum_ranking(data, noise, before)
        tolerance, prior = self._tolerance(1e-5, 1e-8), self.prior if before is None else before.prior
        setup = trace_problem(prior, data, self.likelihood, noise, tolerance=tolerance, before=before)
        with torch.no_grad():
            start = None if before is None or setup.flat else moved_solution(before, setup.problem)
        fit = trace_posterior(
            setup,
            SpectralElasticNet(float(noise), 0.0),
            solver="proximal",
            tolerance=self._tolerance(1e-3, 1e-4),
            max_iterations=self.max_iterations,
            strict=self.strict,
            start=start,
        )
        evidence: dict[str, Any] = {"certificate": fit.certificate, "evidence_scale": fit.evidence_scale}
        coefficients, duals = fit.coefficients, fit._duals
        if setup.flat:  # the mean is 0: a coefficient of each pair, as everywhere else
            nothing = torch.zeros(len(setup.problem.pattern), dtype=prior.dtype, device=noise.device)
            coefficients = SparseCoefficients(setup.problem.pattern, nothing)
            duals = Duals(setup.problem.pattern, nothing, setup.known)
        posterior = FullPosterior(fit.prior, fit._terms, coefficients, fit.conditional, **evidence)
        posterior._duals, posterior._fit = duals, Fit(data, self)
        return posterior

    @torch.no_grad()
    def _sum_ranking(self, data: Data, noise: Tensor, before: FullPosterior | None) -> FullPosterior:
        """The same for a sum of terms: one dual coefficient for each pair serves all of them."""
        prior, tolerance = self.prior.snapshot(), self._tolerance(1e-3, 1e-4)
        terms = prior_terms(prior, data)
        loss, pattern = data_loss(self.likelihood, data, prior.mean_module), data.pattern.to(terms[0][0].device)
        problems = [MeanProblem(*ops, pattern, loss) for ops in terms]
        start = None
        if before is not None and isinstance(before.coefficients, SparseCoefficients):
            moved = moved_coefficients(before.coefficients.pattern, before.coefficients.values, pattern)
            start = RidgeSolution(moved, kernel_product(problems)(moved), Certificate(0.0, 0.0, 1.0, 0, 0, "start"))
        limit = self.max_iterations
        solution = solve_ridge(problems, float(noise), tolerance=tolerance, max_iterations=limit, start=start)
        advice = "allow more iterations, loosen the tolerance, or use float64"
        warn_or_raise(solution.certificate, "the mean", advice, strict=self.strict, stacklevel=5)  # where fit is called
        alpha, square = solution.coefficients, long_dot(solution.coefficients, solution.psi)
        left = 2 * float(loss(solution.psi).value) / float(noise)  # what is left of the data
        conditional: PosteriorCovariance = condition(terms, data, noise, tolerance=self._tolerance(1e-5, 1e-8))
        if not isinstance(self.likelihood, RankingLikelihood):
            conditional = own_covariance(self.likelihood, loss, conditional, float(noise), solution.psi)
        posterior = FullPosterior(
            prior,
            terms,
            SparseCoefficients(pattern, alpha),
            conditional,
            certificate=solution.certificate,
            evidence_scale=(left + square) / max(len(alpha), 1),
        )
        posterior._duals, posterior._fit = Duals(pattern, alpha, known_links(data)), Fit(data, self)
        return posterior


def _solve(
    conditional: ConditionalCovariance,
    rhs: Tensor,
    tolerance: float,
    start: Tensor | None = None,
    left: Tensor | None = None,
) -> Solution:
    """By the solver of the covariance, from ``start`` (T,) unless it is direct; ``left``: the old system's residual."""
    solver = conditional.solver
    if start is None or isinstance(solver, CholeskySolver | SpectralSolver):
        return solver.solve(rhs, tolerance)
    if isinstance(solver, UpdatedSolver) and left is not None:
        return solver.solve(rhs, tolerance, start.unsqueeze(1), left.unsqueeze(1))
    return solver.solve(rhs, tolerance, start.unsqueeze(1))


def _whole_lists(
    terms: Terms, data: PositiveUnlabelled, noise: float, before: FullPosterior | None
) -> CompleteRowsSystem:
    """The system of whole lists, with the eigenpairs of an old one on the same rows."""
    device = terms[0][0].device
    chosen, links = data.pattern.chosen.to(device), data.positions.to(device)
    if before is not None and before._fit is not None and before._fit.system is not None:
        pattern = before._fit.data.pattern
        if isinstance(pattern, CompleteRows) and torch.equal(pattern.chosen, data.pattern.chosen):
            return before._fit.system.with_special(links)
    return make_rows_system(terms, chosen, noise / data.weight, links, noise)


def _keys(rows: Any, cols: Any, shape: tuple[int, int]) -> Tensor:
    """(k,): the cells' numbers, row by row."""
    row, col = check_cells(rows, cols, shape)
    return row * shape[1] + col
