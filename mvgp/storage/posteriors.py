"""Posteriors as plain descriptions."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InputError, StorageError
from ..linalg import PairIndex
from ..posteriors import FactorPosterior, FullPosterior, GaussianPosterior, TracePosterior
from ..posteriors.coefficients import LowRankCoefficients, SparseCoefficients
from ..posteriors.conditional import ConditionalCovariance
from ..posteriors.laplace import LaplaceCovariance
from ..posteriors.no_covariance import NoCovariance
from ..posteriors.scaled import unscaled
from ..posteriors.whole_list_covariance import WholeListCovariance
from .budget import Spending
from .coefficients import (
    check_same_mean,
    describe_coefficients,
    describe_low_rank,
    restore_coefficients,
    restore_low_rank,
)
from .covariances import describe_covariance, restore_covariance
from .evidence import (
    describe_certificate,
    describe_evidence,
    describe_penalty,
    restore_certificate,
    restore_evidence,
    restore_penalty,
)
from .fields import Fields
from .priors import describe_prior, restore_prior
from .tree import Tree
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
            evidence=restore_evidence(own.fields("evidence")) if own.has("evidence") else None,
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
            "evidence": None if posterior.evidence is None else describe_evidence(posterior.evidence),
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
