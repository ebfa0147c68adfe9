"""Doing a unit, wherever that is: on one thread, with its own seed, and without raising."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch

from .calibration_unit import calibration_unit
from .candidate_unit import candidate_unit
from .choice_unit import choice_unit
from .fit_unit import fit_unit
from .seeds import unit_seed
from .unit import Failure, Outcome, Task

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
