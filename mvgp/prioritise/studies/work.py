"""Doing a unit, wherever that is: on one thread, with its own seed, and without raising.

The unit of a calibration: does P(top k) say how a list changes when more becomes known?

The true top k of a row is not known. What can be known is the top k of the same model once the held-out links are
given to it as well. For chosen rows of a fold, P(top k) of every candidate by the posterior of the training part is
compared with whether the fit to all links puts it there; training positives are no candidates in either. If the
posterior is honest about what the held-out links may change, then of the candidates with P(top k) near p a share of p
is in that top k. Both fits have the training links in common, so an error that those cause is not seen: this is about
how a list changes, not about how true it is. A share nearer to 0 or 1 than p means a posterior that doubts too much.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.observed import ObservedMatrix
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import ConvergenceError, InputError
from ...hyperparameters.negatives import with_negatives
from ...hyperparameters.records import fitted_sets
from ...hyperparameters.scoring import Metric, resolve_metric
from ...hyperparameters.splits import Split, make_splits
from ...hyperparameters.validation import choose
from ...metrics.ranking import Ranker
from ...posteriors.fitted import ScalablePosterior
from ..tables.link_set import LinkSet
from . import models as entrants
from .models import Setting
from .units import Failure, Outcome, Task, average, scores_of, unit_seed


def grid_records(
    recipes: Sequence[tuple[str, Any]], sets: Sequence[Any], split: Split, judge: Metric
) -> Iterator[dict[str, Any]]:
    """One record for each recipe; of one that cannot be fitted it says why, and has no score.

    :param recipes: each with its text.
    :param sets: what is fitted; scores are averaged over them.
    :param split: whose held-out part the fits are judged on.
    """
    for place, (text, recipe) in enumerate(recipes):
        began, score, failure = time.perf_counter(), None, ""
        try:
            score = judge(average([recipe.fit(data) for data in sets]), split.train, split.held_out)
        except ConvergenceError as error:  # this setting is out of the running, the others are not
            failure = " ".join(str(error).split())
        yield {
            "place": place,
            "text": text,
            "score": score and score.value,
            "standard_error": score and score.standard_error,
            "seconds": time.perf_counter() - began,
            "failure": failure,
        }


def best_record(records: Sequence[dict[str, Any]], model: str) -> dict[str, Any]:
    """The record with the largest score, the first of equal ones.

    :param model: for the message when none could be fitted.
    """
    fitted = [one for one in records if not one.get("failure")]
    if not fitted:
        raise ConvergenceError(f"{model}: none of {len(records)} settings could be fitted; {records[-1]['failure']}")
    return max(fitted, key=lambda one: (one["score"], -one["place"]))


def choice_unit(task: Task) -> Outcome:
    """All that was tried, with its score."""
    family, share = entrants.family_of(task.unit.what)
    records = _grid(task) if share is None else _path(task, family, share)
    return Outcome(task.unit, info={"records": records})


def _options(task: Task) -> dict[str, Any]:
    """Split and negatives, the same for all models of a fold."""
    study = task.study
    return {
        "share": study.validation_share,
        "by": study.split,
        "seed": unit_seed(study.seed, "choice", task.unit.fold),
    }


def _path(task: Task, family: str, share: float) -> list[dict[str, Any]]:
    study, options = task.study, _options(task)
    links = task.train.links(study.whole_weight)
    splits = make_splits(links, options["by"], 1, options["share"], options["seed"])
    choice = choose(
        entrants.trace_recipe(study, task.train, share, family, splits[0].train),
        links,
        folds=splits,
        trace_shares=[share],
        strengths=study.path,
        metric=study.metric,
        max_rank=study.max_rank,
        patience=study.patience,
        negatives=study.negatives(study.validation_sets) if family == "sampled" else None,
        seed=options["seed"],
        progress=False,
    )
    return [
        {
            "trace_share": one.trace_share,
            "strength": one.strength,
            "score": one.score.value,
            "standard_error": one.score.standard_error,
            "rank": one.rank,
            "relative_gap": one.relative_gap,
            "iterations": one.iterations,
            "seconds": one.seconds,
        }
        for one in choice.records
    ]


def _grid(task: Task) -> list[dict[str, Any]]:
    study, model, options = task.study, task.unit.what, _options(task)
    links = task.train.links(study.whole_weight)
    split = make_splits(links, options["by"], 1, options["share"], options["seed"])[0]
    judge = resolve_metric(study.metric, entrants.ranking(study), links)
    negatives = study.negatives(study.validation_sets) if entrants.needs_negatives(model) else None
    sets = fitted_sets(split.train, negatives, options["seed"], 1)
    part = replace(task.train, rows=split.train.rows, cols=split.train.cols)
    recipes = entrants.grid(model, study, part, unit_seed(study.seed, "choice", task.unit.fold, model=model))
    records = list(grid_records(recipes, sets, split, judge))
    best_record(records, model)  # or none could be fitted, which is an error of this unit
    return records


def settled(parts: list[Outcome]) -> Setting:
    """The best of all that was tried; of equal ones the strongest penalty, or the first of a grid."""
    family, share = entrants.family_of(parts[0].unit.what)
    records = [record for part in parts for record in part.info["records"]]
    if share is None:
        best = best_record(records, family)
        return Setting(family, best["text"], best["score"], place=best["place"])
    best = max(records, key=lambda one: (one["score"], one["strength"], one["trace_share"]))
    text = f"trace_share {best['trace_share']:g}, strength {best['strength']:.4g}"
    return Setting(family, text, best["score"], trace_share=best["trace_share"], strength=best["strength"])


def fit_unit(task: Task) -> Outcome:
    """Scores (R, N) of the rows asked for, and the evidence of the fit."""
    setting, rows = task.setting, task.rows
    if setting is None or rows is None:
        raise InputError(f"{task.unit}: expected a setting and rows, got none")
    ranker = fitted(task, task.train, setting)
    return Outcome(task.unit, {"scores": scores_of(ranker, rows).numpy()}, evidence(ranker))


def fitted(task: Task, links: LinkSet, setting: Setting) -> Ranker:
    """The model of a task at a setting, given these links."""
    study, unit = task.study, task.unit
    positives = links.links(study.whole_weight)
    data: ObservedMatrix | PositiveUnlabelled = positives
    if entrants.needs_negatives(setting.family):
        seed = unit_seed(study.seed, "fit", unit.fold, unit.negatives)
        data = with_negatives(positives, study.ratio, seed=seed, within_rows=study.within_rows)
    own = unit_seed(study.seed, "fit", unit.fold, unit.negatives, setting.family)
    return entrants.fit(study, links, setting, data, own)


def fitted_posterior(task: Task, links: LinkSet, setting: Setting) -> ScalablePosterior:
    """The same for questions about ranks: a posterior with the covariance that the data speak for."""
    found = fitted(task, links, setting)
    if not isinstance(found, ScalablePosterior):
        raise InputError(f"{task.unit}: expected a model with variances, got {type(found).__name__}")
    return found.calibrated()


def evidence(ranker: Ranker) -> dict[str, Any]:
    """What the certificate says, if there is one."""
    proof = getattr(ranker, "certificate", None)
    if proof is None:
        return {}
    return {
        "rank": proof.rank,
        "relative_gap": proof.relative_gap,
        "iterations": proof.iterations,
        "converged": proof.converged,
    }


BINS = 10


def calibration_unit(task: Task) -> Outcome:
    """For each of ten bins of P(top k): its sum, how many are in the top k of the reference, and how many there are."""
    setting, rows, everything = task.setting, task.rows, task.everything
    if setting is None or rows is None or everything is None:
        raise InputError(f"{task.unit}: expected a setting, rows and all links, got none")
    study = task.study
    known = (task.train.rows, task.train.cols)
    posterior, reference = fitted_posterior(task, task.train, setting), fitted(task, everything, setting)
    seed = unit_seed(study.seed, "calibration")
    totals = np.zeros((3, BINS))
    for row in rows.tolist():
        promised = posterior.top_probability(row, study.top, exclude=known, seed=seed)
        open_ = torch.ones(task.train.shape[1], dtype=torch.bool)
        open_[known[1][known[0] == row]] = False
        there = in_top(reference.scores([row])[0], open_, study.top)
        totals += binned(promised[open_].double().numpy(), there[open_].numpy())
    return Outcome(task.unit, {"probability": totals[0], "members": totals[1], "count": totals[2]})


def in_top(scores: Tensor, open_: Tensor, k: int) -> Tensor:
    """(N,): which of the open items (N,) are the k best."""
    masked = torch.where(open_, scores.double(), -torch.inf)
    there = torch.zeros_like(open_)
    there[masked.argsort(descending=True, stable=True)[: min(k, int(open_.sum()))]] = True
    return there


def binned(promised: np.ndarray, there: np.ndarray) -> np.ndarray:
    """(3, BINS): sum of promises, sum of members, and number, in each of equal bins; 1 belongs to the last."""
    place = np.minimum((promised * BINS).astype(np.int64), BINS - 1)
    return np.stack(
        [
            np.bincount(place, weights=values, minlength=BINS)
            for values in (promised, there.astype(np.float64), np.ones(len(place)))
        ]
    )


def candidate_unit(task: Task) -> Outcome:
    """(R, N) each: scores, standard deviations and P(top k) of the rows asked for."""
    setting, rows, study = task.setting, task.rows, task.study
    if setting is None or rows is None:
        raise InputError(f"{task.unit}: expected a setting and rows, got none")
    posterior = fitted_posterior(task, task.train, setting)
    known, seed = (task.train.rows, task.train.cols), unit_seed(study.seed, "candidates")
    promised = [posterior.top_probability(row, study.top, exclude=known, seed=seed) for row in rows.tolist()]
    std = posterior.variances(rows, seed=seed).std
    arrays = {
        "scores": scores_of(posterior, rows).numpy(),
        "std": std.float().numpy(),
        "p_top": torch.stack(promised).float().numpy(),
    }
    return Outcome(task.unit, arrays, evidence(posterior))


def mixture(parts: Sequence[Outcome]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(R, N) each: scores, standard deviations and P(top k) of the equal mixture over sets of negatives."""
    scores, std, promised = (
        np.stack([part.arrays[name].astype(np.float64) for part in parts]) for name in ("scores", "std", "p_top")
    )
    return scores.mean(0), np.sqrt((std**2).mean(0) + scores.var(0)), promised.mean(0)


KINDS: dict[str, Callable[[Task], Outcome]] = {
    "choice": choice_unit,
    "fit": fit_unit,
    "calibration": calibration_unit,
    "candidates": candidate_unit,
}


def work(task: Task) -> Outcome | Failure:
    """What comes of a task. Sums have the same order everywhere, as there is one thread.

    Means that miss their tolerance are no warnings here: tables and notes have their gaps.
    """
    unit, threads = task.unit, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            torch.manual_seed(unit_seed(task.study.seed, unit.stage, unit.fold, unit.negatives, unit.what))
            began = time.perf_counter()
            found = KINDS[unit.stage](task)
        return replace(found, info={**found.info, "seconds": time.perf_counter() - began})
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure(unit, line, traceback.format_exc())
    finally:
        torch.set_num_threads(threads)
