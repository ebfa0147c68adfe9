"""Study: the settings of a study, all that its numbers depend on besides the data."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from ...checks import check_instance
from ...errors import InputError
from ...hyperparameters.negatives import NegativeSets
from ...models.trace_gp import path_strengths
from ..baselines.candidates import BASELINE_NAMES

LARGEST = 2**63 - 1  # of a whole number: 64 bits, as torch has them
MOST = {"negative_sets": 10_000, "validation_sets": 10_000, "strengths": 10_000, "folds": 1_000_000}


def whole(given: Any, name: str, least: int) -> int:
    """A whole number of at least ``least``, and at most what makes sense."""
    most = MOST.get(name, LARGEST)
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {shown(given)}")
    if given > most:
        raise InputError(f"{name}: expected a whole number of at most {most}, got {shown(given)}")
    return given


def shown(given: Any) -> str:
    """What came, cut when it is long; numbers of thousands of digits have no text of their own."""
    if isinstance(given, int) and given.bit_length() > 1000:
        return f"a whole number of {given.bit_length()} bits"
    text = repr(given)
    return text if len(text) <= 100 else f"{text[:100]}..."


def text(given: Any, name: str) -> str:
    """Text."""
    if not isinstance(given, str):
        raise InputError(f"{name}: expected a text, got {shown(given)}")
    return given


def truth(given: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise InputError(f"{name}: expected True or False, got {shown(given)}")
    return given


def number(
    given: Any,
    name: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """A finite number within bounds."""
    large = isinstance(given, int) and given.bit_length() > 1000
    fits = isinstance(given, int | float) and not isinstance(given, bool) and not large and math.isfinite(given)
    if not fits or not (above < given and least <= given and given < below and given <= most):
        bounds = {"above": above, "at least": least, "below": below, "at most": most}
        wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise InputError(f"{name}: expected a finite number {wanted}, got {shown(given)}")
    return float(given)


def numbers(given: Any, name: str, **bounds: float) -> tuple[float, ...]:
    """Different numbers within bounds, at least one."""
    if not isinstance(given, tuple | list) or not given:
        raise InputError(f"{name}: expected a list of numbers, got {shown(given)}")
    found = tuple(number(one, name, **bounds) for one in given)
    if len(set(found)) < len(found):
        raise InputError(f"{name}: expected different numbers, got {list(found)}")
    return found


def names(given: Any, name: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Different names among ``wanted``, at least one."""
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, tuple | list) or not all(isinstance(one, str) for one in found):
        raise InputError(f"{name}: expected names among {', '.join(wanted)}, got {shown(given)}")
    found = tuple(found)
    if not found or len(set(found)) < len(found):
        raise InputError(f"{name}: expected different names, at least one, got {shown(list(found))}")
    for one in found:
        if one not in wanted:
            raise InputError(f"{name}: expected names among {', '.join(wanted)}, got {shown(one)}")
    return found


def one_of(given: Any, name: str, synonyms: dict[str, str], wanted: tuple[str, ...]) -> str:
    """One of several words."""
    found = synonyms.get(given, given) if isinstance(given, str) else given
    if found not in wanted:
        raise InputError(f"{name}: expected {', '.join(map(repr, (*wanted, *synonyms)))}, got {shown(given)}")
    return str(found)


def ranking_metric(given: Any) -> str:
    """The name of a ranking metric, spelled as tables have it."""
    match = re.fullmatch(r"(auc)|(p|r|map|ndcg)@([1-9][0-9]{0,17})", given.lower()) if isinstance(given, str) else None
    if match is None:
        raise InputError(f"metric: expected 'AUC', or P, R, MAP or nDCG with a place, as 'MAP@100', got {shown(given)}")
    if match[1]:
        return "AUC"
    return f"{'nDCG' if match[2] == 'ndcg' else match[2].upper()}@{match[3]}"


WHOLE = ("whole", "whole-popular")  # on whole lists; the second expects popular items to have more links
OWN = ("hilbert", "trace", "best", *WHOLE, "full", "factor", "prodige")  # models of mvgp; others are baselines
WITH_VARIANCE = ("hilbert", "trace", "best", *WHOLE, "full")  # those whose posterior answers P(top k)
GROWING = ("models", "run_folds", "calibration_rows", "candidate_rows", "title")  # may change from run to run


