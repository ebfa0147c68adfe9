"""The unit of candidates: rows of a posterior given all links, one unit for each set of negatives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..errors import InputError
from .averaged import scores_of
from .fit_unit import evidence, fitted_posterior
from .seeds import unit_seed
from .unit import Outcome, Task


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
