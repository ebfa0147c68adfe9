"""A unit of work: what it is called, what it needs, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ..datasets import LinkSet
from .setting import Setting
from .study import Study


@dataclass(frozen=True)
class Unit:
    """The name of a piece of work that is done once and saved.

    :param stage: one of ``seeds.STAGES``.
    :param what: the part of a choice, the setting of a fit, or the model.
    :param fold: of the outer split; the number of folds stands for all links.
    :param negatives: which set of them.
    """

    stage: str
    what: str
    fold: int
    negatives: int = 0

    @property
    def path(self) -> str:
        """Of its file, within the directory of the study."""
        return f"units/{self.stage}/{self.what}-fold{self.fold}-set{self.negatives}.unit"

    def __str__(self) -> str:
        return f"{self.stage} of {self.what}, fold {self.fold}, set {self.negatives}"


@dataclass(frozen=True, eq=False)
class Task:
    """A unit and all that it needs, to be sent to whoever does it.

    A choice or a fit is given no held-out link: it cannot look at what it does not have.

    :param study: the settings.
    :param train: the links that may be fitted.
    :param setting: that was chosen; None for a choice.
    :param rows: (R,) that are to be scored.
    :param everything: all links, for the reference of a calibration; None elsewhere.
    """

    unit: Unit
    study: Study
    train: LinkSet
    setting: Setting | None = None
    rows: Tensor | None = None
    everything: LinkSet | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a unit.

    :param arrays: numbers by name.
    :param info: whatever JSON can hold.
    """

    unit: Unit
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A unit that raised.

    :param error: in one line.
    :param details: the traceback.
    """

    unit: Unit
    error: str
    details: str = ""
