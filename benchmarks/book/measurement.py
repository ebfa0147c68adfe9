"""Measurement: one contestant on one problem; Outcome: what came of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

DONE, OVER, LARGE, FAILED = "done", "over the limit", "too large", "failed"


@dataclass(frozen=True)
class Measurement:
    """What a process of its own is to run.

    :param name: within its chapter.
    :param function: ``module:function`` below ``contestants``; it sets up a problem and returns the function that is timed.
    :param settings: its arguments.
    :param limit: seconds for the whole process.
    :param needs_gib: memory that it is known to need; it is not started if that is more than allowed.
    :param after: name of a smaller one; if that one was not done, neither is this one.
    """

    name: str
    function: str
    settings: dict[str, Any] = field(default_factory=dict)
    limit: float = 120.0
    needs_gib: float = 0.0
    after: str | None = None

    @property
    def key(self) -> str:
        """Equal for equal work."""
        text = json.dumps([self.function, self.settings, self.limit], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """What a measurement has found.

    :param name: of the measurement.
    :param key: of the measurement.
    :param status: DONE, OVER, LARGE or FAILED.
    :param seconds: best time of the rounds.
    :param rounds: how often it was timed.
    :param peak_mib: largest memory of the process.
    :param start_mib: that of a process with the same imports that does nothing.
    :param process_seconds: of the whole process, setting up the problem included.
    :param values: what the contestant returned.
    :param message: why it is not done.
    """

    name: str
    key: str
    status: str
    seconds: float | None = None
    rounds: int = 0
    peak_mib: float | None = None
    start_mib: float | None = None
    process_seconds: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)
    message: str = ""

    @property
    def done(self) -> bool:
        """Whether there are values."""
        return self.status == DONE

    @property
    def own_mib(self) -> float | None:
        """Memory beyond that of the imports."""
        if self.peak_mib is None or self.start_mib is None:
            return None
        return max(self.peak_mib - self.start_mib, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
