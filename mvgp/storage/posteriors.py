"""Save a posterior to a file, and load it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpytorch.priors import Prior

from ..checks import check_flag, check_instance, check_path
from ..errors import InputError, StorageError
from ..linalg.conjugate_gradients import SolveReport
from ..mean.problem import Certificate, SpectralElasticNet, TraceBall
from ..posteriors.covariance import ConditionalCovariance, NoCovariance, unscaled
from ..posteriors.factor import FactorPosterior, LaplaceCovariance
from ..posteriors.fitted import FullPosterior, TracePosterior
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.query import LowRankCoefficients, SparseCoefficients
from ..posteriors.whole_lists import WholeListCovariance
from ..priors.matrix_gp import MatrixGP
from .archive import Tree, read, wrap_storage_errors, write
from .budget import Budget, Spending, check_budget
from .covariances import (
    describe_coefficients,
    describe_covariance,
    describe_low_rank,
    restore_coefficients,
    restore_covariance,
    restore_low_rank,
)
from .fields import Fields
from .priors import describe_prior, restore_prior
from .trial import align_factors, check_answers, check_operator, check_size


def _probability(parts: Fields, name: str) -> float | None:
    return parts.number(name, 0, 1) if parts.has(name) else None


UNLIMITED = Budget(kernels=2**62, memory_bytes=2**62, operations=2**90, iterations=2**62)  # for what is there already
COVARIANCES: dict[type[GaussianPosterior], tuple[type, ...]] = {  # that each posterior may have
    FullPosterior: (ConditionalCovariance,),
    TracePosterior: (ConditionalCovariance, WholeListCovariance, NoCovariance),
    FactorPosterior: (LaplaceCovariance,),
}
KINDS = {kind.__name__: kind for kind in COVARIANCES}
RECORDS: dict[type, dict[str, Callable[[Fields, str], Any]]] = {  # plain records: how each attribute is read
    SolveReport: {
        "method": Fields.label,
        "residual": Fields.not_negative,
        "tolerance": Fields.positive,
        "iterations": Fields.whole,
    },
    Certificate: {
        "primal": Fields.number,
        "dual": Fields.number,
        "tolerance": Fields.positive,
        "iterations": Fields.whole,
        "rank": Fields.whole,
        "solver": Fields.label,
        "failure_probability": _probability,
    },
    SpectralElasticNet: {"lam": Fields.number, "alpha": Fields.number},
    TraceBall: {"radius": Fields.number, "ridge": Fields.number},
}
PENALTIES = {kind.__name__: kind for kind in (SpectralElasticNet, TraceBall)}


def describe_posterior(posterior: GaussianPosterior) -> Tree:
    """The prior, the mean, the covariance, and what is particular to the kind."""
    kind = type(posterior).__name__
    if KINDS.get(kind) is not type(posterior):
        raise InputError(
            f"{kind} cannot be saved; the posteriors of FullGP, TraceGP and FactorGP can ({', '.join(KINDS)}, exactly "
            "and not as subclasses)"
        )
    own: Tree = {"noise": posterior._noise}
    if isinstance(posterior, FactorPosterior):
        own["objective"], own["rank"] = float(posterior.objective), int(posterior.rank)
        own["restarts"] = [float(value) for value in posterior.restarts]
    elif isinstance(posterior, FullPosterior | TracePosterior):
        own["evidence_scale"] = posterior._evidence_scale
        own["certificate"] = _describe_record(posterior.certificate)
        if isinstance(posterior, FullPosterior):
            own["solve_report"] = _describe_record(posterior.solve_report)
        else:
            penalty = posterior.penalty
            if PENALTIES.get(type(penalty).__name__) is not type(penalty):
                raise InputError(f"penalty: {' and '.join(PENALTIES)} can be saved, got {type(penalty).__name__}")
            own["penalty"] = {"kind": type(penalty).__name__, **(_describe_record(penalty) or {})}
            own["mean"] = describe_low_rank(posterior.mean_factors)
    return {
        "kind": kind,
        "prior": describe_prior(posterior.prior),
        "coefficients": describe_coefficients(posterior.coefficients),
        "covariance": describe_covariance(posterior.conditional),
        "own": own,
    }


@torch.no_grad()
def restore_posterior(parts: Fields, spending: Spending, *, trial: bool) -> GaussianPosterior:
    """The inverse of :func:`describe_posterior`; kernels are evaluated as a fit does.

    :param trial: whether to ask it some questions, and refuse it if it has no answer.
    """
    kind = KINDS[parts.text("kind", KINDS)]
    parts.only("kind", "prior", "coefficients", "covariance", "own")
    prior = restore_prior(parts.fields("prior"), spending).requires_grad_(False)
    ops = prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach()
    largest = [
        check_operator(op, f"{parts.where}.prior.{side}", thorough=trial)
        for op, side in zip(ops, ("row", "col"), strict=True)
    ]
    coefficients = restore_coefficients(parts.fields("coefficients"), prior)
    covariance = restore_covariance(parts.fields("covariance"), prior, ops, spending)
    inner = covariance if isinstance(covariance, NoCovariance) else unscaled(covariance)[0]
    if not isinstance(inner, COVARIANCES[kind]) or (kind is FactorPosterior and inner is not covariance):
        raise StorageError(
            f"{parts.where}.covariance: expected that of a {kind.__name__}, got {type(covariance).__name__}"
        )
    if isinstance(coefficients, SparseCoefficients):
        pattern, pairs = coefficients.pattern, covariance.pairs
        if not (torch.equal(pattern.rows, pairs.rows) and torch.equal(pattern.cols, pairs.cols)):
            raise StorageError(
                f"{parts.where}.coefficients: expected the pairs that the covariance is given, got others"
            )
    check_size(parts.where, prior, coefficients, covariance, largest)
    restore: Callable[..., GaussianPosterior] = {
        FullPosterior: _restore_full,
        TracePosterior: _restore_trace,
        FactorPosterior: _restore_factor,
    }[kind]
    own = parts.fields("own")
    posterior = restore(own, prior, ops, coefficients, covariance)
    posterior._noise = own.optional("noise", Fields.positive)
    if trial:
        check_answers(posterior, parts.where)
    return posterior


def _restore_full(own: Fields, *parts: Any) -> FullPosterior:
    own.only("noise", "evidence_scale", "certificate", "solve_report")
    if not isinstance(parts[2], SparseCoefficients):
        raise StorageError(f"{own.where}: expected a coefficient for each pair, got a mean of low rank")
    return FullPosterior(
        *parts,
        solve_report=own.optional("solve_report", partial(_restore_record, SolveReport)),
        certificate=own.optional("certificate", partial(_restore_record, Certificate)),
        evidence_scale=own.optional("evidence_scale", Fields.not_negative),
    )


def _restore_trace(own: Fields, *parts: Any) -> TracePosterior:
    own.only("noise", "evidence_scale", "certificate", "penalty", "mean")
    prior, ops, coefficients, _ = parts
    certificate, mean = _restore_record(Certificate, own, "certificate"), None
    if own.has("mean"):
        mean = restore_low_rank(own.fields("mean"), prior, ops)
        if (
            not isinstance(coefficients, LowRankCoefficients)
            or not torch.equal(coefficients.right, mean.right)
            or not torch.equal(coefficients.left, mean.left * mean.values)
        ):
            raise StorageError(f"{own.where}.mean: expected the factors of the coefficients, got others")
        if certificate.rank != mean.rank:
            raise StorageError(f"{own.where}.certificate.rank: expected {mean.rank}, got {certificate.rank}")
    elif not isinstance(coefficients, SparseCoefficients):
        raise StorageError(f"{own.where}.mean: expected the factors of a mean of low rank, got none")
    kind = PENALTIES[own.fields("penalty").text("kind", PENALTIES)]
    return TracePosterior(
        *parts,
        certificate=certificate,
        penalty=_restore_record(kind, own, "penalty", "kind"),
        mean_factors=mean,
        evidence_scale=own.optional("evidence_scale", Fields.not_negative),
    )


def _restore_factor(own: Fields, *parts: Any) -> FactorPosterior:
    own.only("noise", "objective", "rank", "restarts")
    prior, ops, coefficients, covariance = parts
    rank = own.whole("rank")
    if not isinstance(coefficients, LowRankCoefficients):
        raise StorageError(f"{own.where}: expected a mean of low rank, got another")
    if not rank == coefficients.left.shape[1] == covariance.x.shape[1]:
        raise StorageError(f"{own.where}.rank: expected {coefficients.left.shape[1]} as in its factors, got {rank}")
    return FactorPosterior(
        prior,
        ops,
        coefficients,
        align_factors(covariance, coefficients, ops, own.where),
        objective=own.number("objective"),
        restarts=own.each("restarts", Fields.number),
        rank=rank,
    )


def _describe_record(record: Any) -> Tree | None:
    if record is None:
        return None
    tree = {name: getattr(record, name) for name in RECORDS[type(record)]}
    for name, value in tree.items():
        if value is not None and not isinstance(value, str):
            tree[name] = int(value) if RECORDS[type(record)][name] is Fields.whole else float(value)
    return tree


def _restore_record(kind: type, parent: Fields, name: str, *besides: str) -> Any:
    parts = parent.fields(name)
    parts.only(*RECORDS[kind], *besides)
    return kind(**{name: read_value(parts, name) for name, read_value in RECORDS[kind].items()})


def save(posterior: GaussianPosterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to a file, whole or not at all; what cannot be saved is an error before anything is written.

    :param posterior: of ``FullGP``, ``TraceGP`` or ``FactorGP``, over an M x N matrix.
    :param path: of the file; one that is there is replaced.

    Example:
        >>> import gpytorch, mvgp, tempfile
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.storage import save
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
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
    :param budget: limits for size, memory and work, checked before anything is allocated; the usual ones of
        :class:`~mvgp.storage.Budget` when left out.
    :param trial: whether the posterior is asked about some cells before it is returned, and refused if it has no
        answer. False is for a posterior whose variances failed when it was saved, too, or take long.

    Example:
        >>> import gpytorch, mvgp, tempfile, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 4], [0.5, -1.0], shape=(3, 5))
        >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/fitted.mvgp")
        ...     loaded = mvgp.load(f"{folder}/fitted.mvgp")
        >>> torch.equal(loaded.variance([0, 1], [1, 1]), posterior.variance([0, 1], [1, 1]))
        True

    """
    budget, trial = check_budget(budget), check_flag(trial, "trial")
    with wrap_storage_errors(path):
        return restore_posterior(Fields(read(path, budget), "content"), Spending(budget), trial=trial)


def _check_same_values(prior: MatrixGP, restored: MatrixGP) -> None:
    """Refuse a prior of which a parameter or a buffer would be lost, save for priors of hyperparameters."""
    left_out = tuple(f"{name}." for name, module in prior.named_modules() if isinstance(module, Prior))
    values = dict([*restored.named_parameters(), *restored.named_buffers()])
    for name, expected in [*prior.named_parameters(), *prior.named_buffers()]:
        kept = name in values and torch.equal(values[name], expected.cpu())
        if not kept and not name.startswith(left_out):
            raise InputError(f"prior.{name}: expected the same values after restoring, got others; describe them")
