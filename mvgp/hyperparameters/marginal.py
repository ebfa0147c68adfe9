"""The log marginal likelihood of a matrix-variate prior: a function, and the objective of gpytorch's training loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator import LinearOperator
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from ..checks import check_choice, check_instance, check_iterations, check_seed, check_tolerance, check_whole_number
from ..data.observed import ObservedMatrix
from ..errors import ConvergenceError, InputError, NotPositiveSemidefiniteError
from ..likelihoods.axis_noise import AxisNoiseGaussianLikelihood, check_gaussian, entry_noise
from ..linalg.conjugate_gradients import Solution, SolveReport, conjugate_gradients
from ..linalg.cost import DEFAULT_LIMITS
from ..linalg.pairs import PairIndex
from ..linalg.spectra import Terms
from ..linalg.sums import (
    is_pair_covariance,
    make_sum_solver,
    operators,
    pair_covariance,
    pair_terms,
    shared_grid,
    shared_source,
)
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..tensor_checks import check_values, check_weights
from .probes import PROBES, Reference, log_determinant, with_derivative, with_gradients

MarginalMethod = Literal["auto", "cholesky", "spectral", "probes"]
SLACK = 2.0  # a reference is kept until this many times the iterations are needed that it needed at first
GRACE = 10


def log_marginal(
    prior: MatrixGP | SumGP, likelihood: GaussianLikelihood, data: ObservedMatrix, **options: Any
) -> LogMarginal:
    r"""The log marginal likelihood of ``data``, with its gradient.

    .. math:: \log p(r) = -\tfrac12 \left( \rho^T A^{-1} \rho + \log\det A + T \log 2\pi \right),
              \quad A = K_{TT} + D, \quad \rho = r - b_T

    :param prior: the matrix-variate prior, or a sum of such terms.
    :param likelihood: gpytorch's ``GaussianLikelihood``.
    :param data: T observed pairs. Where replicates were merged, the density is that of all measurements:
        ``data.replicate_log_prob(noise)`` is added to the value.
    :param options: ``method``, ``tolerance`` and so on, as of :class:`MatrixMarginalLogLikelihood`.
    """
    check_problem(prior, data)
    settings = MarginalSettings(**options)
    joint = prior(data.rows, data.cols)
    pairs = pair_terms(joint.lazy_covariance_matrix)[0].left
    noise = noise_of(likelihood, joint.loc, data.weights, pairs)
    result = pair_log_marginal(joint.lazy_covariance_matrix, data.values.to(joint.loc) - joint.loc, noise, settings)
    return replace(result, value=result.value + replicate_term(likelihood, data, joint.loc))


def replicate_term(likelihood: GaussianLikelihood, data: ObservedMatrix, like: Tensor) -> Tensor:
    """() what merged replicates say about the noise; 0 where none were merged."""
    if data.num_measurements == len(data):
        return torch.zeros_like(like[:1].sum())
    if isinstance(likelihood, AxisNoiseGaussianLikelihood):
        raise InputError(
            "data: merged replicates go with one noise variance; a noise of each row or column needs them apart"
        )
    return data.replicate_log_prob(noise_of(likelihood, like, None))


def check_problem(prior: Any, data: Any) -> None:
    """A prior, and observations of the same shape."""
    check_instance(prior, "prior", (MatrixGP, SumGP), "mvgp.MatrixGP")
    check_instance(data, "data", ObservedMatrix, "mvgp.ObservedMatrix")
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    if len(data) == 0:
        raise InputError("data: a marginal likelihood needs observations, got none; the posterior is the prior")


@dataclass(frozen=True)
class MarginalSettings:
    """How a log marginal likelihood is computed: the options of :class:`MatrixMarginalLogLikelihood`, checked."""

    method: MarginalMethod = "auto"
    tolerance: float | None = None
    probe_tolerance: float | None = None
    max_iterations: int = 1000
    probes: int = PROBES
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.method, "method", get_args(MarginalMethod))
        check_iterations(self.max_iterations)
        check_whole_number(self.probes, "probes", 2)
        check_seed(self.seed)
        for name in ("tolerance", "probe_tolerance"):
            if getattr(self, name) is not None:
                check_tolerance(getattr(self, name), name)

    def reference(self, covariance: LinearOperator, noise: Tensor) -> Reference:
        """The preconditioner and the probes of these very parameters; ``noise`` () or (T,)."""
        return Reference.build(covariance, noise.expand(covariance.shape[-1]), probes=self.probes, seed=self.seed)


@dataclass(frozen=True)
class LogMarginal:
    r""":math:`-\frac12 (r^T A^{-1} r + \log\det A + T \log 2\pi)`, with A = K_TT + D and r the values less the mean.

    :param value: (), with gradients to the parameters of kernels, noise and mean, and to values, weights and inputs
        that require them.
    :param standard_error: of the value, from the probes; 0 where it is exact.
    :param method: ``cholesky``, ``spectral`` or ``probes``.
    :param quadratic: :math:`r^T A^{-1} r`.
    :param log_det: :math:`\log\det A`.
    :param solve_report: how well A x = r was solved.
    :param probe_report: how well A x = z was solved for the probes, if there were any.
    """

    value: Tensor
    standard_error: float
    method: str
    quadratic: float
    log_det: float
    solve_report: SolveReport
    probe_report: SolveReport | None = None

    @property
    def converged(self) -> bool:
        """Whether all linear systems were solved to their tolerance."""
        return self.solve_report.converged and (self.probe_report is None or self.probe_report.converged)


class MatrixMarginalLogLikelihood(MarginalLogLikelihood):
    r"""(log p(r) + log densities of gpytorch priors on parameters) / T, as gpytorch's ``ExactMarginalLogLikelihood``.

    Probes, and the preconditioner they are drawn from, stay the same from call to call, so that value and gradient
    belong to one smooth function and L-BFGS works; they are made anew when conjugate gradients slow down because the
    parameters have moved far, or by :meth:`refresh`. ``last`` has the error bar.

    :param likelihood: gpytorch's ``GaussianLikelihood``.
    :param prior: the matrix-variate prior, or a sum of such terms.
    :param data: what BoTorch's ``fit_gpytorch_mll`` trains on; not needed otherwise.
    :param method: ``cholesky``, exact, is taken up to 3,000 observed pairs; ``spectral``, exact, for complete grids
        with equal noise (of a sum: if the terms share their eigenvectors); ``probes`` otherwise.
    :param tolerance: relative residual of the linear system; 1e-8 in double precision, 1e-5 in single.
    :param probe_tolerance: the same for the probes; 1e-6 and 1e-4.
    :param max_iterations: of conjugate gradients.
    :param probes: how many random vectors estimate the log determinant.
    :param seed: of the probes.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.hyperparameters import MatrixMarginalLogLikelihood
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
        prior: MatrixGP | SumGP,
        *,
        data: ObservedMatrix | None = None,
        method: MarginalMethod = "auto",
        tolerance: float | None = None,
        probe_tolerance: float | None = None,
        max_iterations: int = 1000,
        probes: int = PROBES,
        seed: int = 0,
    ) -> None:
        check_instance(prior, "prior", (MatrixGP, SumGP), "mvgp.MatrixGP")
        if data is not None:
            check_problem(prior, data)
        check_gaussian(likelihood, "the marginal likelihood", axis_noise=True)
        super().__init__(likelihood, prior)
        self.data = data
        self.settings = MarginalSettings(method, tolerance, probe_tolerance, max_iterations, probes, seed)
        self._reference: Reference | None = None
        self._limit = self.settings.max_iterations
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

        :param weights: (T,) positive; an entry has noise variance noise / weight. Of data with merged replicates, what
            ``data.replicate_log_prob(noise)`` says about the noise is not in it; ``learn`` and ``log_marginal`` add it.
        """
        covariance = getattr(function_dist, "lazy_covariance_matrix", None)
        if not isinstance(function_dist, MultivariateNormal) or not is_pair_covariance(covariance):
            raise InputError(f"function_dist: expected prior(rows, cols), got {type(function_dist).__name__}")
        mean, count = function_dist.loc, len(function_dist.loc)
        values = check_values(target, count, "target", keep_gradient=True).to(mean)
        checked = None if weights is None else check_weights(weights, count, mean.dtype, keep_gradient=True).to(mean)
        noise = noise_of(self.likelihood, mean, checked, pair_terms(covariance)[0].left)
        result = self._evaluate(covariance, values - mean, noise)
        self._last = replace(result, value=result.value.detach())  # it would keep the graph alive
        return (result.value + self.log_parameter_prior()) / count

    def compute_custom_loss(self, **_: Any) -> Tensor:
        """(): minus the value at the ``data``, what BoTorch's ``fit_gpytorch_mll`` minimises."""
        if self.data is None:
            raise InputError("data: to be fitted by BoTorch the objective needs them: give data= when it is made")
        data = self.data
        try:
            value: Tensor = self(self.model(data.rows, data.cols), data.values, weights=data.weights)
        except NotPositiveSemidefiniteError as error:
            raise NotPSDError(str(error)) from error  # BoTorch tries another step
        return -value

    def log_parameter_prior(self) -> Tensor:
        """(): the log densities of the gpytorch priors that are registered on parameters."""
        named_priors = [named for part in (self.model, self.likelihood) for named in part.named_priors()]
        once = {(id(module), id(prior)): (module, prior, closure) for _, module, prior, closure, _ in named_priors}
        logs = [prior.log_prob(closure(module)).sum() for module, prior, closure in once.values()]
        return sum(logs, self.model.mean_module.zero)  # a kernel that serves both axes counts once

    def _evaluate(self, covariance: LinearOperator, residual: Tensor, noise: Tensor) -> LogMarginal:
        settings = replace(self.settings, method=choose_method(covariance, noise, self.settings.method))
        if settings.method != "probes":
            return pair_log_marginal(covariance, residual, noise, settings)
        if self._reference is not None and self._reference.fits(pair_terms(covariance)[0].left):
            quick = replace(settings, max_iterations=self._limit)
            try:
                return pair_log_marginal(covariance, residual, noise, quick, self._reference)
            except ConvergenceError:
                pass  # the parameters have moved too far for this preconditioner
        self._reference = settings.reference(covariance, noise)
        result = pair_log_marginal(covariance, residual, noise, settings, self._reference)
        used = max(e.iterations for e in (result.solve_report, result.probe_report) if e is not None)
        self._limit = min(settings.max_iterations, int(SLACK * used) + GRACE)
        return result


