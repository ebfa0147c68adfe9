"""The registry of models, the choice of a setting by validation (:func:`tune`), and the fit at a setting."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ...checks import check_not_negative, check_positive, check_share, check_whole_number, free_memory
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import ConvergenceError, InputError, SizeError
from ...hyperparameters.records import AveragedRanker, Metric, fitted_sets, resolve_metric
from ...hyperparameters.splits import Split, make_splits
from ...hyperparameters.validation import Choice, choose
from ...likelihoods.losses import Data
from ...likelihoods.ranking import BipartiteRankingLikelihood
from ...linalg.cost import Estimate
from ...metrics.ranking import Ranker
from ...models.factor_gp import FactorGP
from ...models.full_gp import FullGP
from ...models.pairwise_svm import PairwiseSVM
from ...models.trace_gp import TraceGP
from ...priors.matrix_gp import MatrixGP
from ...priors.means import PopularityMean
from ...progress import Progress, check_progress, progress_bar
from ..auto.fit import Auto
from ..baselines.candidates import BASELINE_NAMES, candidates
from ..tables.link_set import LinkSet
from .settings import DTYPES, MAX_SETS, FitSettings

SAMPLED = "sampled"  # the family of all paths of TraceGP on sampled negatives: those models share fits
Grid = list[tuple[str, Any]]  # settings in words, and the recipe: something with ``fit(data)``
Record = dict[str, Any]  # one setting that was tried, and its score; JSON can hold it


# The registry -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """An entry of the registry. It has either a path (``trace_shares``) or a grid."""

    title: str
    data: Literal["sampled negatives", "whole lists", "links"]  # what it is fitted to
    # of a TraceGP: the shares that it chooses among, with the strengths of the path
    trace_shares: Callable[[FitSettings], tuple[float, ...]] | None = None
    # of any other model: the recipes that it chooses among; their number and order depend on the settings alone
    grid: Callable[[FitSettings, LinkSet, int], Grid] | None = None
    posterior: bool = False  # whether a fit can be saved, and says how certain it is
    calibrated: bool = False  # whether its covariance can be rescaled, as studies of P(top k) need it
    own_choice: bool = False  # whether its fit chooses by held-out links itself, so that a validation adds nothing


def ranking_likelihood(settings: FitSettings, noise: float | None = None) -> BipartiteRankingLikelihood:
    """The likelihood of the settings, with another noise if one is given."""
    return BipartiteRankingLikelihood(margin=settings.margin, noise=settings.noise if noise is None else noise)


def _prior(settings: FitSettings, link_set: LinkSet) -> MatrixGP:
    own = {name: getattr(settings, name) for name in ("row_time", "row_shift", "col_time", "col_shift")}
    return link_set.prior(settings.time, settings.shift, DTYPES[settings.dtype], **own)


def trace_recipe(
    settings: FitSettings, link_set: LinkSet, trace_share: float, family: str = SAMPLED, known: Data | None = None
) -> TraceGP:
    """The recipe of one path; ``known`` are the links that are fitted, for the prior mean of ``whole-popular``."""
    prior = _prior(settings, link_set)
    if family == "whole-popular":
        if not isinstance(known, PositiveUnlabelled):
            raise TypeError(f"known: expected the links that are fitted, got {type(known).__name__}")
        prior.mean_module = PopularityMean(known, settings.popularity, prior.dtype)
    return TraceGP(
        prior,
        ranking_likelihood(settings),
        trace_share=trace_share,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
    )


def _full(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    prior = _prior(settings, link_set)
    options: dict[str, Any] = {"tolerance": settings.tolerance, "max_iterations": settings.max_iterations}
    return [
        (f"noise {noise:g}", FullGP(prior, ranking_likelihood(settings, noise), **options)) for noise in settings.noises
    ]


def _factor(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    factor = partial(FactorGP, _prior(settings, link_set), restarts=1, max_iterations=100, seed=seed)
    return [
        (f"rank {rank}, noise {noise:g}", factor(ranking_likelihood(settings, noise), rank))
        for rank in settings.factor_ranks
        for noise in settings.factor_noises
    ]


def _prodige(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    prior = _prior(settings, link_set)
    return [(f"cost {cost:g}", PairwiseSVM(prior, cost=cost, solver="newton")) for cost in settings.costs]


def _auto(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    return [("weights learned on held-out links", Auto(link_set, settings.metric, seed=seed))]


def _baseline(name: str, settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    return [(repr(recipe), recipe) for recipe in candidates(name, link_set, seed=seed)]


_path = partial(Model, posterior=True, calibrated=True)
REGISTRY: dict[str, Model] = {
    "auto": Model("a sum of terms, weighed by held-out links", "links", grid=_auto, posterior=True, own_choice=True),
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
    return SAMPLED if REGISTRY[model].trace_shares and takes_negatives(model) else model


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


# Choices and fits ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A setting of a family of models."""

    family: str  # SAMPLED or another name of a path, or the name of the model whose grid it is from
    text: str  # in words
    score: float = math.nan  # of the validation
    trace_share: float = 1.0  # of a path
    strength: float = 1.0  # of a path
    index: int = 0  # in a grid

    @property
    def key(self) -> str:
        """The same for equal fits."""
        if has_path(self.family):
            return f"{self.family}_{self.trace_share:g}_{self.strength:.8g}"
        return f"{self.family}_{self.index}"


