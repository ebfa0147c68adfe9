"""Which methods of a base class a user's class has changed: what a model uses must not be decided behind their back."""

from __future__ import annotations

from typing import Any

from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise

from ..errors import InputError

GAUSSIAN_METHODS = ("forward", "marginal", "expected_log_prob", "log_marginal", "_shaped_noise_covar", "__call__")


def overridden(given: Any, base: type, *names: str) -> list[str]:
    """Those of the methods ``names`` that ``given`` does not take from ``base``, in the order of the names."""
    own = vars(given) if hasattr(given, "__dict__") else {}
    return [name for name in names if name in own or getattr(type(given), name, None) is not getattr(base, name)]


def most_derived(given: Any, *names: str) -> str:
    """The one of the methods ``names`` that is defined furthest down among the classes; the first of equals."""
    own = vars(given) if hasattr(given, "__dict__") else {}
    for name in names:
        if name in own:
            return name
    for cls in type(given).__mro__:
        for name in names:
            if name in vars(cls):
                return name
    return names[0]


def check_gaussian(likelihood: Any, what: str) -> None:
    """Refuse everything but Gaussian noise of one variance, read from ``likelihood.noise``.

    :param what: for the message: who asks.
    """
    if not isinstance(likelihood, GaussianLikelihood):
        raise InputError(
            f"likelihood: expected gpytorch's GaussianLikelihood, got {type(likelihood).__name__} "
            "(for known noise of each entry, give the data weights)"
        )
    changed = overridden(likelihood, GaussianLikelihood, *GAUSSIAN_METHODS)
    noise_model = type(likelihood.noise_covar)
    if changed or noise_model is not HomoskedasticNoise:
        reason = f"overrides {', '.join(changed)}" if changed else f"has the noise model {noise_model.__name__}"
        raise InputError(
            f"likelihood: {what} uses one noise variance, likelihood.noise, and nothing else of a GaussianLikelihood; "
            f"{type(likelihood).__name__} {reason}, which would be ignored. Override the property noise, or give the "
            "data weights for noise that differs between entries"
        )
