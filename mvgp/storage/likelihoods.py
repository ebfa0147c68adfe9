"""Likelihoods in files: those of gpytorch and of mvgp whose parameters are a few numbers; others are not kept."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)

from ..likelihoods.pointwise import LogisticLikelihood, LogPoissonLikelihood
from .archive import Tree
from .fields import Fields

LIKELIHOODS: dict[str, tuple[type, dict[str, float]]] = {  # parameters, and what each is above; others are not kept
    "gaussian": (GaussianLikelihood, {"noise": 0.0}),
    "bernoulli": (BernoulliLikelihood, {}),
    "logistic": (LogisticLikelihood, {}),
    "log poisson": (LogPoissonLikelihood, {}),
    "poisson": (PoissonLikelihood, {}),
    "laplace": (LaplaceLikelihood, {"noise": 0.0}),
    "student": (StudentTLikelihood, {"noise": 0.0, "deg_free": 2.0}),
}


def describe_likelihood(likelihood: Any) -> Tree | None:
    """Its kind and parameters; None for one of another kind, without which a posterior makes no predictions."""
    for name, (kind, parameters) in LIKELIHOODS.items():
        if type(likelihood) is kind:
            return {"kind": name, **{part: float(getattr(likelihood, part)) for part in parameters}}
    return None


def restore_likelihood(own: Fields, name: str, dtype: torch.dtype) -> Any:
    """The inverse of :func:`describe_likelihood`, constant."""
    parts = own.fields(name)
    kind, parameters = LIKELIHOODS[parts.text("kind", LIKELIHOODS)]
    parts.only("kind", *parameters)
    # without a transform the value is its own raw number, to the last bit
    options = {f"{part}_constraint": GreaterThan(above, transform=None) for part, above in parameters.items()}
    likelihood = kind(**options).to(dtype)
    for part, above in parameters.items():
        value = parts.positive(part)
        parts.require(value > above, part, f"a number above {above:g}", value)
        setattr(likelihood, part, torch.tensor(value, dtype=dtype))
    return likelihood.requires_grad_(False).eval()
