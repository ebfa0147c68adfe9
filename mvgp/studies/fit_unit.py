"""The unit of a fit: one setting on the training part of a fold, with one set of negatives."""

from __future__ import annotations

from typing import Any

from ..data import ObservedMatrix, PositiveUnlabelled
from ..datasets import LinkSet
from ..errors import InputError
from ..metrics import Ranker
from ..posteriors import ScalablePosterior
from ..selection import with_negatives
from . import entrants
from .averaged import scores_of
from .seeds import unit_seed
from .setting import Setting
from .unit import Outcome, Task


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
