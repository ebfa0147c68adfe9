"""Records of a grid: every recipe fitted, and judged on a validation part."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import ConvergenceError
from ..selection import Split
from ..selection.metric import Metric
from .averaged import average


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