@dataclass(frozen=True, eq=False)
class Tuning:
    """What :func:`tune` has chosen, and all that was tried: nothing when there was nothing to choose."""

    setting: Setting
    records: list[Record]
    choice: Choice | None = None  # the validation along a path


def tune(
    family: str,
    link_set: LinkSet,
    settings: FitSettings,
    *,
    seed: int,
    recipe_seed: int | None = None,
    trace_shares: Sequence[float] = (),
    skip_single: bool = True,
    progress: Progress = "auto",
) -> Tuning:
    """The setting that ranks held-out links best, among recipes or, of a path, among strengths and trace shares.

    :param link_set: the links that may be looked at; a part of them is held out.
    :param seed: of the validation part and the sampled negatives; recipes that start at random have ``recipe_seed``.
    :param skip_single: whether a single setting is taken without a validation.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    """
    progress = check_progress(progress)
    recipes: Grid = []
    if not has_path(family):
        recipes = grid(family, settings, link_set, seed if recipe_seed is None else recipe_seed)
        if skip_single and len(recipes) == 1:
            return Tuning(Setting(family, recipes[0][0]), [])
    elif skip_single and len(trace_shares) == len(settings.path) == 1:
        return Tuning(path_setting(family, trace_shares[0], settings.path[0]), [])
    links = link_set.links(settings.whole_weight)
    split = make_splits(links, settings.split, 1, settings.validation_share, seed)[0]
    negatives = settings.negatives(settings.validation_sets) if takes_negatives(family) else None
    if recipes:
        judge = resolve_metric(settings.metric, ranking_likelihood(settings), links)
        records = _try_grid(family, recipes, fitted_sets(split.train, negatives, seed, 1), split, judge, progress)
        return Tuning(best_setting(family, records), records)
    choice = choose(
        trace_recipe(settings, link_set, trace_shares[0], family, split.train),
        links,
        folds=[split],
        trace_shares=trace_shares,
        strengths=settings.path,
        metric=settings.metric,
        max_rank=settings.max_rank,
        patience=settings.patience,
        negatives=negatives,
        seed=seed,
        progress=progress,
    )
    names = ("trace_share", "strength", "rank", "relative_gap", "iterations", "seconds")
    records = [
        {
            **{name: getattr(point, name) for name in names},
            "score": point.score.value,
            "standard_error": point.score.standard_error,
        }
        for point in choice.records
    ]
    return Tuning(best_setting(family, records), records, choice)


