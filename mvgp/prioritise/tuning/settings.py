"""The defaults of the application, written once: ranked lists, studies and the demo start from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import torch

from ...checks import (
    check_between,
    check_choice,
    check_flag,
    check_instance,
    check_not_negative,
    check_part,
    check_positive,
    check_share,
    check_whole_number,
    shown,
)
from ...errors import InputError
from ...hyperparameters.splits import NegativeSets
from ...metrics.ranking import check_metric
from ...models.trace_sum import path_strengths

DEFAULT_MODEL = "auto"
# what one ranked list changes of the defaults of a study, which repeats the paper: half the fits and a shorter path
OF_ONE_LIST = {"negative_sets": 5, "strengths": 12, "lowest": 0.02}
TOP = 20  # columns of a ranked list, and the k of P(top k)
MAX_SETS = 10_000  # of sampled negatives
MAX_STRENGTHS = 10_000
SPLITS = {"pairs": "pairs", "known": "pairs", "rows": "rows", "new": "rows"}
DTYPES = {"single": torch.float32, "double": torch.float64}


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What a fit and the choice of its setting depend on, besides the data and the model.

    The defaults are the paper's protocol, except that paths may end early (``patience``).

    :param split: "pairs" (or "known") holds out pairs for a choice, "rows" (or "new") whole rows.
    :param negative_sets: sets of sampled negatives, over which scores are averaged.
    :param ratio: negatives for each positive.
    :param within_rows: whether each row gets negatives of its own, ``ratio`` times as many as it has links. Otherwise
        they come from the whole matrix, as in the paper; a row that then gets none has nothing to be ranked against,
        and its links are lost to the fit.
    :param strengths: how many, log-spaced from 1 to ``lowest``; or the strengths themselves, decreasing.
    :param lowest: the weakest strength.
    :param trace_shares: among which ``best`` chooses.
    :param whole_shares: among which ``whole`` chooses, above 0.
    :param whole_weight: of an unlabelled item in a whole list.
    :param popularity: scale of the prior mean of ``whole-popular``.
    :param noises: among which ``full`` chooses.
    :param costs: among which ``prodige`` chooses.
    :param factor_ranks: among which ``factor`` chooses, with each noise of ``factor_noises``.
    :param factor_noises: among which ``factor`` chooses, with each rank.
    :param metric: what choices maximise on the validation part.
    :param validation_share: of the training part, held out for choices.
    :param validation_sets: sets of negatives with which choices are made.
    :param patience: a path ends after so many strengths without a new best; None walks all of it, as the paper does.
        Paths without a trace norm are always walked to their end.
    :param max_rank: a path ends after the first mean of higher rank, unless it has no trace norm.
    :param tolerance: relative duality gap of means.
    :param max_iterations: of the solver for each mean.
    :param margin: between positives and negatives.
    :param noise: variance of the ranking likelihood.
    :param time: of the diffusion kernels.
    :param shift: of the diffusion kernels.
    :param row_time: of the kernel of the rows; ``time`` when left out.
    :param row_shift: of the kernel of the rows; ``shift`` when left out.
    :param col_time: of the kernel of the columns; ``time`` when left out.
    :param col_shift: of the kernel of the columns; ``shift`` when left out.
    :param dtype: "single" or "double". Single takes half the time and memory; its rounding is far below
        ``tolerance``.
    :param seed: of all that is random.
    """

    split: str = "pairs"
    negative_sets: int = 10
    ratio: float = 1.0
    within_rows: bool = False
    strengths: int | tuple[float, ...] = 30
    lowest: float = 1e-3
    trace_shares: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.0)
    whole_shares: tuple[float, ...] = (1.0, 0.9, 0.8)
    whole_weight: float = 0.05
    popularity: float = 0.01
    noises: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    costs: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    factor_ranks: tuple[int, ...] = (20, 50)
    factor_noises: tuple[float, ...] = (0.5, 2.0)
    metric: str = "MAP@100"
    validation_share: float = 0.2
    validation_sets: int = 1
    patience: int | None = 5
    max_rank: int | None = None
    tolerance: float = 1e-2
    max_iterations: int = 200
    margin: float = 1.0
    noise: float = 0.1
    time: float = 1.0
    shift: float = 1.0
    row_time: float | None = None
    row_shift: float | None = None
    col_time: float | None = None
    col_shift: float | None = None
    dtype: str = "single"
    seed: int = 0

    def __post_init__(self) -> None:
        self._set("split", SPLITS[check_choice(self.split, "split", SPLITS)])
        check_choice(self.dtype, "dtype", DTYPES)
        self._check(check_flag, "within_rows")
        self._check_whole("negative_sets", "validation_sets", maximum=MAX_SETS)
        self._check_whole("max_iterations")
        self._check_whole("seed", minimum=0)
        self._check_whole(*(name for name in ("patience", "max_rank") if getattr(self, name) is not None))
        self._check(check_positive, "ratio", "tolerance", "margin", "noise", "time", "popularity")
        self._check(check_not_negative, "shift")
        self._check(check_positive, *(name for name in ("row_time", "col_time") if getattr(self, name) is not None))
        self._check(
            check_not_negative, *(name for name in ("row_shift", "col_shift") if getattr(self, name) is not None)
        )
        self._check(check_part, "whole_weight")
        self._check(check_between, "validation_share", "lowest")
        self._check_several(check_share, "trace_shares")
        self._check_several(check_part, "whole_shares")
        self._check_several(check_positive, "noises", "costs", "factor_noises")
        self._check_several(check_whole_number, "factor_ranks")
        if isinstance(self.strengths, tuple | list | str):
            self._check_several(check_positive, "strengths")
        else:
            self._check_whole("strengths", maximum=MAX_STRENGTHS)
        path_strengths(self.strengths, self.lowest)
        self._set("metric", check_metric(self.metric))

    @property
    def path(self) -> list[float]:
        """The strengths, decreasing."""
        return path_strengths(self.strengths, self.lowest)

    def negatives(self, sets: int) -> NegativeSets:
        """How so many sets of negatives are drawn."""
        return NegativeSets(sets, self.ratio, self.within_rows)

    def to_json(self) -> str:
        """As text, from which :meth:`from_json` makes equal settings."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the text of :meth:`to_json`."""
        check_instance(text, "settings", str, "JSON")
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise InputError(f"settings: expected JSON, got {error}") from None

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """From settings by name; those left out have their defaults."""
        if not isinstance(given, dict):
            raise InputError(f"settings: expected names and values, got {type(given).__name__}")
        known = {field.name for field in fields(cls)}
        unknown = sorted(name if isinstance(name, str) else shown(name) for name in set(given) - known)
        if unknown:
            raise InputError(
                f"settings: expected names among {', '.join(sorted(known))}, got {', '.join(unknown):.200}"
            )
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
        return cls(**values)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check(self, check: Callable[[Any, str], Any], *names: str) -> None:
        """Check settings of one value; numbers of Python stay as they are, those of numpy and torch become such."""
        for name in names:
            value = getattr(self, name)
            checked = check(value, name)
            self._set(name, value if isinstance(value, int | float) else checked)

    def _check_whole(self, *names: str, minimum: int = 1, maximum: int = 2**63 - 1) -> None:
        self._check(lambda value, name: check_whole_number(value, name, minimum, maximum), *names)

    def _check_several(self, check: Callable[[Any, str], Any], *names: str) -> None:
        """Check settings of different values, at least one."""
        for name in names:
            values = getattr(self, name)
            if not isinstance(values, tuple | list) or not values:
                raise InputError(f"{name}: expected a list of numbers, got {shown(values)}")
            checked = tuple(check(value, name) for value in values)
            if len(set(checked)) < len(checked):
                raise InputError(f"{name}: expected different numbers, got {list(checked)}")
            self._set(name, checked)
