"""The work of a study: choose a setting, fit it, ask it.

Each stage is one function from a task to an outcome: :func:`choice_unit` tunes a model on the training part of a fold,
:func:`fit_unit` scores the test rows at the setting that was chosen, :func:`calibration_unit` and
:func:`candidate_unit` ask posteriors about P(top k). :func:`work` does any of them, wherever that is: on one thread,
with its own seed, and without raising.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...hyperparameters.negatives import with_negatives
from ...likelihoods.losses import Data
from ...metrics.ranking import Ranker
from ...posteriors.fitted import ScalablePosterior
from ..ranking.prioritiser import mixture_std
from ..tables.link_set import LinkSet
from ..tuning import tune as tuning
from ..tuning.registry import takes_negatives
from ..tuning.tune import Setting, best_setting
from .units import Failure, Outcome, Task, unit_seed

BINS = 10  # of P(top k)
BLOCK_CELLS = 2**23  # scores computed at a time


def choice_unit(task: Task) -> Outcome:
    """All settings that were tried, with their scores. Split and negatives are the same for all models of a fold."""
    seed, fold = task.study.seed, task.unit.fold
    family, _, share = task.unit.what.partition("_")
    tuned = tuning.tune(
        family,
        task.train,
        task.study,
        seed=unit_seed(seed, "choice", fold),
        recipe_seed=unit_seed(seed, "choice", fold, model=family),
        trace_shares=(float(share),) if share else (),
        skip_single=False,
    )
    return Outcome(task.unit, info={"records": tuned.records})


def chosen_setting(choices: Sequence[Outcome]) -> Setting:
    """The best of all that was tried for a model in a fold."""
    family = choices[0].unit.what.partition("_")[0]
    return best_setting(family, [record for choice in choices for record in choice.info["records"]])


def fit_unit(task: Task) -> Outcome:
    """Scores (R, N) of the rows asked for, and the certificate of the fit."""
    setting, rows = _setting_and_rows(task)
    ranker = _fit(task, task.train, setting)
    return Outcome(task.unit, {"scores": _scores(ranker, rows)}, fit_summary(ranker))


def calibration_unit(task: Task) -> Outcome:
    """Does P(top k) say how a list changes when more becomes known?

    The true top k of a row is not known. What can be known is the top k of the same model once the held-out links are
    given to it as well. For chosen rows of a fold, P(top k) of every candidate by the posterior of the training part is
    compared with whether the fit to all links puts it there; training positives are no candidates in either. If the
    posterior is honest about what the held-out links may change, then of the candidates with P(top k) near p a share of
    p is in that top k. Both fits have the training links in common, so an error that those cause is not seen: this is
    about how a list changes, not about how true it is. A share nearer to 0 or 1 than p means a posterior that doubts
    too much.

    For each of ten bins of P(top k) the outcome has its sum, how many candidates are in the top k of the reference, and
    how many there are.
    """
    setting, rows = _setting_and_rows(task)
    if task.everything is None:
        raise InputError(f"{task.unit}: expected all links, got none")
    posterior, reference = _fit_posterior(task, setting), _fit(task, task.everything, setting)
    known, top = (task.train.rows, task.train.cols), task.study.top
    totals = np.zeros((3, BINS))
    for row in rows.tolist():
        probability = posterior.top_probability(row, top, exclude=known, seed=unit_seed(task.study.seed, "calibration"))
        open_ = torch.ones(task.train.shape[1], dtype=torch.bool)
        open_[known[1][known[0] == row]] = False
        members = in_top(reference.scores([row])[0], open_, top)
        totals += binned(probability[open_].double().numpy(), members[open_].numpy())
    return Outcome(task.unit, {"probability": totals[0], "members": totals[1], "count": totals[2]})


def in_top(scores: Tensor, open_: Tensor, k: int) -> Tensor:
    """(N,): which of the open items (N,) are the k best."""
    masked = torch.where(open_, scores.double(), -torch.inf)
    members = torch.zeros_like(open_)
    members[masked.argsort(descending=True, stable=True)[: min(k, int(open_.sum()))]] = True
    return members


def binned(predicted_probability: np.ndarray, members: np.ndarray) -> np.ndarray:
    """(3, BINS): sum of probabilities, sum of members, and number, in each of equal bins; 1 belongs to the last."""
    index = np.minimum((predicted_probability * BINS).astype(np.int64), BINS - 1)
    weights = (predicted_probability, members.astype(np.float64), np.ones(len(index)))
    return np.stack([np.bincount(index, weights=values, minlength=BINS) for values in weights])


def candidate_unit(task: Task) -> Outcome:
    """(R, N) each: scores, standard deviations and P(top k) of the rows asked for."""
    setting, rows = _setting_and_rows(task)
    posterior = _fit_posterior(task, setting)
    known, seed = (task.train.rows, task.train.cols), unit_seed(task.study.seed, "candidates")
    probabilities = [posterior.top_probability(row, task.study.top, exclude=known, seed=seed) for row in rows.tolist()]
    arrays = {
        "std": posterior.variances(rows, seed=seed).std.float().numpy(),
        "scores": _scores(posterior, rows),
        "p_top": torch.stack(probabilities).float().numpy(),
    }
    return Outcome(task.unit, arrays, fit_summary(posterior))


def candidate_mixture(parts: Sequence[Outcome]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(R, N) each: scores, standard deviations and P(top k) of the equal mixture over sets of negatives."""
    scores, std, probability = (
        torch.stack([torch.from_numpy(part.arrays[name]).double() for part in parts])
        for name in ("scores", "std", "p_top")
    )
    return scores.mean(0).numpy(), mixture_std(scores, std.square()).numpy(), probability.mean(0).numpy()


