"""Evidence, certificates and penalties as plain descriptions: numbers by name."""

from __future__ import annotations

from ..errors import InputError
from ..linalg import Evidence
from ..solvers import Certificate, Penalty, SpectralElasticNet, TraceBall
from .fields import Fields
from .tree import Tree


def describe_evidence(found: Evidence) -> Tree:
    """How well a linear system was solved."""
    return {
        "method": found.method,
        "residual": float(found.residual),
        "tolerance": float(found.tolerance),
        "iterations": int(found.iterations),
    }


def restore_evidence(given: Fields) -> Evidence:
    """The inverse of :func:`describe_evidence`."""
    return Evidence(
        given.label("method"), given.number("residual", 0), given.positive("tolerance"), given.whole("iterations")
    )


def describe_certificate(found: Certificate | None) -> Tree | None:
    """The evidence for a mean."""
    if found is None:
        return None
    return {
        "primal": float(found.primal),
        "dual": float(found.dual),
        "tolerance": float(found.tolerance),
        "iterations": int(found.iterations),
        "rank": int(found.rank),
        "solver": found.solver,
        "failure_probability": found.failure_probability,
    }


def restore_certificate(given: Fields) -> Certificate:
    """The inverse of :func:`describe_certificate`."""
    return Certificate(
        primal=given.number("primal"),
        dual=given.number("dual"),
        tolerance=given.positive("tolerance"),
        iterations=given.whole("iterations"),
        rank=given.whole("rank"),
        solver=given.label("solver"),
        failure_probability=given.optional_probability("failure_probability"),
    )


def describe_penalty(found: Penalty) -> Tree:
    """What the mean solves."""
    if type(found) is SpectralElasticNet:
        return {"kind": "SpectralElasticNet", "lam": float(found.lam), "alpha": float(found.alpha)}
    if type(found) is TraceBall:
        return {"kind": "TraceBall", "radius": float(found.radius), "ridge": float(found.ridge)}
    raise InputError(f"penalty: SpectralElasticNet and TraceBall can be saved, got {type(found).__name__}")


def restore_penalty(given: Fields) -> SpectralElasticNet | TraceBall:
    """The inverse of :func:`describe_penalty`."""
    if given.text("kind", ("SpectralElasticNet", "TraceBall")) == "TraceBall":
        given.only("kind", "radius", "ridge")
        return TraceBall(given.number("radius"), given.number("ridge"))
    given.only("kind", "lam", "alpha")
    return SpectralElasticNet(given.number("lam"), given.number("alpha"))
