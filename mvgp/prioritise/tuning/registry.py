"""The registry of models: what each is, which data it takes, and the settings that validation chooses among."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from ...data.positive_unlabelled import PositiveUnlabelled
from ...likelihoods.losses import Data
from ...likelihoods.ranking import BipartiteRankingLikelihood
from ...metrics.ranking import Ranker
from ...models.factor_gp import FactorGP
from ...models.full_gp import FullGP
from ...models.pairwise_svm import PairwiseSVM
from ...models.trace_gp import TraceGP
from ...priors.matrix_gp import MatrixGP
from ...priors.means import PopularityMean
from ..baselines.candidates import BASELINE_NAMES, candidates
from ..tables.link_set import LinkSet
from .settings import DTYPES, FitSettings

SAMPLED = "sampled"  # the family of all paths of TraceGP on sampled negatives: those models share fits


class Recipe(Protocol):
    """Something that can be fitted."""

    def fit(self, data: Any, /) -> Ranker:
        """The ranker given data."""
        ...


Grid = list[tuple[str, Recipe]]  # recipes with their settings in words


@dataclass(frozen=True)
class Model:
    """An entry of the registry. It has either a path (``trace_shares``) or a grid.

    :param title: what it is.
    :param data: what it is fitted to: links with sampled negatives, whole lists, or links alone.
    :param trace_shares: of a ``TraceGP``: the shares that it chooses among, with the strengths of the path.
    :param grid: of any other model: the recipes that it chooses among, from settings, graphs and a seed. Their number
        and order depend on the settings alone.
    :param posterior: whether a fit can be saved, and says how certain it is.
    :param calibrated: whether the covariance of its posterior can be rescaled to the maximum marginal likelihood, as
        studies of P(top k) need it.
    """

    title: str
    data: Literal["sampled negatives", "whole lists", "links"]
    trace_shares: Callable[[FitSettings], tuple[float, ...]] | None = None
    grid: Callable[[FitSettings, LinkSet, int], Grid] | None = None
    posterior: bool = False
    calibrated: bool = False


def likelihood(settings: FitSettings, noise: float | None = None) -> BipartiteRankingLikelihood:
    """The likelihood of all ranking models."""
    return BipartiteRankingLikelihood(margin=settings.margin, noise=settings.noise if noise is None else noise)


def prior(settings: FitSettings, link_set: LinkSet) -> MatrixGP:
    """The prior on the two graphs."""
    return link_set.prior(settings.time, settings.shift, DTYPES[settings.dtype])


def trace_recipe(
    settings: FitSettings,
    link_set: LinkSet,
    trace_share: float,
    family: str = SAMPLED,
    known: Data | None = None,
) -> TraceGP:
    """The recipe of one path.

    :param family: ``SAMPLED``, or the name of a model on whole lists.
    :param known: the links that are fitted, for the prior mean of ``whole-popular``; held-out ones are no part of it.
    """
    on_graphs = prior(settings, link_set)
    if family == "whole-popular":
        if not isinstance(known, PositiveUnlabelled):
            raise TypeError(f"known: expected the links that are fitted, got {type(known).__name__}")
        on_graphs.mean_module = PopularityMean(known, settings.popularity, on_graphs.dtype)
    options: dict[str, Any] = {"tolerance": settings.tolerance, "max_iterations": settings.max_iterations}
    return TraceGP(on_graphs, likelihood(settings), trace_share=trace_share, **options)


def _full(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    on_graphs = prior(settings, link_set)
    options: dict[str, Any] = {"tolerance": settings.tolerance, "max_iterations": settings.max_iterations}
    return [
        (f"noise {noise:g}", FullGP(on_graphs, likelihood(settings, noise), **options)) for noise in settings.noises
    ]


def _factor(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    on_graphs = prior(settings, link_set)
    options: dict[str, Any] = {"restarts": 1, "max_iterations": 100, "seed": seed}
    return [
        (f"rank {rank}, noise {noise:g}", FactorGP(on_graphs, likelihood(settings, noise), rank, **options))
        for rank in settings.factor_ranks
        for noise in settings.factor_noises
    ]


def _prodige(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    on_graphs = prior(settings, link_set)
    return [(f"cost {cost:g}", PairwiseSVM(on_graphs, cost=cost, solver="newton")) for cost in settings.costs]


def _baseline(name: str, settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    return [(repr(recipe), recipe) for recipe in candidates(name, link_set, seed=seed)]


_path = partial(Model, posterior=True, calibrated=True)
REGISTRY: dict[str, Model] = {
    "hilbert": _path("TraceGP without a trace norm", "sampled negatives", lambda settings: (0.0,)),
    "trace": _path("TraceGP, the trace norm alone", "sampled negatives", lambda settings: (1.0,)),
    "best": _path("TraceGP, trace share chosen", "sampled negatives", lambda settings: settings.trace_shares),
    "whole": _path("TraceGP on whole lists", "whole lists", lambda settings: settings.whole_shares),
    "whole-popular": _path(  # expects popular items to have more links
        "TraceGP on whole lists with a PopularityMean", "whole lists", lambda settings: settings.whole_shares
    ),
    "full": Model("FullGP", "sampled negatives", grid=_full, posterior=True, calibrated=True),
    "factor": Model("FactorGP", "sampled negatives", grid=_factor, posterior=True),
    "prodige": Model("PairwiseSVM", "sampled negatives", grid=_prodige),
    **{name: Model(f"the baseline {name}", "links", grid=partial(_baseline, name)) for name in BASELINE_NAMES},
}
MODELS = tuple(REGISTRY)
WITH_PATH = tuple(name for name, model in REGISTRY.items() if model.trace_shares)
WITH_POSTERIOR = tuple(name for name, model in REGISTRY.items() if model.posterior)
CALIBRATED = tuple(name for name, model in REGISTRY.items() if model.calibrated)


def family_of(model: str) -> str:
    """What fits of a model are called: models on the path over sampled negatives share them."""
    entry = REGISTRY[model]
    return SAMPLED if entry.trace_shares and entry.data == "sampled negatives" else model


def takes_negatives(family: str) -> bool:
    """Whether a family, or a model, is fitted to sampled negatives; others take links alone."""
    return family == SAMPLED or REGISTRY[family].data == "sampled negatives"


def has_path(family: str) -> bool:
    """Whether a family, or a model, is a ``TraceGP``."""
    return family == SAMPLED or family in WITH_PATH


def grid(model: str, settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    """All recipes that a model without a path chooses among."""
    make = REGISTRY[model].grid
    if make is None:
        raise TypeError(f"{model}: expected a model with a grid, got one with a path")
    return make(settings, link_set, seed)