def noise_of(
    likelihood: GaussianLikelihood, like: Tensor, weights: Tensor | None, pairs: PairIndex | None = None
) -> Tensor:
    """() noise variance, or (T,) noise over weight; differentiable. Noise of rows and columns needs the ``pairs``."""
    check_gaussian(likelihood, "the marginal likelihood", axis_noise=pairs is not None)
    if isinstance(likelihood, AxisNoiseGaussianLikelihood) and pairs is not None:
        likelihood.check_shape(pairs.shape)
    rows, cols = (None, None) if pairs is None else (pairs.rows, pairs.cols)
    return entry_noise(likelihood, like, rows, cols, weights)


def choose_method(covariance: LinearOperator, noise: Tensor, method: MarginalMethod) -> MarginalMethod:
    """The exact method that fits the problem, or probes."""
    terms = operators(covariance)
    pairs = pair_terms(covariance)[0].left
    complete = noise.dim() == 0 and pairs.fills and pairs.active_shape == pairs.shape
    closed_form = complete and max(pairs.shape) <= DEFAULT_LIMITS.eigenpairs
    closed_form = closed_form and (len(terms) == 1 or all(shared_source(side) for side in zip(*terms, strict=True)))
    if method == "spectral" and not closed_form:
        raise InputError(
            f"method='spectral' needs every cell observed, row by row, with equal weights, "
            f"and at most {DEFAULT_LIMITS.eigenpairs} rows and columns"
            + ("; and terms that share their eigenvectors on both axes" if len(terms) > 1 else "")
        )
    if method != "auto":
        return method
    if closed_form:
        return "spectral"
    return "cholesky" if len(pairs) <= DEFAULT_LIMITS.cholesky else "probes"


