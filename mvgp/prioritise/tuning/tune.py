"""The registry of models, the choice of a setting by validation (:func:`tune`), and the fit at a setting."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tqdm import tqdm

from ...checks import check_instance, check_not_negative, check_positive, check_share, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import ConvergenceError, InputError
from ...hyperparameters.records import AveragedRanker, Metric, fitted_sets, resolve_metric
from ...hyperparameters.splits import Split, make_splits
from ...hyperparameters.validation import Choice, choose
from ...likelihoods.losses import Data
from ...likelihoods.ranking import BipartiteRankingLikelihood
from ...metrics.ranking import Ranker
from ...models.factor_gp import FactorGP
from ...models.full_gp import FullGP
from ...models.pairwise_svm import PairwiseSVM
from ...models.trace_gp import TraceGP
from ...priors.matrix_gp import MatrixGP
from ...priors.means import PopularityMean
from ..auto.fit import Auto
from ..baselines.candidates import BASELINE_NAMES, candidates
from ..tables.link_set import LinkSet
from .settings import DTYPES, MAX_SETS, OF_ONE_LIST, FitSettings

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


def _likelihood(settings: FitSettings, noise: float | None = None) -> BipartiteRankingLikelihood:
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
        _likelihood(settings),
        trace_share=trace_share,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
    )


def _full(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    prior = _prior(settings, link_set)
    options: dict[str, Any] = {"tolerance": settings.tolerance, "max_iterations": settings.max_iterations}
    return [(f"noise {noise:g}", FullGP(prior, _likelihood(settings, noise), **options)) for noise in settings.noises]


def _factor(settings: FitSettings, link_set: LinkSet, seed: int) -> Grid:
    factor = partial(FactorGP, _prior(settings, link_set), restarts=1, max_iterations=100, seed=seed)
    return [
        (f"rank {rank}, noise {noise:g}", factor(_likelihood(settings, noise), rank))
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
    progress: bool = False,
) -> Tuning:
    """The setting that ranks held-out links best, among recipes or, of a path, among strengths and trace shares.

    :param link_set: the links that may be looked at; a part of them is held out.
    :param seed: of the validation part and the sampled negatives; recipes that start at random have ``recipe_seed``.
    :param skip_single: whether a single setting is taken without a validation.
    """
    recipes: Grid = []
    if not has_path(family):
        recipes = grid(family, settings, link_set, seed if recipe_seed is None else recipe_seed)
        if skip_single and len(recipes) == 1:
            return Tuning(Setting(family, recipes[0][0]), [])
    elif skip_single and len(trace_shares) == len(settings.path) == 1:
        return Tuning(_path_setting(family, trace_shares[0], settings.path[0]), [])
    links = link_set.links(settings.whole_weight)
    split = make_splits(links, settings.split, 1, settings.validation_share, seed)[0]
    negatives = settings.negatives(settings.validation_sets) if takes_negatives(family) else None
    if recipes:
        judge = resolve_metric(settings.metric, _likelihood(settings), links)
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
    family: str, recipes: Grid, sets: Sequence[Data], split: Split, judge: Metric, progress: bool
) -> list[Record]:
    """The score of each recipe, averaged over sets of negatives; one that cannot be fitted has none, and a warning."""
    records: list[Record] = []
    for index, (text, recipe) in enumerate(tqdm(recipes, desc="choose", disable=not progress)):
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
    return records


def best_setting(family: str, records: Sequence[Record]) -> Setting:
    """The best of all that was tried; of equal ones the strongest penalty, or the first of a grid."""
    if has_path(family):
        best = max(records, key=lambda record: (record["score"], record["strength"], record["trace_share"]))
        return _path_setting(family, best["trace_share"], best["strength"], best["score"])
    fitted = [record for record in records if not record.get("failure")]
    if not fitted:
        raise ConvergenceError(f"{family}: none of {len(records)} settings could be fitted; {records[-1]['failure']}")
    best = max(fitted, key=lambda record: (record["score"], -record["place"]))
    return Setting(family, best["text"], best["score"], index=best["place"])


def _path_setting(family: str, trace_share: float, strength: float, score: float = math.nan) -> Setting:
    text = f"trace_share {trace_share:g}, strength {strength:.4g}"
    return Setting(family, text, score, trace_share=trace_share, strength=strength)


def fit(
    settings: FitSettings, link_set: LinkSet, setting: Setting, sets: Sequence[Data], seed: int, progress: bool = False
) -> list[Ranker]:
    """The model at a setting, fitted to each set of data; a path is walked from its strongest penalty as when tuned."""
    shown = tqdm(sets, desc="fit", unit="fit", disable=not progress)
    if not has_path(setting.family):
        recipe = grid(setting.family, settings, link_set, seed)[setting.index][1]
        return [recipe.fit(data) for data in shown]
    path = trace_recipe(settings, link_set, setting.trace_share, setting.family, sets[0])
    strengths = [strength for strength in settings.path if strength >= setting.strength]
    return [list(path.path(data, strengths))[-1].posterior for data in shown]


OF_ALL_TRIALS = ("split", "validation_share", "whole_weight", "metric", "seed", "negative_sets")


def trial_objective(
    link_set: LinkSet,
    suggest: Callable[[Any], Mapping[str, Any]],
    *,
    model: str = "trace",
    seed: int = 0,
    **settings: Any,
) -> Callable[[Any], float]:
    r"""How well a setting ranks held-out links: an objective for a study of Optuna, which is to be maximised.

    All trials have the same held-out part and negatives. Optuna is not imported: a trial is whatever ``suggest`` takes.

    :param link_set: the links, of which a part is held out.
    :param suggest: takes a trial and gives what :func:`~mvgp.prioritise.fit_prioritiser` takes: ``strength``,
        ``trace_share`` and other settings, so that one setting is left. The best trial of a study can be given to it,
        too: ``fit_prioritiser(link_set, model=model, **suggest(study.best_trial))``.
    :param model: a name of ``MODELS``.
    :param seed: of the held-out part and of the negatives.
    :param settings: of all trials, as ``metric``, ``validation_share`` or ``validation_sets``.

    Example:
        >>> import optuna
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import trial_objective
        >>> from mvgp.prioritise.tables import LinkSet
        >>> pairs = [0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 2, 2, 3, 3, 0]
        >>> links = LinkSet("abcd", "wxyz", *pairs, Graph([(0, 1), (2, 3)], 4), Graph([(0, 1), (2, 3)], 4))
        >>> def suggest(trial):
        ...     return {"strength": trial.suggest_float("strength", 0.01, 1.0, log=True)}
        >>> study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(0))
        >>> study.optimize(trial_objective(links, suggest), n_trials=3)
        >>> list(study.best_params)
        ['strength']

    """
    check_instance(link_set, "link_set", LinkSet, "mvgp.prioritise.tables.LinkSet")
    if not callable(suggest):
        raise InputError(f"suggest: expected a function of a trial, got {type(suggest).__name__}")
    check_fit(model, None, None, None)
    common = {**OF_ONE_LIST, **settings, "seed": seed}
    base = FitSettings.from_dict(common)
    links = link_set.links(base.whole_weight)
    split = make_splits(links, base.split, 1, base.validation_share, seed)[0]
    judge = resolve_metric(base.metric, _likelihood(base), links)

    def objective(trial: Any) -> float:
        given = dict(suggest(trial))
        for name in set(OF_ALL_TRIALS) & set(given):
            raise InputError(f"suggest: expected settings of a single trial, got {name}, the same in all")
        strength, share = given.pop("strength", None), given.pop("trace_share", None)
        check_fit(model, None, strength, share)
        given |= {} if strength is None else {"strengths": (strength,)}
        chosen = FitSettings.from_dict({**common, **given})
        setting = _only_setting(model, link_set, chosen, seed, share)
        negatives = chosen.negatives(chosen.validation_sets) if takes_negatives(model) else None
        rankers = fit(chosen, link_set, setting, fitted_sets(split.train, negatives, seed, 1), seed)
        return float(judge(AveragedRanker(rankers), split.train, split.held_out).value)

    return objective


def _only_setting(model: str, link_set: LinkSet, settings: FitSettings, seed: int, share: float | None) -> Setting:
    """The setting of a trial, which leaves no other."""
    family, path = family_of(model), REGISTRY[model].trace_shares
    if path is None:
        recipes = grid(family, settings, link_set, seed)
        if len(recipes) > 1:
            listed = ", ".join(text for text, _ in recipes[:4])
            raise InputError(f"suggest: expected one setting of {model!r}, got {len(recipes)}: {listed}, ...")
        return Setting(family, recipes[0][0])
    shares = path(settings) if share is None else (share,)
    if len(shares) > 1 or len(settings.path) > 1:
        lacking = "trace_share" if len(shares) > 1 else "strength"
        raise InputError(f"suggest: expected one setting of {model!r}, got no {lacking}")
    return _path_setting(family, shares[0], settings.path[0])


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
