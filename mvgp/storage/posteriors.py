"""Save a posterior to a file, and load it: its prior, its mean, its covariance, and what is particular to its kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, cast, get_args

import torch
from gpytorch.priors import Prior
from torch import Tensor

from ..checks import check_flag, check_instance, check_path
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError, SizeError, StorageError
from ..linalg.conjugate_gradients import SolveReport
from ..linalg.pairs import CompleteRows, PairIndex, Pattern
from ..linalg.solvers import Method
from ..linalg.spectra import Terms, root
from ..mean.low_rank import LowRank
from ..mean.problem import Certificate, SpectralElasticNet, TraceBall
from ..posteriors.covariance import ConditionalCovariance, NoCovariance, ScaledCovariance, WholeListCovariance
from ..posteriors.factor import FactorPosterior, LaplaceCovariance
from ..posteriors.gaussian import FullPosterior, GaussianPosterior, TracePosterior
from ..posteriors.query import LowRankCoefficients, SparseCoefficients
from ..posteriors.trace_sum import TraceSumPosterior
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from .archive import Tree, read, wrap_storage_errors, write
from .fields import Budget, Fields, Spending
from .posterior_parts import (
    describe_explanations,
    describe_likelihood,
    restore_explanations,
    restore_likelihood,
)
from .priors import describe_prior, prior_parts, restore_prior
from .trial import Operators, align_factors, check_answers, check_operator, check_size

UNLIMITED = Budget(kernels=2**62, memory_bytes=2**62, operations=2**90, iterations=2**62)  # for what is there already
IMAGE_ERROR = 1e-3  # relative; far above rounding, on this machine or another
REASONS: dict[str, type[Exception]] = {"InputError": InputError, "SizeError": SizeError}
COVARIANCES: dict[type[GaussianPosterior], tuple[type, ...]] = {  # that each posterior may have
    FullPosterior: (ConditionalCovariance, WholeListCovariance, NoCovariance),
    TracePosterior: (ConditionalCovariance, WholeListCovariance, NoCovariance),
    TraceSumPosterior: (ConditionalCovariance, WholeListCovariance, NoCovariance),
    FactorPosterior: (LaplaceCovariance,),
}
POSTERIORS = {kind.__name__: kind for kind in COVARIANCES}
SUMS = (FullPosterior, TraceSumPosterior)  # that sums of terms can have
AnyPrior = MatrixGP | SumGP
_STORED: dict[type, str] = {  # the parts of each class in files, with the attribute where that has another name
    FullPosterior: "noise=_noise evidence_scale=_evidence_scale certificate solve_report likelihood",
    TracePosterior: "noise=_noise evidence_scale=_evidence_scale certificate penalty mean=mean_factors likelihood",
    TraceSumPosterior: "noise=_noise evidence_scale=_evidence_scale certificate penalties means likelihood",
    FactorPosterior: "noise=_noise objective rank restarts likelihood",
    SparseCoefficients: "rows=pattern.rows cols=pattern.cols values",
    LowRankCoefficients: "left right",
    ConditionalCovariance: "tolerance method=_method max_iterations pairs noise",
    LaplaceCovariance: "x z pairs noise",
    WholeListCovariance: "weight lists tolerance pairs noise",
    ScaledCovariance: "scale of=inner",
    NoCovariance: "pairs reason error",
    PairIndex: "rows cols",
    LowRank: "left right values left_image right_image",
    SolveReport: "method residual tolerance iterations",
    Certificate: "primal dual tolerance iterations rank solver failure_probability",
    SpectralElasticNet: "lam alpha",
    TraceBall: "radius ridge",
}
STORED = {
    kind: {name: attribute or name for name, _, attribute in (part.partition("=") for part in parts.split())}
    for kind, parts in _STORED.items()
}
KINDS: dict[str, dict[str, type]] = {  # the classes that a part can have, by their names in files
    "coefficients": {"sparse": SparseCoefficients, "low rank": LowRankCoefficients},
    "covariance": {
        "conditional": ConditionalCovariance,
        "laplace": LaplaceCovariance,
        "whole lists": WholeListCovariance,
        "scaled": ScaledCovariance,
        "none": NoCovariance,
    },
    "of": {"conditional": ConditionalCovariance, "whole lists": WholeListCovariance},
    "penalty": {kind.__name__: kind for kind in (SpectralElasticNet, TraceBall)},
}
SAVED = {
    "coefficients": "coefficients: SparseCoefficients and LowRankCoefficients",
    "covariance": "conditional: the covariances of FullGP, TraceGP and FactorGP",
    "of": "conditional: scaled covariances of FullGP and TraceGP",
    "penalty": "penalty: SpectralElasticNet and TraceBall",
}
LATER = {"lists"}  # parts that older files do not have
NAMES = {kind: name for kinds in KINDS.values() for name, kind in kinds.items()}
READERS: dict[str, Callable[[Fields, str], Any]] = {  # of the parts of plain records; the others are numbers
    "method": Fields.label,
    "solver": Fields.label,
    "residual": Fields.not_negative,
    "tolerance": Fields.positive,
    "iterations": Fields.whole,
    "rank": Fields.whole,
    "failure_probability": lambda parts, name: parts.number(name, 0, 1) if parts.has(name) else None,
}


def describe_posterior(posterior: GaussianPosterior) -> Tree:
    """The prior, the mean, the covariance, and what is particular to the kind."""
    kind = type(posterior).__name__
    if POSTERIORS.get(kind) is not type(posterior):
        raise InputError(
            f"{kind} cannot be saved; the posteriors of FullGP, TraceGP and FactorGP can ({', '.join(POSTERIORS)}, "
            "exactly and not as subclasses)"
        )
    return {
        "kind": kind,
        "prior": describe_prior(posterior.prior),
        "coefficients": _describe_coefficients(posterior.coefficients),
        "covariance": _describe("covariance", posterior.conditional),
        "own": _describe("own", posterior),
        "explain": describe_explanations(posterior),
    }


def _describe_coefficients(coefficients: Any) -> Tree:
    """Of all terms together, or of each; those of whole rows without the position of every cell."""
    if isinstance(coefficients, list | tuple):
        return {"kind": "terms", "terms": [_describe_coefficients(own) for own in coefficients]}
    if type(coefficients) is SparseCoefficients and isinstance(coefficients.pattern, CompleteRows):
        return {"kind": "whole rows", "chosen": coefficients.pattern.chosen, "values": coefficients.values}
    tree: Tree = _describe("coefficients", coefficients)
    return tree


def _describe(name: str, value: Any) -> Any:
    """An object by its parts, a class by its name, and a number as a plain one."""
    if name == "likelihood":
        return describe_likelihood(value)
    if name in KINDS and type(value) not in KINDS[name].values():
        raise InputError(f"{SAVED[name]} can be saved, got {type(value).__name__}")
    if type(value) in STORED:
        tree = {part: _describe(part, attrgetter(at)(value)) for part, at in STORED[type(value)].items()}
        return {"kind": NAMES[type(value)], **tree} if type(value) in NAMES else tree
    if isinstance(value, list | tuple):
        return [_describe(name, item) for item in value]
    if isinstance(value, Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, type) and value not in REASONS.values():
        raise InputError(f"conditional: {' and '.join(REASONS)} can be saved, got {value.__name__}")
    return value.__name__ if isinstance(value, type) else value


def _restore_kind(part: str, parts: Fields) -> type:
    """The class of a part, which has the parts of that class and no others."""
    kind = KINDS[part][parts.text("kind", KINDS[part])]
    absent = LATER - parts.keys()
    parts.only("kind", *(name for name in STORED[kind] if name not in absent))
    return kind


def _restore_record(kind: type, parent: Fields, name: str, *besides: str) -> Any:
    parts = parent.fields(name)
    parts.only(*STORED[kind], *besides)
    return kind(**{part: READERS.get(part, Fields.number)(parts, part) for part in STORED[kind]})


@torch.no_grad()
def restore_posterior(parts: Fields, spending: Spending, *, trial: bool) -> GaussianPosterior:
    """The inverse of :func:`describe_posterior`; with a ``trial``, what does not answer some questions is refused."""
    kind = POSTERIORS[parts.text("kind", POSTERIORS)]
    later = ["explain"] if parts.holds("explain") else []
    parts.only("kind", "prior", "coefficients", "covariance", "own", *later)
    prior = restore_prior(parts.fields("prior"), spending).requires_grad_(False)
    terms = tuple((term.row_axis.covariance().detach(), term.col_axis.covariance().detach()) for term in prior.terms)
    parts.require(len(terms) == 1 or kind in SUMS, "kind", "one that sums of terms have", kind.__name__)
    ops, largest = terms[0], []
    for pair, inside in zip(terms, prior_parts(parts.fields("prior")), strict=True):
        sides = (inside.fields(side) for side in ("row", "col"))
        bounds = [check_operator(op, side, thorough=trial) for op, side in zip(pair, sides, strict=True)]
        largest.append(bounds[0] * bounds[1])
    coefficients: Any = _restore_coefficients(parts.fields("coefficients"), prior)
    covariance = _restore_covariance(parts.fields("covariance"), prior, terms, spending, "covariance")
    scaled = isinstance(covariance, ScaledCovariance)
    fits = isinstance(covariance.inner if scaled else covariance, COVARIANCES[kind])
    fits = fits and not (scaled and kind is FactorPosterior)
    parts.require(fits, "covariance", f"that of a {kind.__name__}", type(covariance).__name__)
    each = coefficients if isinstance(coefficients, list) else [coefficients] * len(terms)
    for held in each:
        if isinstance(held, SparseCoefficients):
            same = _same_cells(held.pattern, covariance.inner if scaled else covariance)
            parts.require(same, "coefficients", "the pairs that the covariance is given")
    check_size(parts, prior, each, covariance, largest)
    own = parts.fields("own")
    predicts = "likelihood" in own.keys()  # noqa: SIM118 - a method of Fields; files of older versions have none
    own.only(*(part for part in STORED[kind] if predicts or part != "likelihood"))
    if kind is TracePosterior:
        named = _restore_trace(own, prior, ops, coefficients)
    elif kind is TraceSumPosterior:
        own.require(isinstance(coefficients, list), "", "the coefficients of each term", "of all")
        named = _restore_trace_sum(own, prior, terms, coefficients)
    elif kind is FullPosterior:
        fits = isinstance(coefficients, SparseCoefficients)
        own.require(fits, "", "a coefficient for each pair", "a mean of low rank")
        named = {
            "solve_report": own.optional("solve_report", partial(_restore_record, SolveReport)),
            "certificate": own.optional("certificate", partial(_restore_record, Certificate)),
        }
    else:
        own.require(isinstance(coefficients, LowRankCoefficients), "", "a mean of low rank", "another")
        rank = coefficients.left.shape[1]
        same = own.whole("rank") == rank == covariance.x.shape[1]
        own.require(same, "rank", f"{rank} as in its factors", own.whole("rank"))
        covariance = align_factors(covariance, coefficients, ops, own)
        restarts = own.each("restarts", Fields.number)
        named = {"objective": own.number("objective"), "restarts": restarts, "rank": rank}
    if kind is not FactorPosterior:
        named["evidence_scale"] = own.optional("evidence_scale", Fields.not_negative)
    posterior = kind(prior, terms, coefficients, covariance, **named)
    posterior._noise = own.optional("noise", Fields.positive)
    if predicts:
        posterior.likelihood = own.optional("likelihood", partial(restore_likelihood, dtype=prior.dtype))
    if later and parts.has("explain"):
        means = named.get("means") or [named.get("mean_factors")] * len(terms)
        pairs = (covariance.inner if scaled else covariance).pairs
        posterior._duals = restore_explanations(parts.fields("explain"), coefficients, terms, means, pairs)
        if not isinstance(coefficients, list):
            posterior._duals = posterior._duals[0]
    if trial:
        check_answers(posterior, parts)
    return posterior


def _restore_trace(own: Fields, prior: MatrixGP, ops: Operators, coefficients: Any) -> dict[str, Any]:
    certificate, mean = _restore_record(Certificate, own, "certificate"), None
    if own.has("mean"):
        mean = _restore_low_rank(own.fields("mean"), prior, ops)
        own.require(_holds(mean, coefficients), "mean", "the factors of the coefficients")
        own.require(certificate.rank == mean.rank, "certificate.rank", str(mean.rank), certificate.rank)
    else:
        fits = isinstance(coefficients, SparseCoefficients)
        own.require(fits, "mean", "the factors of a mean of low rank", "none")
    penalty = _restore_record(_restore_kind("penalty", own.fields("penalty")), own, "penalty", "kind")
    return {"certificate": certificate, "penalty": penalty, "mean_factors": mean}


def _restore_trace_sum(own: Fields, prior: SumGP, terms: Terms, coefficients: list[Any]) -> dict[str, Any]:
    certificate = _restore_record(Certificate, own, "certificate")
    penalties = [
        SpectralElasticNet(**{name: inner.number(name) for name in STORED[SpectralElasticNet]})
        for inner in own.each("penalties", Fields.fields)
        if _restore_kind("penalty", inner) is SpectralElasticNet
    ]
    means = own.each("means", Fields.optional_fields)
    counts = len(penalties) == len(means) == len(coefficients) == len(terms)
    own.require(counts, "penalties", f"one for each of {len(terms)} terms, and as many means and coefficients")
    restored = []
    for inner, term, ops, held in zip(means, prior.terms, terms, coefficients, strict=True):
        mean = None if inner is None else _restore_low_rank(inner, term, ops)
        restored.append(mean)
        own.require(_holds(mean, held), "means", "the factors of the coefficients")
    rank = sum(mean.rank for mean in restored if mean is not None)
    own.require(certificate.rank == rank, "certificate.rank", str(rank), certificate.rank)
    return {"certificate": certificate, "penalties": penalties, "means": restored}


def _holds(mean: LowRank | None, coefficients: Any) -> bool:
    """Whether coefficients are those of a mean of low rank, or of a ridge where there is none."""
    if mean is None:
        return isinstance(coefficients, SparseCoefficients)
    return (
        isinstance(coefficients, LowRankCoefficients)
        and torch.equal(coefficients.right, mean.right)
        and torch.equal(coefficients.left, mean.left * mean.values)
    )


def _same_cells(pattern: Pattern | CompleteRows, covariance: Any) -> bool:
    """Whether coefficients are on the cells that a covariance is given."""
    if isinstance(covariance, WholeListCovariance):
        return isinstance(pattern, CompleteRows) and torch.equal(pattern.chosen, covariance._listed)
    pairs = covariance.pairs
    return torch.equal(pattern.rows, pairs.rows) and torch.equal(pattern.cols, pairs.cols)


def _restore_covariance(parts: Fields, prior: AnyPrior, terms: Terms, spending: Spending, name: str) -> Any:
    """A covariance; solvers and roots are made again from the prior's kernels."""
    kind = _restore_kind(name, parts)
    if kind is ScaledCovariance:
        inner = _restore_covariance(parts.fields("of"), prior, terms, spending, "of")
        return ScaledCovariance(inner, parts.positive("scale"))
    parts.fields("pairs").only(*STORED[PairIndex])
    pairs = PairIndex(*_restore_cells(parts.fields("pairs"), prior.shape), prior.shape)
    if kind is NoCovariance:
        return NoCovariance(pairs, parts.label("reason", 1000), REASONS[parts.text("error", REASONS)])
    noise = parts.finite("noise", prior.dtype, () if parts.array("noise").dim() == 0 else (len(pairs),))
    smallest = float(noise.min()) if noise.numel() else 1.0
    parts.require(smallest >= 0, "noise", "variances that are not negative", smallest)
    parts.require(smallest > 0, "noise", "positive variances", 0)
    if kind is LaplaceCovariance:
        parts.require(len(terms) == 1, "", "a covariance that sums of terms have", "another")
        ops = terms[0]
        for op in ops:  # dense eigenpairs, at most
            spending.need(parts.where, memory_bytes=4 * 8 * op.shape[-1] ** 2, operations=10 * op.shape[-1] ** 3)
        row_root, col_root = root(ops[0]), root(ops[1])
        x = parts.finite("x", prior.dtype, (row_root.shape[-1], None))
        z = parts.finite("z", prior.dtype, (col_root.shape[-1], x.shape[1]))
        return LaplaceCovariance(row_root, col_root, x, z, pairs, noise)
    tolerance, finest = parts.positive("tolerance"), torch.finfo(prior.dtype).eps
    parts.require(finest <= tolerance < 1, "tolerance", f"a number from {finest:.2g} to 1", tolerance)
    if kind is WholeListCovariance:
        parts.require(noise.dim() == 0, "noise", "one number", noise.numel())
        lists: Any = parts.text("lists", ("linked", "all")) if parts.holds("lists") else "linked"
        links = PositiveUnlabelled(pairs.rows, pairs.cols, prior.shape, parts.number("weight"), lists=lists)
        return WholeListCovariance(terms, links, noise, tolerance=tolerance)
    iterations = parts.whole("max_iterations", 1)
    spending.budget.allows("iterations", iterations, f"{parts.where}.max_iterations")
    method = cast(Method, parts.text("method", get_args(Method)))
    complete = noise.dim() == 0 and len(pairs) == prior.shape[0] * prior.shape[1]
    parts.require(method != "spectral" or complete, "method", "another than spectral", "it, which is for whole grids")
    return ConditionalCovariance(terms, pairs, noise, tolerance=tolerance, method=method, max_iterations=iterations)


