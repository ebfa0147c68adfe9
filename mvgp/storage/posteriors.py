"""Save a posterior to a file, and load it."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..checks import check_instance, check_path
from ..errors import InputError, StorageError
from ..linalg.pairs import PairIndex
from ..posteriors.covariance import ConditionalCovariance, NoCovariance, unscaled
from ..posteriors.factor import FactorPosterior, LaplaceCovariance
from ..posteriors.fitted import FullPosterior, TracePosterior
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.query import LowRankCoefficients, SparseCoefficients
from ..posteriors.whole_lists import WholeListCovariance
from .archive import read, told, write
from .budget import Budget, Spending, Tree, check_budget, on_cpu
from .covariances import (
    check_same_mean,
    describe_certificate,
    describe_coefficients,
    describe_covariance,
    describe_low_rank,
    describe_penalty,
    describe_solve_report,
    restore_certificate,
    restore_coefficients,
    restore_covariance,
    restore_low_rank,
    restore_penalty,
    restore_solve_report,
)
from .fields import Fields
from .priors import describe_prior, restore_prior
from .trial import check_answers, check_operator, check_size, settled

KINDS: dict[str, type[GaussianPosterior]] = {
    kind.__name__: kind for kind in (FullPosterior, TracePosterior, FactorPosterior)
}

COVARIANCES: dict[str, tuple[type, ...]] = {
    "FullPosterior": (ConditionalCovariance,),
    "TracePosterior": (ConditionalCovariance, WholeListCovariance, NoCovariance),
    "FactorPosterior": (LaplaceCovariance,),
}


def describe_posterior(posterior: GaussianPosterior) -> Tree:
    """The prior, the mean, the covariance, and what is particular to the kind."""
    kind = type(posterior).__name__
    if KINDS.get(kind) is not type(posterior):
        raise InputError(
            f"{kind} cannot be saved; the posteriors of FullGP, TraceGP and FactorGP can ({', '.join(KINDS)}, exactly "
            "and not as subclasses)"
        )
    return {
        "kind": kind,
        "prior": describe_prior(posterior.prior),
        "coefficients": describe_coefficients(posterior.coefficients),
        "covariance": describe_covariance(posterior.conditional),
        "own": _describe_own(posterior),
    }


@torch.no_grad()
def restore_posterior(given: Fields, spending: Spending, *, trial: bool) -> GaussianPosterior:
    """The inverse of :func:`describe_posterior`; kernels are evaluated as a fit does.

    :param trial: whether to ask it some questions, and refuse it if it has no answer.
    """
    kind = given.text("kind", KINDS)
    given.only("kind", "prior", "coefficients", "covariance", "own")
    own = given.fields("own")
    prior = restore_prior(given.fields("prior"), spending).requires_grad_(False)
    ops = prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach()
    largest = [
        check_operator(op, f"{given.where}.prior.{side}", thorough=trial)
        for op, side in zip(ops, ("row", "col"), strict=True)
    ]
    coefficients = restore_coefficients(given.fields("coefficients"), prior)
    covariance = restore_covariance(given.fields("covariance"), prior, ops, spending)
    parts = (prior, ops, coefficients, covariance)
    inner = covariance if isinstance(covariance, NoCovariance) else unscaled(covariance)[0]
    if not isinstance(inner, COVARIANCES[kind]) or (kind == "FactorPosterior" and inner is not covariance):
        raise StorageError(f"{given.where}.covariance: expected that of a {kind}, got {type(covariance).__name__}")
    if isinstance(coefficients, SparseCoefficients):
        _check_same_pairs(coefficients, covariance.pairs, f"{given.where}.coefficients")
    check_size(given.where, prior, coefficients, covariance, largest)
    posterior = _restore_kind(kind, own, parts)
    posterior._noise = own.optional_positive("noise")
    if trial:
        check_answers(posterior, given.where)
    return posterior


def _restore_kind(kind: str, own: Fields, parts: Any) -> GaussianPosterior:
    """What is particular to the kind."""
    prior, ops, coefficients, covariance = parts
    if kind == "FactorPosterior":
        own.only("objective", "restarts", "rank", optional=("noise",))
        rank = own.whole("rank")
        if not isinstance(coefficients, LowRankCoefficients):
            raise StorageError(f"{own.where}: expected a mean of low rank, got another")
        if not rank == coefficients.left.shape[1] == covariance.x.shape[1]:
            raise StorageError(f"{own.where}.rank: expected {coefficients.left.shape[1]} as in its factors, got {rank}")
        return FactorPosterior(
            prior,
            ops,
            coefficients,
            settled(covariance, coefficients, ops, own.where),
            objective=own.number("objective"),
            restarts=own.numbers("restarts"),
            rank=rank,
        )
    scale = _evidence_scale(own)
    if kind == "FullPosterior":
        own.only("evidence", "certificate", optional=("evidence_scale", "noise"))
        if not isinstance(coefficients, SparseCoefficients):
            raise StorageError(f"{own.where}: expected a coefficient for each pair, got a mean of low rank")
        certificate = restore_certificate(own.fields("certificate")) if own.has("certificate") else None
        return FullPosterior(
            *parts,
            solve_report=restore_solve_report(own.fields("evidence")) if own.has("evidence") else None,
            certificate=certificate,
            evidence_scale=scale,
        )
    own.only("certificate", "penalty", "mean", optional=("evidence_scale", "noise"))
    certificate, mean = restore_certificate(own.fields("certificate")), None
    if own.has("mean"):
        mean = restore_low_rank(own.fields("mean"), prior, ops)
        check_same_mean(own, coefficients, mean)
        if certificate.rank != mean.rank:
            raise StorageError(f"{own.where}.certificate.rank: expected {mean.rank}, got {certificate.rank}")
    elif not isinstance(coefficients, SparseCoefficients):
        raise StorageError(f"{own.where}.mean: expected the factors of a mean of low rank, got none")
    return TracePosterior(
        *parts,
        certificate=certificate,
        penalty=restore_penalty(own.fields("penalty")),
        mean_factors=mean,
        evidence_scale=scale,
    )


def _check_same_pairs(coefficients: SparseCoefficients, pairs: PairIndex, where: str) -> None:
    pattern = coefficients.pattern
    if not (torch.equal(pattern.rows, pairs.rows) and torch.equal(pattern.cols, pairs.cols)):
        raise StorageError(f"{where}: expected the pairs that the covariance is given, got others")


def _evidence_scale(own: Fields) -> float | None:
    """None in files from before there was one."""
    named = own.keys()
    if "evidence_scale" not in named or not own.has("evidence_scale"):
        return None
    return own.number("evidence_scale", 0)


def _describe_own(posterior: GaussianPosterior) -> Tree:
    if isinstance(posterior, FullPosterior):
        return {
            "evidence": None if posterior.solve_report is None else describe_solve_report(posterior.solve_report),
            "certificate": describe_certificate(posterior.certificate),
            "evidence_scale": posterior._evidence_scale,
            "noise": posterior._noise,
        }
    if isinstance(posterior, FactorPosterior):
        return {
            "objective": float(posterior.objective),
            "restarts": [float(value) for value in posterior.restarts],
            "rank": int(posterior.rank),
            "noise": posterior._noise,
        }
    assert isinstance(posterior, TracePosterior)
    return {
        "certificate": describe_certificate(posterior.certificate),
        "penalty": describe_penalty(posterior.penalty),
        "mean": describe_low_rank(posterior.mean_factors),
        "evidence_scale": posterior._evidence_scale,
        "noise": posterior._noise,
    }


UNLIMITED = Budget(kernels=2**62, memory_bytes=2**62, operations=2**90, iterations=2**62)  # for what is there already


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
    tree = on_cpu(describe_posterior(posterior))
    try:
        restore_prior(
            Fields(tree["prior"], "prior"), Spending(UNLIMITED)
        )  # what cannot be restored should be known now
    except StorageError as error:
        raise InputError(f"the prior cannot be saved: {error}") from error
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
    granted = check_budget(budget)
    if not isinstance(trial, bool):
        raise InputError(f"trial: expected True or False, got {trial!r:.100}")
    with told(path):
        return restore_posterior(Fields(read(path, granted), "content"), Spending(granted), trial=trial)


GaussianPosterior.writer = save  # what GaussianPosterior.save calls: posteriors do not import storage