def pair_log_marginal(
    covariance: LinearOperator,
    residual: Tensor,
    noise: Tensor,
    settings: MarginalSettings,
    reference: Reference | None = None,
) -> LogMarginal:
    """The log density of ``residual`` (T,) under N(0, K_TT + D), ``noise`` () or (T,) the diagonal of D.

    Probes use the ``reference``, or that of these very parameters when it is left out.
    """
    single = residual.dtype == torch.float32
    tolerance = float(settings.tolerance or (1e-5 if single else 1e-8))
    chosen = choose_method(covariance, noise, settings.method)
    if chosen == "cholesky":
        return _dense(covariance, residual, noise, tolerance)
    if chosen == "spectral":
        return _complete(covariance, residual, noise, tolerance)
    # by conjugate gradients and probes; nothing of size T x T
    reference, noise = reference or settings.reference(covariance, noise), noise.expand(len(residual))
    covariance = pair_covariance(operators(covariance), pair_terms(covariance)[0].left)
    needed = torch.is_grad_enabled() and any(t.requires_grad for t in (*covariance.representation(), noise, residual))
    fixed, each = covariance.detach(), noise.detach().unsqueeze(1)
    with torch.no_grad():
        solution = conjugate_gradients(
            lambda x: fixed._matmul(x) + each * x,
            residual.detach().unsqueeze(1),
            tolerance=tolerance,
            max_iterations=settings.max_iterations,
            preconditioner=reference.apply,
        ).checked()
    determinant = log_determinant(
        fixed,
        noise.detach(),
        reference,
        tolerance=settings.probe_tolerance or (1e-4 if single else 1e-6),
        max_iterations=settings.max_iterations,
        derivative=needed,
    )
    quadratic = float(residual.detach() @ solution.value.squeeze(1))
    constant = len(residual) * math.log(2 * math.pi)
    value = residual.new_tensor(-0.5 * (quadratic + float(determinant.value) + constant))
    if needed:
        value = with_derivative(value, covariance, residual, noise, solution.value, determinant.vectors)
    error, log_det, report = 0.5 * determinant.standard_error, float(determinant.value), determinant.solve_report
    return LogMarginal(value, error, "probes", quadratic, log_det, solution.solve_report, report)