def _restore_coefficients(parts: Fields, prior: AnyPrior) -> Any:
    """One number for each pair, or two factors; or such for each term."""
    kind = parts.text("kind", (*KINDS["coefficients"], "whole rows", "terms"))
    if kind == "terms":
        parts.only("kind", "terms")
        inside = parts.each("terms", Fields.fields)
        parts.require(len(inside) == len(prior.terms), "terms", f"{len(prior.terms)} as in the prior", len(inside))
        for inner in inside:
            inner.require(inner.text("kind") != "terms", "kind", "coefficients of one term", "terms")
        return [_restore_coefficients(inner, prior) for inner in inside]
    if kind == "whole rows":
        parts.only("kind", "chosen", "values")
        chosen = parts.positions("chosen", prior.shape[0])
        parts.require((chosen.diff() > 0).all(), "chosen", "distinct rows, ascending")
        values = parts.finite("values", prior.dtype, (len(chosen) * prior.shape[1],))
        return SparseCoefficients(CompleteRows(chosen, prior.shape), values)
    if _restore_kind("coefficients", parts) is LowRankCoefficients:
        return LowRankCoefficients(*_restore_factors(parts, ("left", "right"), prior))
    rows, cols = _restore_cells(parts, prior.shape)
    return SparseCoefficients(Pattern(rows, cols, prior.shape), parts.finite("values", prior.dtype, (len(rows),)))


