"""Trust: what cross-fitting says about ranked lists. Probabilities, lengths, warnings; and as a part of a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...checks import check_between, check_instance, check_whole_number
from ...metrics.conformal import conformal_length
from ...storage.fields import Fields
from ...tensor_checks import as_tensor
from ..auto.blend import GROUPS, group_of
from .calibration import CLASSES, FEATURES, Calibration, ClassYield, CurvePoint, Probabilities
from .cross_fit import KEPT, TAILS, CrossFit
from .top_places import TOP_FEATURES, TOP_SLOPES, TopKnot, TopPlaces, top_places

ORDER_ONLY = "order only: too little to go by"
NOTHING = "no known link and no neighbour in the graph of the rows: nothing speaks for one column more than for another"
EXTRAPOLATED = "the best score is above those that were compared: probabilities of such columns are extrapolated"
LINES = ("grid", "values", "low", "high")
NUMBERS = ("error", "residual")
PARTS = (*NUMBERS, *LINES, "quantiles", "highest", "weights", "tail", "kept", "classes", "curve")
FIELDS = ("calibration", "ranks", "chance", "isolated", "remarks", "lists", "links", "rows")
KNOT = ("k", "weights", "grid", "values")
MOST = 10_000_000  # rows, ranks or lists of a record


@dataclass(frozen=True, eq=False)
class RowTrust:
    """What is said about the list of one row; probabilities are None where only the order is meant.

    :param probability: of each candidate that was asked about, with its interval.
    :param classes: A to D.
    :param notes: warnings.
    :param lengths: the conformal length by level.
    """

    probability: Probabilities | None
    classes: tuple[str, ...] | None
    notes: tuple[str, ...]
    lengths: dict[float, int]


@dataclass(frozen=True, eq=False, repr=False)
class Trust:
    """What cross-fitting has found, for the lists of a ranker that was fitted to all links.

    :param calibration: from scores to probabilities.
    :param ranks: for each group of rows, ascending ranks of hidden links, one of each row.
    :param chance: (4,) share of hidden links among all candidates of a group; NaN without such a row.
    :param isolated: (J,) rows without a neighbour in a graph of the rows, ascending.
    :param remarks: sentences about all lists.
    :param lists: how many lists were made.
    :param links: how many hidden links were looked for.
    :param rows: how many rows had one.
    :param top: from places and scores to P(top k); None where lists were not compared.
    """

    calibration: Calibration
    ranks: tuple[Tensor, ...]
    chance: Tensor
    isolated: Tensor
    remarks: tuple[str, ...]
    lists: int
    links: int
    rows: int
    top: TopPlaces | None = None

    def length(self, num_known: int, level: float = 0.9) -> float:
        """The conformal length for a row with so many known links; infinity where too few rows were like it."""
        known = torch.tensor([check_whole_number(num_known, "num_known", 0)])
        return conformal_length(self.ranks[int(group_of(known))], level)

    def coverage(self, levels: Sequence[float] = (0.8, 0.9)) -> list[dict[str, Any]]:
        """For each level and group: the length (None for the whole row), hidden links, and the share it covers."""
        table = []
        for level in levels:
            for name, ranks in zip(GROUPS, self.ranks, strict=True):
                length = conformal_length(ranks, level)
                covered = float((ranks <= length).double().mean()) if len(ranks) else None
                whole = math.isinf(length)
                entry = {"group": name, "level": level, "length": None if whole else int(length)}
                table.append({**entry, "links": len(ranks), "covered": covered})
        return table

    def judge(
        self,
        row: int,
        scores: Tensor,
        places: Tensor,
        num_known: int,
        candidates: int,
        levels: Sequence[float] = (),
    ) -> RowTrust:
        """What can be said about candidates of a row.

        :param row: its number.
        :param scores: (I,) descending.
        :param places: (I,) from 1, among the candidates.
        :param num_known: known links of the row.
        :param candidates: how many the row has; a list is not longer.
        :param levels: of conformal lengths.
        """
        group = int(group_of(torch.tensor([num_known])))
        lengths = {level: int(min(candidates, self.length(num_known, level))) for level in levels}
        notes = list(self.remarks)
        for level in levels:
            if math.isinf(self.length(num_known, level)):
                count = len(self.ranks[group])
                notes.append(
                    f"for probability {level:g} the list is the whole row: {count} rows with hidden links and "
                    f"{_known(group)} are too few"
                )
        if self._says_nothing(row, num_known):
            return RowTrust(None, None, (f"{ORDER_ONLY}; {NOTHING}", *notes), lengths)
        found = self.calibration.probabilities(scores, num_known, places)
        chance = float(self.chance[group])
        if len(scores) and not float(found.low[0]) > chance:
            words = "no row like it had hidden links" if math.isnan(chance) else f"{chance:.1g} for a column at random"
            return RowTrust(
                None, None, (f"{ORDER_ONLY}; the best column is not clearly above chance ({words})", *notes), lengths
            )
        if len(scores) and float(scores[0]) > float(self.calibration.highest[group]):
            notes.append(EXTRAPOLATED)
        return RowTrust(found, self.calibration.classes_of(found.value), tuple(notes), lengths)

    def top_chances(self, row: int, scores: Tensor, num_known: int, k: int) -> tuple[Tensor | None, str | None]:
        """P(top k) of candidates of a row, or None and why, where only the order is meant.

        :param row: its number.
        :param scores: (I,) of all its candidates or of the first k + 1 or more, descending.
        :param num_known: known links of the row.
        :param k: places of the top.
        """
        if self.top is None:
            return None, f"P(top {k}) is not known: no lists were compared"
        if self._says_nothing(row, num_known):
            return None, f"P(top {k}) is not known, {ORDER_ONLY}"
        reason = self.top.refusal(num_known, k, len(scores))
        return (self.top.chances(scores, num_known, k), None) if reason is None else (None, reason)

    def of_list(
        self, row: int, scores: Tensor, known: Tensor, k: int, num_cols: int, levels: Sequence[float] = ()
    ) -> dict[str, Any]:
        """What :meth:`judge` and :meth:`top_chances` say of a list, as fields of a ``RankedRow``.

        :param row: its number.
        :param scores: of all its candidates, in any order.
        :param known: (I,) which of the listed columns are known links; they have no place, and NaN for probabilities.
        :param k: places of the top.
        :param num_cols: columns, candidates and known links.
        :param levels: of conformal lengths.
        """
        candidates = len(scores)
        best, num_known = scores.topk(min(k + 1, candidates)).values, num_cols - candidates
        listed = int((~known).sum())

        def of_all(values: Tensor) -> Tensor:
            return torch.full((len(known),), torch.nan).double().masked_scatter_(~known, values)

        said = self.judge(row, best[:listed], torch.arange(1, listed + 1), num_known, candidates, levels)
        fields: dict[str, Any] = {"notes": said.notes, "lengths": said.lengths}
        if said.probability is not None and said.classes is not None:
            ends = {"probability": "value", "probability_low": "low", "probability_high": "high"}
            fields |= {name: of_all(getattr(said.probability, end)) for name, end in ends.items()}
            classes = iter(said.classes)
            fields["classes"] = tuple("" if own else next(classes) for own in known.tolist())
        chances, reason = self.top_chances(row, best, num_known, k)
        fields["top_probability"] = None if chances is None else of_all(chances[:listed])
        return fields | {"notes": (*said.notes, *([] if reason is None or self.top is None else [reason]))}

    def _says_nothing(self, row: int, num_known: int) -> bool:
        return num_known == 0 and bool(torch.isin(torch.tensor(row), self.isolated))

    def in_words(self) -> list[str]:
        """What was measured, in sentences."""
        return [
            f"a fifth of the links of a row was hidden at a time, or all of them: {self.links:,} hidden links of "
            f"{self.rows:,} rows in {self.lists:,} lists",
            *self.calibration.in_words(),
            *([] if self.top is None else [self.top.in_words()]),
            *self.remarks,
        ]

    def __repr__(self) -> str:
        return f"Trust({self.lists:,} lists, {self.links:,} hidden links, {self.calibration!r})"


def _known(group: int) -> str:
    return GROUPS[group] if "known" in GROUPS[group] else f"{GROUPS[group]} known links"


def make_trust(
    found: CrossFit,
    calibration: Calibration,
    compared: CrossFit | None = None,
    *,
    isolated: Tensor,
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> Trust:
    """The record of a cross-fit.

    :param found: of :func:`~mvgp.prioritise.trust.cross_fit.cross_fit`.
    :param calibration: of the same, from :func:`~mvgp.prioritise.trust.calibration.calibrate`.
    :param compared: a cross-fit with ``complete``, for P(top k).
    :param isolated: (J,) rows without a neighbour.
    :param remarks: sentences about all lists.
    :param seed: of the hidden link that is drawn of each row.

    Example:
        >>> import mvgp, torch
        >>> from mvgp.prioritise.baselines import Popularity
        >>> from mvgp.prioritise.trust import calibrate, cross_fit, make_trust
        >>> links = mvgp.PositiveUnlabelled(torch.arange(200), torch.arange(200) % 17 % 3, (200, 30))
        >>> found = cross_fit(Popularity().fit, links)
        >>> trust = make_trust(found, calibrate(found), isolated=torch.tensor([]))
        >>> trust.length(0, 0.9) <= 3
        True

    """
    check_instance(found, "found", CrossFit, "mvgp.prioritise.trust.CrossFit")
    return Trust(
        calibration,
        found.drawn_ranks(seed),
        found.chance(),
        isolated.long().sort().values,
        tuple(remarks),
        lists=len(found.row),
        links=len(found.link_rank),
        rows=len(found.row[found.hidden > 0].unique()),
        top=None if compared is None else top_places(compared),
    )


def false_discovery(probability: Tensor) -> Tensor:
    """(I,) estimated share of false candidates among the first 1, 2, ..., I: one minus the mean probability.

    :param probability: (I,) of the candidates of a row, best first.

    Example:
        >>> import torch
        >>> from mvgp.prioritise.trust.record import false_discovery
        >>> false_discovery(torch.tensor([0.75, 0.25])).tolist()
        [0.25, 0.5]

    """
    return 1 - probability.double().cumsum(0) / torch.arange(1, len(probability) + 1)


def longest_list(probability: Sequence[float] | Tensor, share: float) -> int:
    """The length of the longest list whose estimated share of false candidates is at most ``share``; may be 0.

    :param probability: (I,) of the candidates of a row, best first.
    :param share: of false candidates, between 0 and 1.

    Example:
        >>> from mvgp.prioritise.trust.record import longest_list
        >>> longest_list([0.75, 0.25, 0.125], 0.5)
        2

    """
    share = check_between(share, "share")
    good = (false_discovery(as_tensor(probability, "probability")) <= share).nonzero()
    return int(good[-1]) + 1 if len(good) else 0


# Files --------------------------------------------------------------------------------------------


def describe_trust(trust: Trust) -> dict[str, Any]:
    """A record as a tree of plain values and tensors."""
    check_instance(trust, "trust", Trust, "mvgp.prioritise.trust.Trust")
    own = trust.calibration
    return {
        "calibration": {
            **{name: getattr(own, name) for name in PARTS[:-2]},
            "classes": [[each.candidates, each.links, each.share, each.low, each.high] for each in own.classes],
            "curve": [
                [at.low, at.high, at.mean_probability, at.share, at.share_low, at.share_high, at.count]
                for at in own.curve
            ],
        },
        "ranks": list(trust.ranks),
        "chance": [None if math.isnan(share) else share for share in trust.chance.tolist()],
        "isolated": trust.isolated,
        "remarks": list(trust.remarks),
        "lists": trust.lists,
        "links": trust.links,
        "rows": trust.rows,
        **({} if trust.top is None else {"top": _describe_top(trust.top)}),
    }


def _describe_top(top: TopPlaces) -> dict[str, Any]:
    knots = [{name: getattr(knot, name) for name in KNOT} for knot in top.knots]
    return {"knots": knots, "unit": top.unit, "rows": top.rows, "error": top.error, "error_k": top.error_k}


def restore_trust(parts: Fields, shape: tuple[int, int]) -> Trust:
    """The record of :func:`describe_trust`; what makes none is a :class:`~mvgp.errors.StorageError`.

    :param parts: of a file.
    :param shape: (M, N) of the links.
    """
    parts.only(*FIELDS, *(["top"] if parts.holds("top") else []))
    ranks = parts.each("ranks", lambda inner, name: inner.array(name, torch.int64, (None,)))
    parts.require(len(ranks) == len(GROUPS), "ranks", f"{len(GROUPS)} groups of rows", len(ranks))
    for each in ranks:
        good = bool((each >= 1).all() and (each <= shape[1]).all() and (each.diff() >= 0).all())
        parts.require(good, "ranks", f"ascending numbers from 1 to {shape[1]}")
    chance = parts.each("chance", lambda inner, name: inner.number(name, 0, 1) if inner.has(name) else math.nan)
    parts.require(len(chance) == len(GROUPS), "chance", f"{len(GROUPS)} groups of rows", len(chance))
    isolated = parts.positions("isolated", shape[0])
    parts.require((isolated.diff() > 0).all(), "isolated", "ascending rows")
    counts = {name: parts.whole(name, 0, MOST) for name in ("lists", "links", "rows")}
    return Trust(
        _restore_calibration(parts.fields("calibration")),
        tuple(ranks),
        torch.tensor(chance, dtype=torch.float64),
        isolated,
        tuple(parts.each("remarks", lambda inner, name: inner.label(name, 1000))),
        **counts,
        top=_restore_top(parts.fields("top")) if parts.holds("top") else None,
    )


def _restore_top(parts: Fields) -> TopPlaces:
    parts.only("knots", "unit", "rows", "error", "error_k")
    knots = []
    for inner in parts.each("knots", Fields.fields):
        inner.only(*KNOT)
        weights = inner.finite("weights", torch.float64, (TOP_FEATURES,))
        inner.require(weights.abs().max() <= 1e6, "weights", "numbers below a million")
        inner.require((weights[:TOP_SLOPES] >= 0).all(), "weights", "slopes that are not negative")
        grid, values = _rising(inner, "grid"), inner.finite("values", torch.float64, (None,))
        good = len(values) == len(grid) and bool((values >= 0).all() and (values <= 1).all())
        inner.require(good and (values.diff() >= 0).all(), "values", f"{len(grid)} probabilities that do not fall")
        knots.append(TopKnot(inner.whole("k", 1, KEPT), weights, grid, values))
    ks = [knot.k for knot in knots]
    parts.require(bool(ks) and ks == sorted(set(ks)) and ks[0] == 1, "knots", "ascending k, from 1", ks)
    rows = parts.array("rows", torch.int64, (len(GROUPS),))
    parts.require((rows >= 0).all() and (rows <= MOST).all(), "rows", "numbers of rows")
    error = float(parts.number("error", 0, 1))
    return TopPlaces(tuple(knots), float(parts.positive("unit")), rows, error, parts.whole("error_k", 1, KEPT))


def _rising(parts: Fields, name: str) -> Tensor:
    """(B,) at least one number, ascending."""
    grid = parts.finite(name, torch.float64, (None,))
    parts.require(len(grid) > 0 and (grid.diff() > 0).all(), name, "ascending numbers, at least one")
    return grid


def _restore_calibration(parts: Fields) -> Calibration:
    parts.only(*PARTS)
    numbers: dict[str, Any] = {name: float(parts.number(name)) for name in NUMBERS}
    quantiles = parts.finite("quantiles", torch.float64, (len(GROUPS), len(TAILS)))
    parts.require((quantiles.diff() >= 0).all(), "quantiles", "ascending numbers")
    parts.require(0 <= numbers["error"] <= 1, "error", "a number from 0 to 1", numbers["error"])
    grid = _rising(parts, "grid")
    lines: dict[str, Any] = {name: parts.finite(name, torch.float64, (len(grid),)) for name in LINES[1:]}
    for name, line in lines.items():
        good = bool((line >= 0).all() and (line <= 1).all() and (line.diff() >= 0).all())
        parts.require(good, name, "probabilities that do not fall")
    inside = (lines["low"] <= lines["values"]).all() and (lines["values"] <= lines["high"]).all()
    parts.require(inside, "values", "probabilities inside their intervals")
    tail = parts.finite("tail", torch.float64, (len(GROUPS), 3))
    parts.require((tail >= 0).all() and (tail <= 1).all(), "tail", "probabilities")
    weights = parts.finite("weights", torch.float64, (FEATURES,))
    parts.require(weights.abs().max() <= 1e6, "weights", "numbers below a million")
    classes = _lines(parts, "classes", 5)
    parts.require(len(classes) == len(CLASSES), "classes", f"{len(CLASSES)} classes", len(classes))
    curve = _lines(parts, "curve", 7)
    return Calibration(
        **numbers,
        grid=grid,
        **lines,
        quantiles=quantiles,
        highest=parts.finite("highest", torch.float64, (len(GROUPS),)),
        tail=tail,
        weights=weights,
        kept=parts.whole("kept", 1, KEPT),
        classes=tuple(ClassYield(*pair, *line) for pair, line in zip(CLASSES.items(), classes, strict=True)),
        curve=tuple(CurvePoint(*line) for line in curve),
    )


def _lines(parts: Fields, name: str, length: int) -> list[list[float]]:
    """A list of lists of so many numbers that are not negative."""
    lines = parts.each(name, lambda inner, at: inner.each(at, Fields.not_negative))
    parts.require(all(len(line) == length for line in lines), name, f"{length} numbers in each line")
    return [[float(number) for number in line] for line in lines]
