"""The record of ranked lists: one JSON object with all that a page, a table or another program shows of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...checks import check_instance
from ...errors import InputError
from ...metrics.ranking import TaskItems
from ...text import visible
from ...version import __version__
from ..auto.blend import GROUPS, group_of
from ..auto.fit import AutoRanker
from ..ranking.prioritiser import Prioritiser
from ..ranking.rows import RankedRow, judged_rows
from .candidates import why
from .page import percent, words_of

if TYPE_CHECKING:
    from ...kernels.graph import Graph
    from ..tables.link_set import LinkSet

FORMAT = 1
# columns of the table of a record: those of ``mvgp rank --out``, then what is known of each candidate
COLUMNS = (
    *("row_id", "row_name", "rank", "col_id", "col_name", "score", "std", "p_top", "k", "known", "model"),
    *("probability", "low", "high", "class", "why"),
)
HIDDEN_SHARE = 0.2  # of the links, behind probabilities
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of coverage
MAX_EXPLAINED = 100  # lists whose reasons are computed here
NETWORK_CANDIDATES, NETWORK_KNOWN = 20, 20  # nodes of a network


def record_of(
    fitted: Prioritiser,
    lists: Iterable[RankedRow],
    *,
    link_set: LinkSet | None = None,
    row_word: str = "disease",
    col_word: str = "gene",
    title: str = "",
) -> dict[str, Any]:
    """Ranked lists as one JSON object: what was asked, what was found, how good the model is on held-out links.

    It holds numbers, texts, lists and objects alone, and null where something is not known. The format is described in
    the documents, under "Reports".

    :param fitted: what has ranked them.
    :param lists: from :meth:`~mvgp.prioritise.Prioritiser.ranked`.
    :param link_set: what it was fitted to; its graph of the columns gives the networks of models other than ``auto``.
    :param row_word: what a row is called.
    :param col_word: what a column is called.
    :param title: of the page; made from the rows when left out.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import fit_prioritiser
        >>> from mvgp.prioritise.report import record_of
        >>> from mvgp.prioritise.tables import LinkSet
        >>> links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
        >>> fitted = fit_prioritiser(links)
        >>> record = record_of(fitted, fitted.ranked([1], top=2, uncertainty=False))
        >>> record["lists"][0]["known"]
        [{'col_id': 'x', 'col_name': 'x'}]
        >>> record["lists"][0]["candidates"][0]["col_id"]
        'w'

    """
    check_instance(fitted, "fitted", Prioritiser, "mvgp.prioritise.Prioritiser")
    words = words_of(row_word, col_word)
    known = TaskItems(fitted.known, fitted.shape, "known")
    graph = link_set.col_graph if link_set is not None else _graph_of(fitted)
    ranked = list(lists)
    explain = _explainer(fitted, (row_word, col_word)) if len(ranked) <= MAX_EXPLAINED else None
    described = [_list(fitted, row, known, graph, explain) for row in ranked]
    if not described:
        raise InputError("lists: expected at least one ranked list, got none")
    calibration, coverage = _trust(getattr(fitted, "trust", None))
    record = {
        "format": FORMAT,
        "title": title or _title(described, words),
        "source": fitted.source,
        "model": fitted.model,
        "setting": fitted.setting,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "words": {"row": row_word, "col": col_word},
        "data": {"rows": fitted.shape[0], "cols": fitted.shape[1], "links": len(fitted.known)},
        "assessment": _assessment(fitted),
        "calibration": calibration,
        "coverage": coverage,
        "lists": described,
    }
    return {**record, "summary": _summary(record, words)}


def _graph_of(fitted: Prioritiser) -> Graph | None:
    """The graph of the columns that ``auto`` has kept; None for other models."""
    ranker = fitted.rankers[0]
    return ranker.bank.col_graphs[0] if isinstance(ranker, AutoRanker) else None


def _explainer(fitted: Prioritiser, words: tuple[str, str]) -> Callable[[RankedRow], Any]:
    """What gives the reasons of lists that have none; None for models other than ``auto``."""
    options = {"row_names": fitted.row_names, "col_names": fitted.col_names, "words": words}
    return lambda row: fitted.mixture.why(row.row, row.cols, **options)


def _list(
    fitted: Prioritiser,
    row: RankedRow,
    known: TaskItems,
    graph: Graph | None,
    explain: Callable[[RankedRow], Any] | None,
) -> dict[str, Any]:
    cols = known.of(torch.tensor([row.row]))[1].tolist()
    named = [{"col_id": fitted.col_ids[col], "col_name": fitted.col_names[col]} for col in cols]
    lengths = {f"{level:g}": int(length) for level, length in (getattr(row, "lengths", None) or {}).items()}
    return {
        "row_id": row.row_id,
        "row_name": row.row_name,
        "group": GROUPS[int(group_of(torch.tensor([len(cols)]))[0])],
        "num_known": len(cols),
        "notes": list(getattr(row, "notes", ())),
        "lengths": lengths,
        "known": named,
        "candidates": _candidates(fitted, row, explain),
        "network": None if graph is None else network_of(graph, row, cols, named),
    }


def _candidates(
    fitted: Prioritiser, row: RankedRow, explain: Callable[[RankedRow], Any] | None
) -> list[dict[str, Any]]:
    unknown = (None,) * len(row)
    chance, low, high = (
        unknown if (values := getattr(row, name, None)) is None else values.tolist()
        for name in ("probability", "probability_low", "probability_high")
    )
    classes, reasons = (getattr(row, name, None) for name in ("classes", "reasons"))
    if reasons is None and explain is not None and len(row):
        reasons = explain(row)
    described = []
    for entry, *numbers, grade, parts in zip(
        row.entries(), chance, low, high, classes or unknown, reasons or unknown, strict=True
    ):
        candidate = {key: entry[key] for key in ("rank", "col_id", "col_name", "score", "std", "p_top", "k", "known")}
        candidate |= dict(zip(("probability", "low", "high"), numbers, strict=True))
        listed = [_reason(fitted, part) for part in getattr(parts, "parts", ())]
        text = "" if parts is None else str(parts)
        candidate |= {"class": grade or None, "why": text or why(listed), "reasons": listed}
        described.append({key: None if _undefined(value) else value for key, value in candidate.items()})
    return described


def _undefined(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _reason(fitted: Prioritiser, part: Any) -> dict[str, Any]:
    """A part of the reasons of a candidate, with ids and names of the links that carry it."""
    ends = [
        {
            "row_id": fitted.row_ids[row],
            "row_name": fitted.row_names[row],
            "col_id": fitted.col_ids[col],
            "col_name": fitted.col_names[col],
            "share": float(share),
        }
        for row, col, share in part.links
    ]
    return {"share": float(part.share), "source": str(part.source), "text": str(part.text), "links": ends}


def network_of(graph: Graph, row: RankedRow, known: Sequence[int], named: Sequence[Mapping[str, str]]) -> Any:
    """The first candidates of a list and the known columns that are nearest to them; None if no edge joins any.

    :param graph: of the columns.
    :param row: the list.
    :param known: columns with a known link.
    :param named: their ids and names.
    """
    fitted = {col: names for col, names in zip(known, named, strict=True)}
    places = [place for place, col in enumerate(row.cols.tolist()) if col not in fitted][:NETWORK_CANDIDATES]
    first = [int(row.cols[place]) for place in places]
    weights = graph.adjacency()
    near = np.asarray(weights[first][:, list(known)].sum(axis=0)).ravel() if first and len(known) else np.zeros(0)
    beside = [known[at] for at in np.argsort(-near, kind="stable")[:NETWORK_KNOWN]]
    nodes = [*first, *beside]
    if not nodes:
        return None
    part = weights[nodes][:, nodes].tocoo()
    upper = part.row < part.col
    edges = sorted(zip(part.row[upper].tolist(), part.col[upper].tolist(), part.data[upper].tolist(), strict=True))
    if not edges:
        return None
    candidates = [
        {"id": row.col_ids[place], "name": row.col_names[place], "kind": "candidate", "rank": place + 1}
        for place in places
    ]
    others = [{"id": fitted[col]["col_id"], "name": fitted[col]["col_name"], "kind": "known"} for col in beside]
    return {"nodes": [*candidates, *others], "edges": [[i, j, float(f"{weight:.5g}")] for i, j, weight in edges]}


def _trust(trust: Any) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Calibration and coverage on cross-fitted links, where they were measured."""
    if trust is None:
        return None, []
    ends, made = ("low", "high", "mean_probability", "share", "share_low", "share_high"), trust.calibration
    curve = [{**{name: _number(getattr(at, name)) for name in ends}, "count": round(at.count)} for at in made.curve]
    classes = [
        {
            **{"class": part.name, "at_least": float(part.at_least), "yield": _number(part.share)},
            **{name: round(getattr(part, name)) for name in ("candidates", "links")},
            **{name: _number(getattr(part, name)) for name in ("low", "high")},
        }
        for part in made.classes
    ]
    measured = {"hidden_share": HIDDEN_SHARE, "error": _number(made.error), "curve": curve, "classes": classes}
    return measured, trust.coverage(LEVELS)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _assessment(fitted: Prioritiser) -> dict[str, Any] | None:
    judged = fitted.assessment
    if judged is None or judged_rows(judged) < 2:
        return None
    ahead, models = judged.comparisons(), []
    for name, scores in judged.scores.items():
        auc, value = (float(scores.per_task(metric).nanmean()) for metric in ("AUC", judged.metric))
        test = ahead.get(name)
        paired = (None, None, None) if test is None else (test.difference, *test.interval)
        difference = dict(zip(("ahead", "low", "high"), paired, strict=True))
        models.append({"name": name, "auc": auc, "value": value, **difference})
    return {
        "metric": judged.metric,
        "rows": judged_rows(judged),
        "models": models,
        "words": judged.in_words(),
        "chosen": [text for ranker in fitted.rankers if isinstance(ranker, AutoRanker) for text in ranker.in_words()],
    }


