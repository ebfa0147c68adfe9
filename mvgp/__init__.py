"""mvgp: matrix-variate Gaussian processes on GPyTorch.

Names and subpackages are imported when they are first used: ``import mvgp`` itself is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import hooks
from .version import __version__

if TYPE_CHECKING:
    from .data import ObservedMatrix, PositiveUnlabelled
    from .descriptions import describe
    from .mean import SpectralElasticNet, TraceBall
    from .models import FactorGP, FullGP, PairwiseSVM, TraceGP
    from .posteriors import GaussianPosterior
    from .priors import MatrixGP
    from .storage import load

__all__ = [
    "FactorGP",
    "FullGP",
    "GaussianPosterior",
    "MatrixGP",
    "ObservedMatrix",
    "PairwiseSVM",
    "PositiveUnlabelled",
    "SpectralElasticNet",
    "TraceBall",
    "TraceGP",
    "__version__",
    "describe",
    "load",
]
_HOMES = {
    "data": ("ObservedMatrix", "PositiveUnlabelled"),
    "descriptions": ("describe",),
    "mean": ("SpectralElasticNet", "TraceBall"),
    "models": ("FactorGP", "FullGP", "PairwiseSVM", "TraceGP"),
    "posteriors": ("GaussianPosterior",),
    "priors": ("MatrixGP",),
    "storage": ("load",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {"descriptions", "plot", "progress"}
_SUBPACKAGES = {
    *_HOMES,
    "hyperparameters",
    "kernels",
    "likelihoods",
    "linalg",
    "metrics",
    "prioritise",
    "testing",
} - _MODULES
_EXTRAS = {"botorch", "interchange", "sklearn"}  # modules to other libraries, which are imported when they are used


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES | _MODULES | _EXTRAS:
        return import_module(f"{__name__}.{name}")
    if name in _HOME_OF:
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _save_posterior(posterior: Any, path: Any) -> None:
    import_module(f"{__name__}.storage").save(posterior, path)


def _conformal(posterior: Any, *args: Any, **options: Any) -> Any:
    return import_module(f"{__name__}.metrics.conformal").conformal(posterior, *args, **options)


def _describe(value: Any) -> Any:
    return import_module(f"{__name__}.descriptions").describe(value)


hooks.conformal = _conformal  # metrics know every ranker, a posterior does not know metrics
hooks.describe = _describe  # describe knows every model and posterior
hooks.save_posterior = _save_posterior  # storage knows every posterior, a posterior does not know storage


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES, *_MODULES, *_EXTRAS})
