"""A study of Optuna instead of a grid: its objective is how well a setting ranks held-out links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InputError
from ...hyperparameters.records import AveragedRanker, fitted_sets, resolve_metric
from ...hyperparameters.splits import make_splits
from ..tables.link_set import LinkSet, check_link_set
from .settings import OF_ONE_LIST, FitSettings
from .tune import REGISTRY, Setting, check_fit, family_of, fit, grid, path_setting, ranking_likelihood, takes_negatives

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
    check_link_set(link_set)
    if not callable(suggest):
        raise InputError(f"suggest: expected a function of a trial, got {type(suggest).__name__}")
    check_fit(model, None, None, None)
    common = {**OF_ONE_LIST, **settings, "seed": seed}
    base = FitSettings.from_dict(common)
    links = link_set.links(base.whole_weight)
    split = make_splits(links, base.split, 1, base.validation_share, seed)[0]
    judge = resolve_metric(base.metric, ranking_likelihood(base), links)

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
    return path_setting(family, shares[0], settings.path[0])