def _restore_low_rank(parts: Fields, prior: MatrixGP, ops: Operators) -> LowRank:
    """A matrix in dual coordinates."""
    parts.only(*STORED[LowRank])
    values = parts.finite("values", prior.dtype, (None,))
    descending = (values >= 0).all() and (values[1:] <= values[:-1]).all()
    parts.require(descending, "values", "singular values, descending")
    duals = _restore_factors(parts, ("left", "right"), prior, values.numel())
    images = _restore_factors(parts, ("left_image", "right_image"), prior, values.numel())
    for name, op, dual, image in zip(("left", "right"), ops, duals, images, strict=True):
        gap = float((op._matmul(dual) - image).norm())
        same = gap <= IMAGE_ERROR * float(image.norm())
        parts.require(same, f"{name}_image", f"the kernel times {name}", "another matrix")
    return LowRank(*duals, values, *images)


def _restore_cells(parts: Fields, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(T,) rows and (T,) columns within the matrix: distinct pairs, row by row, as solvers expect them."""
    rows = parts.positions("rows", shape[0])
    cols = parts.positions("cols", shape[1], rows.numel())
    parts.require(((rows * shape[1] + cols).diff() > 0).all(), "", "distinct pairs, row by row")
    return rows, cols


def _restore_factors(
    parts: Fields, names: tuple[str, str], prior: AnyPrior, rank: int | None = None
) -> tuple[Tensor, Tensor]:
    """(M, R) and (N, R), finite"""
    left = parts.finite(names[0], prior.dtype, (prior.shape[0], rank))
    return left, parts.finite(names[1], prior.dtype, (prior.shape[1], left.shape[1]))


def save(posterior: GaussianPosterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to a file, whole or not at all; what cannot be saved is an error before anything is written.

    :param posterior: of ``FullGP``, ``TraceGP`` or ``FactorGP``, over an M x N matrix.
    :param path: of the file; one that is there is replaced.

    Example:
        >>> import gpytorch, mvgp, tempfile, torch
        >>> from mvgp.storage import save
        >>> kernel = mvgp.kernels.PrecomputedKernel(torch.eye(3, dtype=torch.float64))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 2], [0.5, -1.0], shape=(3, 3))
        >>> posterior = mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(posterior, folder + "/posterior.mvgp")
        ...     mvgp.load(folder + "/posterior.mvgp").shape
        (3, 3)

    """
    path = check_path(path)
    check_instance(posterior, "posterior", GaussianPosterior, "a posterior of mvgp")
    tree = describe_posterior(posterior)
    try:  # what cannot be restored should be known now
        restored = restore_prior(Fields(tree["prior"], "prior"), Spending(UNLIMITED))
    except StorageError as error:
        raise InputError(f"the prior cannot be saved: {error}") from error
    _check_same_values(posterior.prior, restored)
    write(path, tree)


def load(path: str | os.PathLike[str], *, budget: Budget | None = None, trial: bool = True) -> GaussianPosterior:
    """The posterior that was saved to a file, on the CPU. Nothing in a file can make it run code.

    A file that is cut short, changed or something else is a :class:`~mvgp.errors.StorageError`, and so is one whose
    numbers make no posterior, or which asks for more than the budget. A missing one is a ``FileNotFoundError``, what is
    no path an :class:`~mvgp.errors.InputError`; there are no other errors.

    :param path: of the file, a regular one.
    :param budget: limits for size, memory and work, checked before anything is allocated.
    :param trial: whether the posterior is asked about some cells before it is returned, and refused if it has no
        answer. False is for a posterior whose variances failed when it was saved, too, or take long.

    Example:
        >>> import gpytorch, mvgp, tempfile, torch
        >>> kernel = mvgp.kernels.DiffusionKernel(mvgp.kernels.Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 4], [0.5, -1.0], shape=(3, 5))
        >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/fitted.mvgp")
        ...     loaded = mvgp.load(f"{folder}/fitted.mvgp")
        >>> torch.equal(loaded.variance([0, 1], [1, 1]), posterior.variance([0, 1], [1, 1]))
        True

    """
    spending, trial = Spending(budget), check_flag(trial, "trial")
    with wrap_storage_errors(path):
        return restore_posterior(Fields(read(path, spending.budget), "content"), spending, trial=trial)


def _check_same_values(prior: AnyPrior, restored: AnyPrior) -> None:
    """Refuse a prior of which a parameter or a buffer would be lost, save for priors of hyperparameters."""
    left_out = tuple(f"{name}." for name, module in prior.named_modules() if isinstance(module, Prior))
    values = dict([*restored.named_parameters(), *restored.named_buffers()])
    for name, expected in [*prior.named_parameters(), *prior.named_buffers()]:
        kept = name in values and torch.equal(values[name], expected.cpu())
        if not kept and not name.startswith(left_out):
            raise InputError(f"prior.{name}: expected the same values after restoring, got others; describe them")
