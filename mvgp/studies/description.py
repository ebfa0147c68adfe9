"""What ``study.json`` says."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

from .directory import FORMAT
from .run import StudyRun

PACKAGES = ("torch", "gpytorch", "linear_operator", "numpy", "scipy")


def description(run: StudyRun, spent: float, *, ended: bool) -> dict[str, Any]:
    """Settings, data, versions, and how far it is.

    :param spent: seconds of all runs before this one.
    :param ended: whether there is nothing more to do.
    """
    every, study, progress = run.load.all_links, run.load.study, run.progress
    finished = ended and not run.failures
    return {
        "format": FORMAT,
        "title": study.title or f"{every.shape[0]} rows, {every.shape[1]} columns, {len(every)} links",
        "finished": finished,
        "settings": json.loads(study.to_json()),
        "data": {
            "source": every.source,
            "rows": every.shape[0],
            "cols": every.shape[1],
            "links": len(every),
            "used_links": len(run.load.data),
            "row_edges": every.row_graph.num_links,
            "col_edges": every.col_graph.num_links,
            "digest": run.place.digest,
        },
        "versions": versions(),
        "units": {"done": progress.done, "total": progress.done if finished else progress.total},
        "seconds": spent + run.seconds,
        "notes": notes(run),
    }


def versions() -> dict[str, str]:
    """Of what the numbers may depend on."""
    from .. import __version__

    return {"mvgp": __version__, "python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def notes(run: StudyRun) -> list[str]:
    """Fits that missed their tolerance, and units that failed, one line for each model and fold."""
    found = []
    for (model, fold), outcome in run.scores.items():
        missed = [one for one in outcome.info["fits"] if one.get("converged") is False]
        if missed:
            gap = max(one["relative_gap"] for one in missed)
            count = f"{len(missed)} of {len(outcome.info['fits'])} fits"
            found.append(f"{model}, fold {fold}: {count} missed the tolerance, the largest relative gap is {gap:.1e}")
    return found + [f"{one.unit} failed: {one.error}" for one in run.failures]
