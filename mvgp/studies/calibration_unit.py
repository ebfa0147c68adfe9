r"""The unit of a calibration: does P(top k) say how a list changes when more becomes known?

The true top k of a row is not known. What can be known is the top k of the same model once the held-out links are
given to it as well. For chosen rows of a fold, P(top k) of every candidate by the posterior of the training part is
compared with whether the fit to all links puts it there; training positives are no candidates in either. If the
posterior is honest about what the held-out links may change, then of the candidates with P(top k) near p a share of p
is in that top k. Both fits have the training links in common, so an error that those cause is not seen: this is about
how a list changes, not about how true it is. A share nearer to 0 or 1 than p means a posterior that doubts too much.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .fit_unit import fitted, fitted_posterior
from .seeds import unit_seed
from .unit import Outcome, Task

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
