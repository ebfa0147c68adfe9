"""NoCovariance: stands where a posterior has its covariance, and says why there is none."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import InputError
from ..linalg import PairIndex


class NoCovariance:
    """Every use of it is an error with the given reason.

    :param pairs: the observed pairs.
    :param reason: what to tell.
    """

    def __init__(self, pairs: PairIndex, reason: str, error: type[Exception] = InputError) -> None:
        self.pairs, self.reason, self.error = pairs, reason, error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self.error(self.reason)

    operator = everywhere = variance = joint = sample = _refuse
    noise = property(_refuse)
