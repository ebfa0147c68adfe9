"""What an object is: its equation with the numbers filled in, its shapes, how it is computed and why, how sure that is.

``describe`` takes a kernel, a prior, a likelihood, a penalty, data, a model or a posterior. The equations are those of
the documents (docs/math.md and docs/ranking.md), and keep their numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood

from .data.observed import ObservedMatrix
from .data.positive_unlabelled import PositiveUnlabelled
from .errors import InputError
from .kernels.feature import graph_lines, graph_text, kernel_formula, number_text, parameter_text
from .kernels.graph import Graph, GraphKernel
from .likelihoods.axis_noise import AxisNoiseGaussianLikelihood
from .likelihoods.losses import is_pointwise
from .likelihoods.projections import OrderCone, OrderedSimplex
from .likelihoods.ranking import RankingLikelihood
from .linalg.cost import DEFAULT_LIMITS
from .mean.problem import SpectralElasticNet, TraceBall
from .models.factor_gp import FactorGP
from .models.full_gp import FullGP
from .models.pairwise_svm import PairRanker, PairwiseSVM
from .models.trace_gp import TraceGP
from .posteriors.covariance import ConditionalCovariance, NoCovariance, WholeListCovariance, unscaled
from .posteriors.factor import FactorPosterior, LaplaceCovariance
from .posteriors.gaussian import FullPosterior, GaussianPosterior, TracePosterior
from .posteriors.trace_sum import TraceSumPosterior
from .priors.matrix_gp import Axis, MatrixGP
from .priors.means import MatrixMean, ZeroMean
from .priors.product_graph import ProductGraphGP
from .priors.sums import SumGP
from .text import Description

__all__ = ["Description", "describe"]
KNOWN = (
    "a kernel or its axis, a Graph, a prior (MatrixGP, SumGP, ProductGraphGP), a likelihood, a penalty, data "
    "(ObservedMatrix, PositiveUnlabelled), a model (TraceGP, FullGP, FactorGP, PairwiseSVM), a posterior, or a fitted "
    "prioritiser"
)
POINTWISE = {
    "BernoulliLikelihood": "P(y = 1) = Phi(z)",
    "LogisticLikelihood": "P(y = 1) = 1 / (1 + exp(-z))",
    "LogPoissonLikelihood": "y ~ Poisson(exp(z))",
    "StudentTLikelihood": "y ~ StudentT(deg_free, z, noise)",
    "LaplaceLikelihood": "y ~ Laplace(z, noise)",
}
MOST_TERMS = 8  # of a sum that are described one by one


@functools.singledispatch
def describe(x: Any) -> Description:
    """What ``x`` is, in a few lines: its equation with the numbers, shapes, parameters, method and why, certificate.

    :param x: a kernel, a prior, a likelihood, a penalty, data, a model, a posterior, or a fitted prioritiser.

    Other classes are added by ``@describe.register``, with a function that returns a :class:`Description`.

    Example:
        >>> import mvgp
        >>> print(mvgp.describe(mvgp.SpectralElasticNet(lam=2.0, alpha=0.75)))
        SpectralElasticNet, equation (5)
          equation  h(B) = 0.25 ||B||_F^2 + 1.5 ||B||_*
          numbers   lam 2, alpha 0.75: l1 = lam alpha = 1.5, l2 = lam (1 - alpha) = 0.5

    """
    came = f"the class {x.__name__}" if isinstance(x, type) else type(x).__name__
    raise InputError(f"describe: expected {KNOWN}, got {came}")


def _shape(shape: Sequence[int]) -> str:
    return f"{shape[0]:,} x {shape[1]:,}"


def _precision(dtype: torch.dtype) -> str:
    return "double precision" if dtype == torch.float64 else "single precision"


def _make(title: str, *lines: tuple[str, str]) -> Description:
    return Description(title, lines)


# Kernels and priors ------------------------------------------------------------------------------


@describe.register
def _(x: Graph) -> Description:
    size = f"{graph_text(x)}; {2 * x.num_links / x.num_nodes:.3g} links a node"
    laplacian = "L = I - D^-1/2 W D^-1/2 on nodes that have links, spectrum within [0, 2]"
    return _make("Graph", ("size", size), ("Laplacian", laplacian))


@describe.register
def _(x: Kernel) -> Description:
    own = ("equation", f"K = {kernel_formula(x)}"), ("parameters", parameter_text(x))
    return _make(type(x).__name__, *own, *graph_lines(x))


@describe.register
def _(x: Axis) -> Description:
    own = ("equation", f"K = {kernel_formula(x.kernel)}"), ("shape", f"{len(x):,} x {len(x):,}{_inputs(x)}")
    title = f"{'rows' if x.name == 'row' else 'columns'}: {type(x.kernel).__name__}"
    return _make(title, *own, ("parameters", parameter_text(x)), *graph_lines(x.kernel))


def _inputs(axis: Axis) -> str:
    return "" if axis.on_nodes else f", inputs {_shape(axis.inputs.shape)}"


def _mean_name(mean: MatrixMean) -> str:
    if isinstance(mean, ZeroMean):
        return "0"
    own = parameter_text(mean, mark=False)
    return f"b = {type(mean).__name__}" + ("" if own == "none" else f" ({own})")


@describe.register
def _(x: MatrixGP) -> Description:
    shape = f"{_shape(x.shape)}, {x.shape[0] * x.shape[1]:,} cells, {_precision(x.dtype)}"
    return _make(
        "MatrixGP: a Gaussian process over a matrix",
        ("equation", f"Z ~ GP({_mean_name(x.mean_module)}, kron(K_M, K_N)), equation (1)"),
        ("shape", shape),
        *_parts(x),
        ("parameters", parameter_text(x)),
    )


def _parts(prior: MatrixGP | SumGP) -> list[tuple[str, str]]:
    """The two kernels of a prior, or those of each term."""
    lines = []
    if isinstance(prior, MatrixGP):
        for name, symbol, axis in (("rows", "K_M", prior.row_axis), ("columns", "K_N", prior.col_axis)):
            more = "".join(f"; {text}" for _, text in graph_lines(axis.kernel))
            lines.append((name, f"{symbol} = {kernel_formula(axis.kernel)}{_inputs(axis)}{more}"))
        return lines
    for at, term in enumerate(prior.terms[:MOST_TERMS], start=1):
        of_rows, of_cols = kernel_formula(term.row_kernel), kernel_formula(term.col_kernel)
        lines.append((f"term {at}", f"rows {of_rows}; columns {of_cols}"))
    left = len(prior.terms) - MOST_TERMS
    return [*lines, ("", f"and {left} more terms")] if left > 0 else lines


@describe.register
def _(x: SumGP) -> Description:
    count = len(x.terms)
    dots = "" if count < 3 else "... + "
    return _make(
        f"SumGP: a sum of {count} terms",
        ("equation", f"Z = Z_1 + {dots}Z_{count}, Z_q ~ GP(b_q, kron(K_Mq, K_Nq)), independent"),
        ("shape", f"{_shape(x.shape)}, {_precision(x.dtype)}"),
        *_parts(x),
        ("mean", _mean_name(x.mean_module)),
    )


@describe.register
def _(x: ProductGraphGP) -> Description:
    parts = [list(axis.kernel.sub_kernels()) or [axis.kernel] for axis in (x.terms[0].row_axis, x.terms[0].col_axis)]
    rows, cols = (next(kernel.graph for kernel in side if isinstance(kernel, GraphKernel)) for side in parts)
    function = f"{x.variance:.4g} (I + L / {x.offset:.4g})^-{x.power:.4g}), L = kron(L_M, I) + kron(I, L_N)"
    return _make(
        "ProductGraphGP: a kernel on the product of two graphs",
        ("equation", f"Z ~ GP({_mean_name(x.mean_module)}, {function}"),
        ("shape", f"{_shape(x.shape)}, {_precision(x.dtype)}"),
        ("rows", graph_text(rows)),
        ("columns", graph_text(cols)),
        ("method", f"a sum of {len(x.terms)} diffusions kron(exp(-t L_M), exp(-t L_N)) with positive weights"),
        ("error", f"at most {x.error:.2g} in the spectral norm of the covariance"),
    )


# Likelihoods, penalties and data -----------------------------------------------------------------


@describe.register
def _(x: Likelihood) -> Description:
    form = POINTWISE.get(type(x).__name__, "y ~ p(y | z)")
    lines = [("equation", f"{form}, one observation y at a time, z = Z_mn"), ("parameters", parameter_text(x))]
    if is_pointwise(x):
        lines.append(("method", "a Gaussian approximation: of largest evidence bound ('variational'), or Laplace's"))
    return _make(f"{type(x).__name__}: a likelihood", *lines)


@describe.register(GaussianLikelihood)
@describe.register(FixedNoiseGaussianLikelihood)
def _(x: Any) -> Description:
    if isinstance(x, FixedNoiseGaussianLikelihood):
        equation = "r_t = Z_t + e_t, e_t ~ N(0, s_t), equation (1) with weights 1 / s_t"
        return _make(f"{type(x).__name__}: Gaussian noise", ("equation", equation), ("noise s", number_text(x.noise)))
    noise, lines = number_text(x.noise), []
    variance = f"{noise} / w_mn"
    if isinstance(x, AxisNoiseGaussianLikelihood):
        variance = f"{noise} exp(a_m + c_n) / w_mn"
        for name, values in (("rows a", x.row_deviation), ("columns c", x.col_deviation)):
            lines.append((name, "the same noise for all" if values is None else number_text(values)))
    equation = f"r_mn = Z_mn + e_mn, e_mn ~ N(0, {variance}), equation (1)"
    lines = [("equation", equation), *lines, ("parameters", parameter_text(x))]
    return _make(f"{type(x).__name__}: Gaussian noise", *lines)


@describe.register
def _(x: RankingLikelihood) -> Description:
    target, what = x.target, f"those of {type(x.target).__name__}"
    if isinstance(target, OrderedSimplex):
        what = f"positives >= negatives + {target.margin:.4g}, all >= 0, sum {target.total:.4g}"
    elif isinstance(target, OrderCone):
        what = f"each level >= the next lower one + {target.margin:.4g}"
    return _make(
        f"{type(x).__name__}: lists in the order of their labels",
        ("equation", "f(psi) = 1/2 sum_t w_t (psi_t - r_t(psi))^2, equation (9)"),
        ("targets", f"r(psi) is the nearest of these scores: {what}; equation (8)"),
        ("noise", f"r_t ~ N(psi_t, {number_text(x.noise)} / w_t)"),
        ("data", "labels; rows are tasks, and the order within a row is all that counts"),
    )


@describe.register
def _(x: SpectralElasticNet) -> Description:
    terms = [f"{x.ridge / 2:.4g} ||B||_F^2"] * (x.ridge > 0) + [f"{x.trace:.4g} ||B||_*"] * (x.trace > 0)
    both = f"l1 = lam alpha = {x.trace:.4g}, l2 = lam (1 - alpha) = {x.ridge:.4g}"
    numbers = f"lam {x.lam:.4g}, alpha {x.alpha:.4g}: {both}"
    equation = ("equation", f"h(B) = {' + '.join(terms) or 0}")
    return _make("SpectralElasticNet, equation (5)", equation, ("numbers", numbers))


@describe.register
def _(x: TraceBall) -> Description:
    inside = f"{x.ridge / 2:.4g} ||B||_F^2" if x.ridge else "0"
    return _make("TraceBall, equation (6)", ("equation", f"h(B) = {inside} subject to ||B||_* <= {x.radius:.4g}"))


@describe.register
def _(x: ObservedMatrix) -> Description:
    count, share = len(x), len(x) / (x.shape[0] * x.shape[1])
    rows, cols = (int((at.bincount() > 0).sum()) if count else 0 for at in (x.rows, x.cols))
    merged = f", merged from {x.num_measurements:,} measurements" if x.num_measurements > count else ""
    return _make(
        "ObservedMatrix: observed entries r_mn",
        ("shape", f"{_shape(x.shape)}, {count:,} observed ({share:.2%}) in {rows:,} rows and {cols:,} columns{merged}"),
        ("values", number_text(x.values)),
        ("weights", "all 1" if x.weights is None else number_text(x.weights)),
        ("names", _names(x)),
    )


@describe.register
def _(x: PositiveUnlabelled) -> Description:
    lists = "every row has one" if x.lists == "all" else "rows with a link have one"
    return _make(
        "PositiveUnlabelled: known links and whole lists",
        ("shape", f"{_shape(x.shape)}, {len(x):,} links ({len(x) / (x.shape[0] * x.shape[1]):.2%})"),
        ("lists", f"{len(x.pattern.chosen):,} of {x.shape[1]:,} items, {x.num_cells:,} cells in all; {lists}"),
        ("weights", f"1 for a link, {x.weight:.4g} for every other cell of a list"),
        ("names", _names(x)),
    )


def _names(data: ObservedMatrix | PositiveUnlabelled) -> str:
    given = (("rows", data.row_names), ("columns", data.col_names))
    return " and ".join(what for what, names in given if names is not None) or "none"


# Models ------------------------------------------------------------------------------------------


def _recipe_lines(model: Any) -> list[tuple[str, str]]:
    """The prior, the likelihood, and the approximation if there is one."""
    prior, likelihood = describe(model.prior), describe(model.likelihood)
    lines = [("prior", f"{prior.lines[0][1]}; {_shape(model.prior.shape)}"), *_parts(model.prior)]
    lines.append(("likelihood", f"{type(model.likelihood).__name__}: {likelihood.lines[0][1]}"))
    if is_pointwise(model.likelihood) and hasattr(model, "approximation"):
        lines.append(("approximation", f"{model.approximation}: a Gaussian with one precision for each observation"))
    return lines


def _tolerance(model: Any, single: float, double: float) -> str:
    return f"{model.tolerance or (single if model.prior.dtype == torch.float32 else double):.0e}"


@describe.register
def _(x: TraceGP) -> Description:
    certified = "(11)"
    if x.term_penalties is not None:
        own, certified = x.term_penalties, "(13)"
        mean = "min over B_1, ..., B_Q of f(psi) + sum_q h_q(B_q), equation (12); psi = b + sum_q G_Mq B_q G_Nq^T"
        pairs = zip(own.strengths, own.shares, strict=True)
        relative = (f"lam {strength:.4g} lam_max, alpha {share:.4g}" for strength, share in pairs)
        absolute = (describe(each).lines[0][1] for each in own.absolute or ())
        penalty = "; ".join(relative if own.absolute is None else absolute)
    else:
        number = "(6)" if isinstance(x.penalty, TraceBall) else "(5)"
        mean = f"min over B of f(psi) + h(B), equation {number}; psi = b + G_M B G_N^T"
        ridge, trace = (1 - x.trace_share) * x.strength / 2, x.trace_share * x.strength
        penalty = f"h(B) = lam_max ({ridge:.4g} ||B||_F^2 + {trace:.4g} ||B||_*), where B = 0 above lam_max"
        penalty = penalty if x.penalty is None else describe(x.penalty).lines[0][1]
        if (x.row_bias, x.col_bias) != (None, None):
            penalty += f"; penalties of biases: rows {x.row_bias}, columns {x.col_bias}"
    steps = f"{x.solver}, at most {x.max_iterations:,} iterations"
    return _make(
        "TraceGP: the trace-constrained matrix-variate GP",
        ("mean", mean),
        ("penalty", penalty),
        ("covariance", "equation (3), with the noise of the likelihood"),
        *_recipe_lines(x),
        ("method", f"{steps}, until the relative duality gap, equation {certified}, is {_tolerance(x, 1e-3, 1e-4)}"),
    )


@describe.register
def _(x: FullGP) -> Description:
    rule = (
        f"eigenpairs where every cell is observed with equal noise (up to {DEFAULT_LIMITS.eigenpairs:,} rows and "
        f"columns), Cholesky up to {DEFAULT_LIMITS.cholesky:,} observed cells, conjugate gradients beyond"
    )
    rule = rule if x.method == "auto" else f"{x.method}, as asked for"
    return _make(
        "FullGP: the plain matrix-variate GP",
        ("mean", "psi = b + K_*T (K_TT + D)^-1 (r - b_T), equation (2)"),
        ("covariance", "S = K_** - K_*T (K_TT + D)^-1 K_T*, equation (3)"),
        *_recipe_lines(x),
        ("method", f"{rule}; relative residual at most {_tolerance(x, 1e-5, 1e-8)}"),
    )


@describe.register
def _(x: FactorGP) -> Description:
    return _make(
        "FactorGP: the factor GP",
        ("mean", f"psi = b + U V^T with {x.rank} factors, equation (7)"),
        ("covariance", "Laplace's approximation at the maximum, for small problems"),
        *_recipe_lines(x),
        ("method", f"L-BFGS from {x.restarts} random starts (seed {x.seed}), the best is kept: not convex"),
    )


@describe.register
def _(x: PairwiseSVM) -> Description:
    losses = {"svc": "c_t (1 - y_t f_t)_+", "newton": "c_t (1 - y_t f_t)_+^2 / 2"}
    loss = losses.get(x.solver, " or ".join(f"{form} ({name})" for name, form in losses.items()))
    rule = f"svc up to {x.dense_limit:,} pairs, newton beyond" if x.solver == "auto" else f"{x.solver}, as asked for"
    return _make(
        "PairwiseSVM: a classifier of pairs, without uncertainty",
        ("equation", f"min 1/2 ||f||_K^2 + sum_t {loss}, c_t = {x.cost:.4g} w_t"),
        ("positives", f"weight {x.positive_weight}"),
        ("shape", _shape(x.prior.shape)),
        *_parts(x.prior),
        ("method", f"{rule}; relative duality gap at most {_tolerance(x, 1e-3, 1e-5)}"),
    )


# Posteriors --------------------------------------------------------------------------------------


@describe.register
def _(x: GaussianPosterior) -> Description:
    return _posterior(x, "a Gaussian process", ("mean", "psi = b + k_M A k_N^T, A the representer coefficients"))


@describe.register
def _(x: FullPosterior) -> Description:
    mean = "psi = b + K_*T (K_TT + D)^-1 (r - b_T), equation (2)"
    if x.sites is not None:
        mean = "psi = b + K_*T a, the mean of the Gaussian approximation, whose precisions stand for 1 / D"
    elif x.certificate is not None:
        mean = "psi = b + K_*T a, a coefficient for each observed cell: equation (5) with alpha 0"
    return _posterior(x, "the exact posterior", ("mean", mean))


@describe.register
def _(x: TracePosterior) -> Description:
    number = "(6)" if isinstance(x.penalty, TraceBall) else "(5)"
    norm = "" if x.mean_factors is None else f", ||B||_* = {x.trace_norm:.4g}"
    mean = ("mean", f"psi = b + G_M B G_N^T, equation {number}, rank {x.rank:,}{norm}")
    return _posterior(x, "the trace-constrained posterior", mean, ("penalty", describe(x.penalty).lines[0][1]))


@describe.register
def _(x: TraceSumPosterior) -> Description:
    lines = [("mean", f"psi = b + sum_q G_Mq B_q G_Nq^T, equation (12), rank {x.rank:,}")]
    for at, term in enumerate(x.terms[:MOST_TERMS], start=1):
        rank = "full rank" if term.rank is None else f"rank {term.rank:,}"
        lines.append((f"mean {at}", f"{describe(term.penalty).lines[0][1]}: {rank}"))
    return _posterior(x, "the trace-constrained posterior of a sum", *lines)


@describe.register
def _(x: FactorPosterior) -> Description:
    found = ", ".join(f"{value:.6g}" for value in x.restarts)
    lines = ("mean", f"psi = b + U V^T, equation (7), rank {x.rank}"), ("objective", f"of each start: {found}")
    return _posterior(x, "a local optimum", *lines)


@describe.register
def _(x: PairRanker) -> Description:
    return _posterior(x, "a support vector machine", ("mean", f"f(m, n) = {x.bias:.4g} + k_M(m) A k_N(n)^T"))


def _posterior(x: GaussianPosterior, what: str, *mean: tuple[str, str]) -> Description:
    """The ``mean``, and what all posteriors have: what they were given, prior, noise, covariance, evidence."""
    given = f"{len(x.conditional.pairs):,} observed cells"
    if x._fit is not None and isinstance(x._fit.data, PositiveUnlabelled):
        given = f"{len(x._fit.data):,} links, {x._fit.data.num_cells:,} cells of whole lists"
    lines = [*mean, ("shape", f"{_shape(x.shape)}, {given}, {_precision(x.prior.dtype)}")]
    lines += [("prior", describe(x.prior).lines[0][1]), *_parts(x.prior)]
    if not isinstance(x.conditional, NoCovariance) and x.noise is not None:
        lines.append(("noise", f"{x.noise:.4g} for weight 1"))
    lines.append(("covariance", _covariance(x)))
    sites = getattr(x, "sites", None)
    evidence = {"certificate": getattr(x, "certificate", None), "solved": getattr(x, "solve_report", None)}
    evidence["approximation"] = None if sites is None else sites.report
    lines += [(name, report.in_words()) for name, report in evidence.items() if report is not None]
    return _make(f"{type(x).__name__}: {what}", *lines)


def _covariance(posterior: GaussianPosterior) -> str:
    """Which covariance, how its systems are solved, and why."""
    inner, scale = unscaled(posterior.conditional)
    text = "" if scale == 1 else f"{scale:.4g} times "
    if isinstance(inner, NoCovariance):
        return f"none: {inner.reason}"
    if isinstance(inner, LaplaceCovariance):
        unknowns = inner.x.numel() + inner.z.numel()
        fits = "" if unknowns <= inner.max_unknowns else f", offered up to {inner.max_unknowns:,}"
        return f"{text}Laplace's approximation, by a Hessian of {unknowns:,} unknowns{fits}"
    if isinstance(inner, WholeListCovariance):
        why = f"more than {inner.limits.listed_cells:,} cells"
        return f"{text}equation (3), from the nearest cells with a proved bound on what the others add: {why}"
    if not isinstance(inner, ConditionalCovariance):
        return f"{text}{type(inner).__name__}"
    count, limits = len(inner.pairs), inner.limits
    if inner._method != "auto":
        why = f"{inner._method}, as asked for"
    elif inner._has_closed_form and max(inner.pairs.shape) <= limits.eigenpairs:
        why = "eigenpairs: every cell was observed with equal noise"
    elif inner.has_dense:
        why = f"Cholesky: {count:,} observed cells, at most {limits.cholesky:,}"
    else:
        many = "" if count > limits.dense else f"; Cholesky up to {limits.dense:,} where many variances are asked for"
        why = f"conjugate gradients: {count:,} observed cells, more than {limits.cholesky:,}{many}"
    return f"{text}equation (3), by {why}"
