"""KernelChoice: every kernel that a search has tried, and the one it ended with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..models import TraceGP
from ..posteriors import TracePosterior
from ..posteriors.loss import Data
from .averaged_ranker import AveragedRanker
from .choice import Choice
from .records import PathRecord

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """Parameters of the kernels, and how well they do on held-out data.

    :param parameters: value of each parameter that is searched, by name.
    :param choice: strength and trace share with these kernels.
    :param gain: in the metric, against what the search stood at; NaN for the first.
    :param gain_error: standard error of the gain, over folds, or over tasks if there is one fold; NaN if neither.
    :param taken: whether the search went there.
    """

    parameters: Mapping[str, float]
    choice: Choice
    gain: float
    gain_error: float
    taken: bool


@dataclass(frozen=True, eq=False, repr=False)
class KernelChoice:
    """Parameters of the kernels, chosen by validation. From :func:`choose_kernels`.

    :param candidates: all that was tried, in this order; the first has the parameters as they were given.
    :param unfinished: the candidate that an interrupt has cut off.
    """

    candidates: tuple[KernelCandidate, ...]
    unfinished: KernelCandidate | None = None

    @property
    def best(self) -> KernelCandidate:
        """Where the search ended: the last one that was taken."""
        return [one for one in self.candidates if one.taken][-1]

    @property
    def model(self) -> TraceGP:
        """The recipe with the chosen kernels; its strength and trace share are those of ``best.choice.chosen``."""
        return self.best.choice.recipe

    def refit(self, data: Data) -> TracePosterior | AveragedRanker:
        """The posterior given ``data`` with the chosen kernels, strength and trace share."""
        return self.best.choice.refit(data)

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas frame: one line for each candidate, at its best strength and trace share."""
        import pandas as pd

        lines = []
        for one in self.candidates:
            point = one.choice.chosen
            found = {"trace_share": point.trace_share, "strength": point.strength, "rank": point.rank}
            scores = {one.choice.settings.metric: point.mean, "gain": one.gain, "gain_error": one.gain_error}
            lines.append({**one.parameters, **found, **scores, "taken": one.taken})
        return pd.DataFrame(lines)

    def __repr__(self) -> str:
        if not any(one.taken for one in self.candidates):
            return "KernelChoice(nothing finished)"
        values = ", ".join(f"{name} {value:.3g}" for name, value in self.best.parameters.items())
        point, metric = self.best.choice.chosen, self.best.choice.settings.metric
        return f"KernelChoice(best: {values}; {metric} {point.mean:.4g}; {len(self.candidates)} candidates)"


def gain(new: Choice, old: Choice) -> tuple[float, float]:
    """How much better the chosen point of one choice is than that of another on the same splits, and its error."""
    mine, theirs = _records(new), _records(old)
    differences = [a.score.value - b.score.value for a, b in zip(mine, theirs, strict=True)]
    values = torch.tensor(differences, dtype=torch.float64)
    if len(values) == 1:
        a, b = mine[0].score, theirs[0].score
        if a.per_task is None or b.per_task is None or not torch.equal(_given(a.tasks), _given(b.tasks)):
            return differences[0], math.nan
        values = a.per_task - b.per_task  # tasks count alike here
    error = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return sum(differences) / len(differences), error


def _records(choice: Choice) -> list[PathRecord]:
    """Of the chosen point, one for each fold."""
    point = choice.chosen
    found = [one for one in choice.records if (one.trace_share, one.strength) == (point.trace_share, point.strength)]
    return sorted(found, key=lambda one: one.fold)


def _given(tasks: torch.Tensor | None) -> torch.Tensor:
    return torch.zeros(0) if tasks is None else tasks