@dataclass(frozen=True)
class Study:
    """What is compared, on which splits, and how settings are chosen. The defaults are the paper's protocol,
    except that paths may end early (``patience``).

    :param models: ``hilbert`` (no trace norm), ``trace`` (trace norm alone), ``best`` (trace share chosen), ``whole``
        (whole lists, no sampled negatives), ``whole-popular`` (the same with a
        :class:`~mvgp.priors.PopularityMean`), ``full``, ``factor``, ``prodige``, or a name of
        ``mvgp.prioritise.baselines.BASELINE_NAMES``.
    :param split: "pairs" (or "known") holds out pairs, "rows" (or "new") whole rows.
    :param folds: K of cross-validation.
    :param run_folds: only the first few of them; all when left out.
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
    :param dtype: "single" or "double". Single takes half the time and memory; its rounding is far below
        ``tolerance``.
    :param subsample: share of the links that is used at all; the paper has 0.05 and 1.
    :param k: length of the curves.
    :param seed: of all that is random.
    :param calibration_rows: rows of the first fold on which P(top ``top``) is examined; 0 for none.
    :param candidate_rows: rows whose candidates are listed after a fit to all links; 0 for none.
    :param top: items of such a list, and the k of P(top k).
    :param title: for the report.

    Example:
        >>> from mvgp.prioritise.studies import Study
        >>> study = Study(models=("popularity", "trace"), split="known", run_folds=1)
        >>> study.split, Study.from_json(study.to_json()) == study
        ('pairs', True)

    """

    models: tuple[str, ...] = ("popularity", "hilbert", "trace", "best")
    split: str = "pairs"
    folds: int = 5
    run_folds: int | None = None
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
    dtype: str = "single"
    subsample: float = 1.0
    k: int = 100
    seed: int = 0
    calibration_rows: int = 0
    candidate_rows: int = 0
    top: int = 20
    title: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "models", names(self.models, "models", (*OWN, *BASELINE_NAMES)))
        put(self, "split", one_of(self.split, "split", {"known": "pairs", "new": "rows"}, ("pairs", "rows")))
        one_of(self.dtype, "dtype", {}, ("single", "double"))
        truth(self.within_rows, "within_rows")
        for name, least in (("folds", 2), ("negative_sets", 1), ("validation_sets", 1), ("max_iterations", 1)):
            whole(getattr(self, name), name, least)
        for name, least in (("k", 1), ("seed", 0), ("calibration_rows", 0), ("candidate_rows", 0), ("top", 1)):
            whole(getattr(self, name), name, least)
        for name in ("run_folds", "patience", "max_rank"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, 1)
        if self.run_folds is not None and self.run_folds > self.folds:
            raise InputError(f"run_folds: expected at most {self.folds}, the number of folds, got {self.run_folds}")
        for name in ("ratio", "tolerance", "margin", "noise", "time", "popularity"):
            number(getattr(self, name), name, above=0)
        number(self.shift, "shift", least=0)
        for name in ("whole_weight", "subsample"):
            number(getattr(self, name), name, above=0, most=1)
        number(self.validation_share, "validation_share", above=0, below=1)
        put(self, "trace_shares", numbers(self.trace_shares, "trace_shares", least=0, most=1))
        put(self, "whole_shares", numbers(self.whole_shares, "whole_shares", above=0, most=1))
        for name in ("noises", "costs", "factor_noises"):
            put(self, name, numbers(getattr(self, name), name, above=0))
        if not isinstance(self.factor_ranks, tuple | list) or not self.factor_ranks:
            raise InputError(f"factor_ranks: expected a list of whole numbers, got {shown(self.factor_ranks)}")
        put(self, "factor_ranks", tuple(whole(one, "factor_ranks", 1) for one in self.factor_ranks))
        text(self.title, "title")
        number(self.lowest, "lowest", above=0, below=1)
        if isinstance(self.strengths, int):
            whole(self.strengths, "strengths", 1)
        else:
            put(self, "strengths", numbers(self.strengths, "strengths", above=0))
        path_strengths(self.strengths, self.lowest)
        put(self, "metric", ranking_metric(self.metric))
        wants = self.calibration_rows or self.candidate_rows
        if wants and not set(self.models) & set(WITH_VARIANCE):
            raise InputError(
                f"calibration_rows, candidate_rows: expected a model with variances ({', '.join(WITH_VARIANCE)}), "
                f"got {', '.join(self.models)}"
            )

    def negatives(self, sets: int) -> NegativeSets:
        """How so many sets of negatives are drawn."""
        return NegativeSets(sets, self.ratio, self.within_rows)

    @property
    def path(self) -> list[float]:
        """The strengths, decreasing."""
        return path_strengths(self.strengths, self.lowest)

    @property
    def num_folds(self) -> int:
        """Folds that are run."""
        return self.folds if self.run_folds is None else self.run_folds

    def to_json(self) -> str:
        """As text, from which :meth:`from_json` makes an equal study."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Study:
        """From the text of :meth:`to_json`."""
        check_instance(text, "settings", str, "JSON")
        try:
            given = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"settings: expected JSON, got {error}") from None
        return cls.from_dict(given)

    @classmethod
    def from_dict(cls, given: Any) -> Study:
        """From settings by name; those left out have their defaults."""
        if not isinstance(given, dict):
            raise InputError(f"settings: expected names and values, got {type(given).__name__}")
        known = {one.name for one in fields(cls)}
        strange = sorted(shown(name) if not isinstance(name, str) else name for name in set(given) - known)
        if strange:
            raise InputError(
                f"settings: expected names among {', '.join(sorted(known))}, got {', '.join(strange):.200}"
            )
        values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return cls(**values)