def _setting_and_rows(task: Task) -> tuple[Setting, Tensor]:
    if task.setting is None or task.rows is None:
        raise InputError(f"{task.unit}: expected a setting and rows, got none")
    return task.setting, task.rows


def _fit(task: Task, links: LinkSet, setting: Setting) -> Ranker:
    """The model of a task at a setting, given these links."""
    study, fold, number = task.study, task.unit.fold, task.unit.negatives
    positives = links.links(study.whole_weight)
    data: Data = positives
    if takes_negatives(setting.family):
        seed = unit_seed(study.seed, "fit", fold, number)
        data = with_negatives(positives, study.ratio, seed=seed, within_rows=study.within_rows)
    own = unit_seed(study.seed, "fit", fold, number, setting.family)
    return tuning.fit(study, links, setting, [data], own)[0]


def _fit_posterior(task: Task, setting: Setting) -> ScalablePosterior:
    """The same for questions about ranks: its covariance is rescaled to the maximum marginal likelihood."""
    ranker = _fit(task, task.train, setting)
    if not isinstance(ranker, ScalablePosterior):
        raise InputError(f"{task.unit}: expected a model with variances, got {type(ranker).__name__}")
    return ranker.calibrated()


@torch.no_grad()
def _scores(ranker: Ranker, rows: Tensor) -> np.ndarray:
    """(R, N) in single precision, computed in blocks."""
    size = max(1, BLOCK_CELLS // ranker.shape[1])
    return torch.cat([ranker.scores(block).detach().float().cpu() for block in rows.split(size)]).numpy()


def fit_summary(ranker: Ranker) -> dict[str, Any]:
    """What the certificate of a fit says, if there is one."""
    certificate = getattr(ranker, "certificate", None)
    if certificate is None:
        return {}
    return {name: getattr(certificate, name) for name in ("rank", "relative_gap", "iterations", "converged")}


STAGES: dict[str, Callable[[Task], Outcome]] = {
    "choice": choice_unit,
    "fit": fit_unit,
    "calibration": calibration_unit,
    "candidates": candidate_unit,
}


def work(task: Task) -> Outcome | Failure:
    """The outcome of a task. Sums have the same order everywhere, as there is one thread.

    Means that miss their tolerance are no warnings here: tables and notes have their gaps.
    """
    unit, threads = task.unit, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            torch.manual_seed(unit_seed(task.study.seed, unit.stage, unit.fold, unit.negatives, unit.what))
            began = time.perf_counter()
            outcome = STAGES[unit.stage](task)
        return replace(outcome, info={**outcome.info, "seconds": time.perf_counter() - began})
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure(unit, line, traceback.format_exc())
    finally:
        torch.set_num_threads(threads)