# Words -------------------------------------------------------------------------------------------


def _title(lists: Sequence[Mapping[str, Any]], words: Mapping[str, str]) -> str:
    if len(lists) == 1:
        return f"{words['cols'].capitalize()} for {lists[0]['row_name'] or lists[0]['row_id']}"
    return f"{words['cols'].capitalize()} for {len(lists):,} {words['rows']}"


def _summary(record: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """Three sentences: what was ranked, how good the model is, and what stands first."""
    lists, cols = record["lists"], words["cols"]
    count = sum(len(entry["candidates"]) for entry in lists)
    ranked = f"ranked by {record['model']} among {record['data']['cols']:,} {cols}"
    if len(lists) == 1:
        known = lists[0]["num_known"]
        have = f"{known:,} known {words['col'] if known == 1 else cols}" if known else f"no known {words['col']}"
        name = visible(lists[0]["row_name"] or lists[0]["row_id"])
        first = f"{name} has {have}; these are the {count:,} best of its other {cols}, {ranked}."
    else:
        first = f"These are the best {cols} of {len(lists):,} {words['rows']}, {count:,} in all, {ranked}."
    judged = record["assessment"]
    good = "How good the lists are on held-out links is not known for this model; mvgp study measures it."
    if judged is not None:
        good = judged["words"][:1].upper() + judged["words"][1:] + "."
    return [first, good, _best(lists, words, measured=record["calibration"] is not None)]


def _best(lists: Sequence[Mapping[str, Any]], words: Mapping[str, str], *, measured: bool) -> str:
    candidates = [candidate for entry in lists for candidate in entry["candidates"] if not candidate["known"]]
    if not candidates:
        return f"There is no {words['col']} that is not known already."
    rated = [candidate for candidate in candidates if candidate["probability"] is not None]
    if not rated:
        return "Order only: " + ("too little to go by." if measured else "no probabilities were measured.")
    if len(lists) > 1:
        counts = {grade: sum(candidate["class"] == grade for candidate in rated) for grade in "ABCD"}
        listed = [f"{count:,} in class {grade}" for grade, count in counts.items() if count]
        rest = len(candidates) - sum(counts.values())
        listed += [f"{rest:,} in none"] if rest else []
        return f"There are {len(candidates):,} candidates that are not known: {', '.join(listed)}."
    top = rated[0]
    between = (
        ""
        if None in (top["low"], top["high"])
        else f" (90\u202f% interval {percent(top['low'])} to {percent(top['high'])})"
    )
    grade = f", class {top['class']}" if top["class"] else ""
    name = visible(top["col_name"] or top["col_id"])
    return f"{name}, in place {top['rank']}, is a link with probability {percent(top['probability'])}{between}{grade}."


# Records that come from elsewhere ----------------------------------------------------------------

TEXT, FLAG, NUMBER = "a text", "true or false", "a number"
SHARE, COUNT = "a number from 0 to 1", "a whole number of at least 0"
ENTRIES = dict.fromkeys(("title", "source", "model", "setting", "created", "version"), TEXT)
OF_LIST = {"row_id": TEXT, "row_name": TEXT, "num_known": f"{COUNT} or null"}
OF_CANDIDATE = {
    **{"rank": COUNT, "col_id": TEXT, "col_name": TEXT, "score": f"{NUMBER} or null", "std": f"{NUMBER} or null"},
    **{name: f"{SHARE} or null" for name in ("p_top", "probability", "low", "high")},
    **{"k": f"{COUNT} or null", "class": f"{TEXT} or null", "known": FLAG, "why": f"{TEXT} or null"},
}


def check_record(record: Any) -> dict[str, Any]:
    """A record as :func:`record_of` makes it, perhaps read from a file; what is wrong is named by its place."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        got = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise InputError(f"record: expected ranked lists of format {FORMAT}, got {got!r}")
    _check(record, "record", ENTRIES)
    words = record.get("words")
    _check(words if isinstance(words, dict) else {}, "record.words", {"row": TEXT, "col": TEXT})
    for name in ("summary", "coverage", "lists"):
        if not isinstance(record.get(name), list):
            raise InputError(f"record.{name}: expected a list, got {record.get(name)!r:.100}")
    if not record["lists"]:
        raise InputError("record.lists: expected at least one list, got none")
    for number, entry in enumerate(record["lists"]):
        where = f"record.lists[{number}]"
        _check(entry, where, OF_LIST)
        for name in ("notes", "known", "candidates"):
            if not isinstance(entry.get(name), list):
                raise InputError(f"{where}.{name}: expected a list, got {entry.get(name)!r:.100}")
        for place, known in enumerate(entry["known"]):
            _check(known, f"{where}.known[{place}]", {"col_id": TEXT, "col_name": TEXT})
        for place, candidate in enumerate(entry["candidates"]):
            _check(candidate, f"{where}.candidates[{place}]", OF_CANDIDATE)
    return record


def _check(values: Any, where: str, kinds: Mapping[str, str]) -> None:
    if not isinstance(values, dict):
        raise InputError(f"{where}: expected an object, got {values!r:.100}")
    for name, kind in kinds.items():
        value, plain = values.get(name), kind.removesuffix(" or null")
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        fits = {
            TEXT: isinstance(value, str),
            FLAG: isinstance(value, bool),
            NUMBER: number,
            SHARE: number and 0 <= value <= 1,  # type: ignore[operator]
            COUNT: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        }[plain]
        if not fits and not (value is None and plain != kind):
            raise InputError(f"{where}.{name}: expected {kind}, got {value!r:.100}")