def _try_grid(
    family: str, recipes: Grid, sets: Sequence[Data], split: Split, judge: Metric, progress: Progress
) -> list[Record]:
    """The score of each recipe, averaged over sets of negatives; one that cannot be fitted has none, and a warning."""
    records: list[Record] = []
    with progress_bar("choose", len(recipes), unit="recipes", progress=progress) as bar:
        for index, (text, recipe) in enumerate(recipes):
            began, score, failure = time.perf_counter(), None, ""
            try:
                score = judge(AveragedRanker([recipe.fit(data) for data in sets]), split.train, split.held_out)
            except ConvergenceError as error:
                failure = " ".join(str(error).split())
                warnings.warn(f"{family}: {text} is passed over: {failure}", RuntimeWarning, stacklevel=2)
            records.append(
                {
                    "place": index,
                    "text": text,
                    "score": score and score.value,
                    "standard_error": score and score.standard_error,
                    "seconds": time.perf_counter() - began,
                    "failure": failure,
                }
            )
            bar.update(1, text)
    return records


def best_setting(family: str, records: Sequence[Record]) -> Setting:
    """The best of all that was tried; of equal ones the strongest penalty, or the first of a grid."""
    if has_path(family):
        best = max(records, key=lambda record: (record["score"], record["strength"], record["trace_share"]))
        return path_setting(family, best["trace_share"], best["strength"], best["score"])
    fitted = [record for record in records if not record.get("failure")]
    if not fitted:
        raise ConvergenceError(f"{family}: none of {len(records)} settings could be fitted; {records[-1]['failure']}")
    best = max(fitted, key=lambda record: (record["score"], -record["place"]))
    return Setting(family, best["text"], best["score"], index=best["place"])


def path_setting(family: str, trace_share: float, strength: float, score: float = math.nan) -> Setting:
    """A point of a regularisation path."""
    text = f"trace_share {trace_share:g}, strength {strength:.4g}"
    return Setting(family, text, score, trace_share=trace_share, strength=strength)


def expected_fit(
    model: str, settings: FitSettings, link_set: LinkSet, shares: Sequence[float], links: PositiveUnlabelled, seed: int
) -> Estimate | None:
    """What one fit is expected to take, at the weakest penalty or the first setting; None if a model cannot say."""
    if has_path(family_of(model)):
        recipe: Any = trace_recipe(settings, link_set, shares[0], family_of(model), links)
        recipe.strength = min(settings.path)
    else:
        recipe = grid(model, settings, link_set, seed)[0][1]
    if not hasattr(recipe, "estimate"):
        return None
    data = settings.negatives(1).draw(links, seed, 0)[0] if takes_negatives(model) else links
    expected: Estimate = recipe.estimate(data)
    return expected


def prepare(
    model: str,
    settings: FitSettings,
    link_set: LinkSet,
    links: PositiveUnlabelled,
    trace_share: float | None,
    seed: int,
    log: Callable[[str], object] | None,
) -> tuple[float, ...]:
    """The trace shares among which a model chooses; ``log`` takes a line about what one fit is expected to take.

    More sets of sampled negatives than there is memory for are refused: all are drawn before the first fit.
    """
    if takes_negatives(model):
        free, sets = free_memory(), settings.negative_sets
        needed = sets * 24 * len(links) * (1 + settings.ratio)  # row, column and value of every link and negative
        if free is not None and needed > free:
            raise SizeError(
                f"negatives: {sets} sets need {needed / 2**30:.1f} GiB, got {free / 2**30:.1f} GiB of free memory"
            )
    path = REGISTRY[model].trace_shares
    shares = (float(trace_share),) if trace_share is not None else path(settings) if path else ()
    expected = None if log is None else expected_fit(model, settings, link_set, shares, links, seed)
    if log is not None and expected is not None:
        log(f"one fit: {expected}")
    return shares


