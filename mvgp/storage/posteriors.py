"""Posteriors as plain descriptions."""

from __future__ import annotations

import torch

from ..errors import InputError, StorageError
from ..posteriors import FactorPosterior, FullPosterior, GaussianPosterior, TracePosterior
from ..posteriors.conditional import ConditionalCovariance
from ..posteriors.laplace import LaplaceCovariance
from ..posteriors.no_covariance import NoCovariance
from ..posteriors.scaled import unscaled
from ..posteriors.whole_list_covariance import WholeListCovariance
from .coefficients import describe_coefficients, describe_low_rank, restore_coefficients, restore_low_rank
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
def restore_posterior(given: Fields) -> GaussianPosterior:
    """The inverse of :func:`describe_posterior`; kernels are evaluated as a fit does."""
    kind, own = given.text("kind", KINDS), given.fields("own")
    prior = restore_prior(given.fields("prior")).requires_grad_(False)
    ops = prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach()
    coefficients = restore_coefficients(given.fields("coefficients"), prior)
    covariance = restore_covariance(given.fields("covariance"), prior, ops)
    parts = (prior, ops, coefficients, covariance)
    inner = covariance if isinstance(covariance, NoCovariance) else unscaled(covariance)[0]
    if not isinstance(inner, COVARIANCES[kind]) or (kind == "FactorPosterior" and inner is not covariance):
        raise StorageError(f"{given.where}.covariance: expected that of a {kind}, got {type(covariance).__name__}")
    scale = _evidence_scale(own)
    if kind == "FullPosterior":
        certificate = restore_certificate(own.fields("certificate")) if own.has("certificate") else None
        return FullPosterior(
            *parts,
            evidence=restore_evidence(own.fields("evidence")),
            certificate=certificate,
            evidence_scale=scale,
        )
    if kind == "FactorPosterior":
        return FactorPosterior(
            *parts, objective=own.number("objective"), restarts=own.numbers("restarts"), rank=own.whole("rank")
        )
    return TracePosterior(
        *parts,
        certificate=restore_certificate(own.fields("certificate")),
        penalty=restore_penalty(own.fields("penalty")),
        mean_factors=restore_low_rank(own.fields("mean"), prior) if own.has("mean") else None,
        evidence_scale=scale,
    )


def _evidence_scale(own: Fields) -> float | None:
    """None in files from before there was one."""
    named = own.keys()
    if "evidence_scale" not in named or not own.has("evidence_scale"):
        return None
    scale = own.number("evidence_scale")
    if not scale >= 0:
        raise StorageError(f"{own.where}.evidence_scale: expected a number that is not negative, got {scale}")
    return scale


def _describe_own(posterior: GaussianPosterior) -> Tree:
    if isinstance(posterior, FullPosterior):
        return {
            "evidence": describe_evidence(posterior.evidence),
            "certificate": describe_certificate(posterior.certificate),
            "evidence_scale": posterior._evidence_scale,
        }
    if isinstance(posterior, FactorPosterior):
        return {
            "objective": float(posterior.objective),
            "restarts": [float(value) for value in posterior.restarts],
            "rank": int(posterior.rank),
        }
    assert isinstance(posterior, TracePosterior)
    return {
        "certificate": describe_certificate(posterior.certificate),
        "penalty": describe_penalty(posterior.penalty),
        "mean": describe_low_rank(posterior.mean_factors),
        "evidence_scale": posterior._evidence_scale,
    }
