"""The work of a study: the tasks that data and settings make (:class:`Workload`), and how each is done.

Each stage is one function from a task to an outcome: :func:`choice_unit` tunes a model on the training part of a fold,
:func:`fit_unit` scores the test rows at the setting that was chosen, :func:`score_outcome` judges the scores, and
:func:`calibration_unit` and :func:`candidate_unit` ask posteriors about P(top k). :func:`work` does any task, wherever
that is: on one thread, with its own seed, and without raising.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...hyperparameters.splits import Split, split_pairs, split_rows, with_negatives
from ...likelihoods.losses import Data
from ...metrics.ranking import Ranker, ranking_scores
from ...posteriors.gaussian import ScalablePosterior
from ..tables.link_set import LinkSet
from ..tuning import tune as tuning
from ..tuning.tune import CALIBRATED, REGISTRY, Setting, best_setting, family_of, takes_negatives
from .directory import Failure, Outcome, Study, Unit, unit_seed

BINS = 10  # of P(top k)
BLOCK_CELLS = 2**23  # scores computed at a time


@dataclass(frozen=True, eq=False)
class Task:
    """A unit and all that it needs, to be sent to whoever does it.

    A choice or a fit is given no held-out link: it cannot look at what it does not have.
    """

    unit: Unit
    study: Study
    train: LinkSet  # the links that may be fitted
    setting: Any = None  # the Setting that was chosen; None for a choice
    rows: Any = None  # (R,) that are to be scored; None for a choice
    everything: Any = None  # a LinkSet of all links, for the reference of a calibration


class Workload:
    """Tasks of every stage, each with no more data than it may see. The subsample is drawn here."""

    def __init__(self, link_set: LinkSet, study: Study) -> None:
        self.study, self.all_links = study, link_set
        self.data = link_set if study.subsample == 1 else link_set.subsample(study.subsample, study.seed)
        split = split_pairs if study.split == "pairs" else split_rows
        self.splits: list[Split] = split(self.data.links(study.whole_weight), folds=study.folds, seed=study.seed)

    @property
    def folds(self) -> range:
        """Those that are run."""
        return range(self.study.num_folds)

    @cached_property
    def training(self) -> list[LinkSet]:
        """The data with the links of the training part of each fold alone."""
        return [replace(self.data, rows=split.train.rows, cols=split.train.cols) for split in self.splits]

    @property
    def num_later(self) -> int:
        """Units after the scores, at most."""
        calibrations = len(self.calibrated) if self.study.calibration_rows else 0
        return calibrations + (self.study.negative_sets if self.study.candidate_rows else 0)

    @property
    def max_units(self) -> int:
        """Units, at most: before choices show which fits models have in common."""
        fits = sum(len(self.sets(model)) for model in self.study.models)
        return len(self.choices()) + len(self.folds) * (fits + len(self.study.models)) + self.num_later

    def choice_units(self, model: str, fold: int) -> list[Unit]:
        """The units of the choice of a model: one for each trace share, or one for a grid."""
        shares = REGISTRY[model].trace_shares
        parts = [f"{family_of(model)}_{share:g}" for share in shares(self.study)] if shares else [model]
        return [Unit("choice", part, fold) for part in parts]

    def choices(self) -> list[Task]:
        """All choices, those that models share once."""
        units = [unit for fold in self.folds for model in self.study.models for unit in self.choice_units(model, fold)]
        return [Task(unit, self.study, self.training[unit.fold]) for unit in dict.fromkeys(units)]

    def sets(self, family: str) -> range:
        """Sets of negatives that a fit is repeated for."""
        return range(self.study.negative_sets if takes_negatives(family) else 1)

    def fits(self, setting: Setting, fold: int) -> list[Task]:
        """One fit for each set of negatives."""
        rows = self.splits[fold].held_out.rows.unique()
        return [
            Task(Unit("fit", setting.key, fold, number), self.study, self.training[fold], setting, rows)
            for number in self.sets(setting.family)
        ]

    def calibration(self, setting: Setting) -> Task:
        """P(top k) on some rows of the first fold."""
        count = self.study.calibration_rows
        rows = _sample(self.splits[0].held_out.rows.unique(), count, unit_seed(self.study.seed, "calibration"))
        unit = Unit("calibration", f"{setting.key}_{count}", 0)
        return Task(unit, self.study, self.training[0], setting, rows, self.data)

    @cached_property
    def candidate_rows(self) -> Tensor:
        """(R,) ascending: rows with a link, drawn at random."""
        return _sample(self.data.rows.unique(), self.study.candidate_rows, unit_seed(self.study.seed, "candidates"))

    def candidates(self, setting: Setting) -> list[Task]:
        """The rows of a fit to all links, for each set of negatives."""
        what, all_links = f"{setting.key}_{self.study.candidate_rows}", self.study.folds
        return [
            Task(Unit("candidates", what, all_links, number), self.study, self.data, setting, self.candidate_rows)
            for number in self.sets(setting.family)
        ]

    @property
    def calibrated(self) -> list[str]:
        """Models that can say how certain they are."""
        return [model for model in self.study.models if model in CALIBRATED]


def _sample(rows: Tensor, count: int, seed: int) -> Tensor:
    """(min(R, count),) of rows (R,), ascending."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:count].sort().values]