def fit(
    settings: FitSettings,
    link_set: LinkSet,
    setting: Setting,
    sets: Sequence[Data],
    seed: int,
    progress: Progress = "auto",
) -> list[Ranker]:
    """The model at a setting, fitted to each set of data; a path is walked from its strongest penalty as when tuned."""
    fitted: list[Ranker] = []
    if has_path(setting.family):
        path = trace_recipe(settings, link_set, setting.trace_share, setting.family, sets[0])
        strengths = [strength for strength in settings.path if strength >= setting.strength]
    else:
        recipe = grid(setting.family, settings, link_set, seed)[setting.index][1]
    with progress_bar("fit", len(sets), unit="fits", progress=progress) as bar:
        for data in sets:
            if has_path(setting.family):
                fitted.append(list(path.path(data, strengths))[-1].posterior)
            else:
                fitted.append(recipe.fit(data))
            bar.update()
    return fitted


def check_fit(model: Any, negatives: Any, strength: Any, trace_share: Any) -> None:
    """Whether they go together."""
    if not isinstance(model, str) or model not in MODELS:
        raise InputError(f"model: expected one of {', '.join(MODELS)}, got {model!r}")
    if model not in WITH_PATH and not strength is trace_share is None:
        raise InputError(f"strength, trace_share: they are for {', '.join(WITH_PATH)}, got model {model!r}")
    if strength is not None:
        check_positive(strength, "strength")
    if trace_share is not None:
        check_share(trace_share, "trace_share")
    if REGISTRY[model].data == "whole lists" and trace_share == 0:
        raise InputError("trace_share: the mean over whole lists needs a trace norm, got 0")
    if negatives is None:
        return
    if not takes_negatives(model):
        raise InputError(f"negatives: model {model!r} is fitted without sampled negatives, got {negatives!r}")
    try:
        check_whole_number(negatives, "negatives", 1, MAX_SETS)
    except InputError as error:
        raise InputError(f"{error} (for none, take model 'whole')") from None


# Settings that a user fixes for one model ---------------------------------------------------------

KERNEL_OPTIONS = ("row_time", "row_shift", "col_time", "col_shift")
OPTIONS = (*KERNEL_OPTIONS, "noise", "ratio")
# the setting that an option fixes, where it is not called as the option: of models that choose among several noises
NOISES = {"full": "noises", "factor": "factor_noises"}


def models_with(option: str) -> tuple[str, ...]:
    """The models that use an option.

    Example:
        >>> from mvgp.prioritise.tuning.tune import models_with
        >>> models_with("noise")
        ('hilbert', 'trace', 'best', 'whole', 'whole-popular', 'full', 'factor')

    """
    if option in KERNEL_OPTIONS:
        return tuple(name for name in MODELS if REGISTRY[name].data != "links")  # baselines have no kernels
    if option == "noise":
        return tuple(name for name in MODELS if name in WITH_PATH or name in NOISES)
    return tuple(name for name in MODELS if takes_negatives(name))


def overrides(model: str, options: Mapping[str, float | None]) -> dict[str, Any]:
    """Settings of a fit (:class:`~mvgp.prioritise.tuning.settings.FitSettings`) that fix some options of a model.

    :param model: its name.
    :param options: by their names in ``OPTIONS``; None leaves an option as it is.

    Example:
        >>> from mvgp.prioritise.tuning.tune import overrides
        >>> overrides("trace", {"row_time": 2.0, "noise": None}), overrides("full", {"noise": 0.5})
        ({'row_time': 2.0}, {'noises': (0.5,)})

    """
    settings: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        if model not in models_with(option):
            raise InputError(f"{option}: it is for {', '.join(models_with(option))}, got model {model!r}")
        checked = (check_not_negative if option.endswith("shift") else check_positive)(value, option)
        if option == "noise" and model in NOISES:
            settings[NOISES[model]] = (checked,)
        else:
            settings[option] = checked
    return settings