def _dense(covariance: LinearOperator, residual: Tensor, noise: Tensor, tolerance: float) -> LogMarginal:
    """By a dense Cholesky factor, differentiated by torch."""
    matrix = covariance.to_dense() + torch.diag(noise.expand(len(residual)))
    chol, info = torch.linalg.cholesky_ex(matrix)
    if info > 0:
        raise NotPositiveSemidefiniteError(
            f"K_TT + noise is not positive definite in {matrix.dtype} (pivot {int(info)} of {len(residual)}); "
            f"the smallest noise variance is {noise.min().item():.3g}: raise it, or use float64"
        )
    half = torch.linalg.solve_triangular(chol, residual.unsqueeze(1), upper=False)
    quadratic, log_det = half.square().sum(), 2 * chol.diagonal().log().sum()
    with torch.no_grad():
        alpha = torch.cholesky_solve(residual.unsqueeze(1), chol)
        gap = float((matrix @ alpha - residual.unsqueeze(1)).norm())
        solve_report = SolveReport("cholesky", gap and gap / float(residual.norm()), tolerance)
        Solution(alpha, solve_report).checked()
    value = -0.5 * (quadratic + log_det + len(residual) * math.log(2 * math.pi))
    return LogMarginal(value, 0.0, "cholesky", float(quadratic.detach()), float(log_det.detach()), solve_report)


def _complete(covariance: LinearOperator, residual: Tensor, noise: Tensor, tolerance: float) -> LogMarginal:
    r"""By eigenvalues, :math:`\log\det A = \sum_{ij} \log(\sum_q \lambda_{qi} \omega_{qj} + \sigma^2)`."""
    terms, pairs = operators(covariance), pair_terms(covariance)[0].left
    with torch.no_grad():
        solver = make_sum_solver(operators(covariance.detach()), pairs, noise.detach(), method="spectral")
        solution = solver.solve(residual.detach().unsqueeze(1), tolerance).checked()
    if len(terms) == 1:
        row, col = (torch.linalg.eigvalsh(op.to_dense()) for op in terms[0])
        log_det = (row.unsqueeze(1) * col + noise).log().sum()
    else:
        log_det = _sum_log_det(terms, noise)
    alpha = solution.value  # (T, 1)
    quadratic = float(residual.detach() @ alpha.squeeze(1))
    plain = residual.new_tensor(-0.5 * (quadratic + len(residual) * math.log(2 * math.pi)))
    value = with_derivative(plain, covariance, residual, noise, alpha, None) - 0.5 * log_det
    return LogMarginal(value, 0.0, "spectral", quadratic, float(log_det.detach()), solution.solve_report)


def _sum_log_det(terms: Terms, noise: Tensor) -> Tensor:
    r"""() log det A of terms that share their eigenvectors.

    With :math:`A = W V W^T` the derivative is :math:`\operatorname{tr} V^{-1} W^T dK\, W`, the change of the
    eigenvalues with the eigenvectors held, even where the change does not keep them.
    """
    grid = shared_grid(terms, DEFAULT_LIMITS.eigenpairs)
    assert grid is not None  # as choose_method saw to
    rows, cols = grid.rows.values, grid.cols.values
    with torch.no_grad():
        spread = grid.eigenvalues() + noise  # (M, N) V
        slope = 1 / spread
        pieces = [(row, slope @ col) for row, col in zip(rows, cols, strict=True)]
        pieces += [(col, slope.mT @ row) for row, col in zip(rows, cols, strict=True)]
    return with_gradients(spread.log().sum(), [*pieces, (noise, slope.sum())])