def choice_unit(task: Task) -> Outcome:
    """All settings that were tried, with their scores; a model that chooses by itself has one without a score.

    Split and negatives are the same for all models of a fold.
    """
    seed, fold = task.study.seed, task.unit.fold
    family, _, share = task.unit.what.partition("_")
    own_choice = family in REGISTRY and REGISTRY[family].own_choice
    tuned = tuning.tune(
        family,
        task.train,
        task.study,
        seed=unit_seed(seed, "choice", fold),
        recipe_seed=unit_seed(seed, "choice", fold, model=family),
        trace_shares=(float(share),) if share else (),
        skip_single=own_choice,
    )
    unscored = {"score": None, "standard_error": None, "seconds": 0.0, "failure": ""}
    records = tuned.records or [{"place": tuned.setting.index, "text": tuned.setting.text, **unscored}]
    return Outcome(task.unit, info={"records": records})


def chosen_setting(choices: Sequence[Outcome]) -> Setting:
    """The best of all that was tried for a model in a fold."""
    family = choices[0].unit.what.partition("_")[0]
    return best_setting(family, [record for choice in choices for record in choice.info["records"]])


def fit_unit(task: Task) -> Outcome:
    """Scores (R, N) of the rows asked for, and the certificate of the fit."""
    ranker = _fit(task, task.train)
    return Outcome(task.unit, {"scores": _scores(ranker, task.rows)}, _summary(ranker))


def calibration_unit(task: Task) -> Outcome:
    """Does P(top k) say how a list changes when more becomes known? Sums over ten bins of P(top k).

    The true top k of a row is not known. What can be known is the top k of the same model once it has the held-out
    links as well. For chosen rows of a fold, P(top k) of every candidate by the posterior of the training part is
    compared with whether the fit to all links puts it there; training positives are no candidates in either. Of the
    candidates with P(top k) near p a share of p should be in that top k; a share nearer to 0 or 1 means a posterior
    that doubts too much. An error that the training links cause is in both fits, and not seen.
    """
    posterior, reference = _fit_posterior(task), _fit(task, task.everything)
    known, top = (task.train.rows, task.train.cols), task.study.top
    totals = np.zeros((3, BINS))
    for row in task.rows.tolist():
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
    posterior, rows = _fit_posterior(task), task.rows
    known, seed = (task.train.rows, task.train.cols), unit_seed(task.study.seed, "candidates")
    probabilities = [posterior.top_probability(row, task.study.top, exclude=known, seed=seed) for row in rows.tolist()]
    arrays = {
        "std": posterior.variances(rows, seed=seed).std.float().numpy(),
        "scores": _scores(posterior, rows),
        "p_top": torch.stack(probabilities).float().numpy(),
    }
    return Outcome(task.unit, arrays, _summary(posterior))


def score_outcome(unit: Unit, fits: Iterable[Outcome], split: Split, k: int) -> Outcome:
    """The metrics of the average scores over sets of negatives, and the certificates of their fits.

    :param fits: always in the same order; read one at a time, so that the scores of one of them are in memory.
    """
    rows, shape = split.held_out.rows.unique(), split.held_out.shape
    total = np.zeros((len(rows), shape[1]))
    summaries: list[dict[str, Any]] = []
    for fit in fits:
        total += fit.arrays["scores"]
        summaries.append(fit.info)
    average = torch.from_numpy(total / len(summaries))  # (R, N)
    ranker = SimpleNamespace(shape=shape, scores=lambda part: average[torch.searchsorted(rows, part)])
    metrics = ranking_scores(ranker, split.held_out, exclude=split.train, k=k, rows=rows)
    arrays = {entry.name: getattr(metrics, entry.name).numpy() for entry in fields(metrics)}
    return Outcome(unit, arrays, {"fits": summaries})


def _fit(task: Task, links: LinkSet) -> Ranker:
    """The model of a task at its setting, given these links."""
    study, family, which = task.study, task.setting.family, (task.unit.fold, task.unit.negatives)
    positives = links.links(study.whole_weight)
    data: Data = positives
    if takes_negatives(family):
        seed = unit_seed(study.seed, "fit", *which)
        data = with_negatives(positives, study.ratio, seed=seed, within_rows=study.within_rows)
    return tuning.fit(study, links, task.setting, [data], unit_seed(study.seed, "fit", *which, family))[0]


def _fit_posterior(task: Task) -> ScalablePosterior:
    """The same for questions about ranks: its covariance is rescaled to the maximum marginal likelihood."""
    ranker = _fit(task, task.train)
    if not isinstance(ranker, ScalablePosterior):
        raise InputError(f"{task.unit}: expected a model with variances, got {type(ranker).__name__}")
    return ranker.calibrated()


@torch.no_grad()
def _scores(ranker: Ranker, rows: Tensor) -> np.ndarray:
    """(R, N) in single precision, computed in blocks."""
    size = max(1, BLOCK_CELLS // ranker.shape[1])
    return torch.cat([ranker.scores(block).detach().float().cpu() for block in rows.split(size)]).numpy()


def _summary(ranker: Ranker) -> dict[str, Any]:
    """What the certificate of a fit says, if there is one."""
    certificate = getattr(ranker, "certificate", None)
    names = ("rank", "relative_gap", "iterations", "converged") if certificate is not None else ()
    return {name: getattr(certificate, name) for name in names}


WORK: dict[str, Callable[[Task], Outcome]] = {
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
            outcome = WORK[unit.stage](task)
        return replace(outcome, info={**outcome.info, "seconds": time.perf_counter() - began})
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure(unit, line, traceback.format_exc())
    finally:
        torch.set_num_threads(threads)
