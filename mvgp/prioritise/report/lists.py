"""write_lists: the page of ranked lists, and the same as JSON, TSV and parquet."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import check_path
from ...errors import InputError
from ...storage.files import check_output_file, replacing
from ..ranking.outputs import has_pyarrow, table_cell, write_parquet
from .candidates import Compact, component
from .figures import Figure, Panel, Series
from .page import check_target, figure_files, remove_old, render, words_of, write_files
from .record import COLUMNS, check_record
from .sections import shortened

FIGURES = ("probabilities", "coverage")
ORDER_ONLY = "order only: too little to go by"
MAX_NETWORKS = 200  # lists whose network is drawn
MAX_EDGES = 150  # that are drawn, the strongest ones
WIDTH, MIN_HEIGHT, MAX_HEIGHT = 760, 220, 560  # of a network, in CSS pixels
LETTER, LINE = 7.2, 34  # width of a letter, height of a node with its label
STEPS, PUSHES = 80, 120  # of the layout


def write_lists(record: dict[str, Any], out: str | os.PathLike[str]) -> Path:
    """Write the page of ranked lists, ``report.html``, with ``lists.json``, ``lists.tsv`` and figures beside it.

    The page needs no network. If pyarrow is installed there is ``lists.parquet``, too. Everything is prepared before
    the first file is replaced: after an error an older page is as it was.

    :param record: from :func:`record_of`, or read from a ``lists.json``.
    :param out: directory, made if it is not there.

    Returns the path of the page.

    Example:
        >>> import tempfile
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import fit_prioritiser
        >>> from mvgp.prioritise.report import record_of, write_lists
        >>> from mvgp.prioritise.tables import LinkSet
        >>> links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
        >>> fitted = fit_prioritiser(links)
        >>> record = record_of(fitted, fitted.ranked(top=2, uncertainty=False), row_word="user", col_word="film")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_lists(record, folder).read_text(encoding="utf-8")
        >>> "films for 3 users" in page.lower()
        True

    """
    record = check_record(record)
    target = check_target(check_path(out, "out"))
    if os.path.lexists(target / "study.json"):
        raise InputError(f"{target}: expected a directory without another report, got that of a study")
    parquet = {"lists.parquet": to_parquet(record)} if has_pyarrow() else {}
    files = {"lists.tsv": to_tsv(record), "lists.json": to_json(record), **parquet}
    shown = _sections(record, list(files))
    contents = {"report.html": _page(record, shown), **files, **figure_files(shown)}
    write_files(target, contents)
    ours = [f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png")]
    remove_old(target, contents, [*ours, "lists.parquet"])
    return target / "report.html"


def save_record(record: dict[str, Any], path: str | os.PathLike[str], kind: str) -> None:
    """The record as a file of one kind, "json", "tsv" or "parquet", whole or not at all."""
    content = {"json": to_json, "tsv": to_tsv, "parquet": to_parquet}[kind](check_record(record))
    with replacing(check_output_file(path)) as file:
        file.write(content)


def to_json(record: Mapping[str, Any]) -> bytes:
    """As it is; halves of surrogate pairs are escapes."""
    try:
        return (json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"record: expected numbers, texts, lists and objects of JSON, got {error}") from error


def to_tsv(record: Mapping[str, Any]) -> bytes:
    """A table with a line for each candidate; ids and names as :func:`mvgp.text.to_cell` has them."""
    lines = [COLUMNS, *([table_cell(line[name]) for name in COLUMNS] for line in _lines(record))]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def to_parquet(record: Mapping[str, Any]) -> bytes:
    """The same table as :func:`to_tsv`, with types; texts are as they are."""
    file = io.BytesIO()
    write_parquet(_lines(record), COLUMNS, file)
    return file.getvalue()


def _lines(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in record["lists"]:
        about = {"row_id": entry["row_id"], "row_name": entry["row_name"], "model": record["model"]}
        for candidate in entry["candidates"]:
            yield {**dict.fromkeys(COLUMNS), **candidate, **about}


# The page ----------------------------------------------------------------------------------------


def _page(record: Mapping[str, Any], shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    titles = {
        "candidates": "Candidates",
        "network": "Network",
        "quality": "How good it is",
        "trust": "Probabilities and coverage",
        "made": "How it was made",
    }
    return render(
        masthead="lists.html",
        title=record["title"],
        titles={name: title for name, title in titles.items() if name in shown},
        sections=shown,
        missing={},
        files="The same lists lie beside it as JSON and as tables.",
        record=record,
        created=_date(record["created"]),
        words=words_of(record["words"]["row"], record["words"]["col"]),
        summary=record["summary"],
    )


def _date(created: str) -> str:
    """A date for people; as it is where it is none."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{moment:%d %B %Y, %H:%M} {moment.tzname() or ''}".strip()


def _sections(record: Mapping[str, Any], files: list[str]) -> dict[str, Any]:
    compact = Compact("known")
    networks = 0
    rated = any(each["probability"] is not None for entry in record["lists"] for each in entry["candidates"])
    for entry in record["lists"]:
        drawn = entry.get("network") if networks < MAX_NETWORKS else None
        networks += drawn is not None
        candidates = [{**candidate, "flag": candidate["known"]} for candidate in entry["candidates"]]
        compact.add(
            0,
            (entry["row_id"], entry["row_name"]),
            candidates[0].get("k") if candidates else None,
            candidates,
            notes=_notes(entry, rated),
            lengths=entry.get("lengths") or {},
            group=entry.get("group") or "",
            known=[compact.column(known["col_id"], known["col_name"]) for known in entry["known"]],
            **({"network": _network(drawn, compact)} if drawn else {}),
        )
    first = [{**candidate, "flag": candidate["known"]} for candidate in record["lists"][0]["candidates"]]
    shown: dict[str, Any] = {
        "candidates": {
            **component(compact, [record["model"]], first),
            "downloads": files,
        }
    }
    if networks:
        shown["network"] = {"limit": MAX_NETWORKS if len(record["lists"]) > MAX_NETWORKS else 0}
    if record.get("assessment"):
        shown["quality"] = _quality(record["assessment"])
    if record.get("calibration") or record["coverage"]:
        figures = [_calibration_figure(record["calibration"]), _coverage_figure(record["coverage"])]
        shown["trust"] = {"figures": [figure for figure in figures if figure is not None]}
    return {**shown, "made": {}}


def _notes(entry: Mapping[str, Any], rated: bool) -> list[str]:
    """The notes of a list, and one if none of its candidates has a probability where those of other lists have."""
    silent = all(candidate["probability"] is None for candidate in entry["candidates"])
    if rated and silent and not any(note.lower().startswith(ORDER_ONLY[:10]) for note in entry["notes"]):
        return [*entry["notes"], ORDER_ONLY]
    return list(entry["notes"])


def _quality(assessment: Mapping[str, Any]) -> dict[str, Any]:
    """Bars and intervals of the models; the interval is on a scale where zero is at 60."""
    models = assessment["models"]
    sides = [abs(model[side] or 0) for model in models for side in ("ahead", "low", "high")]
    largest, widest = max([model["value"] or 0 for model in models] or [0]) or 1.0, max(sides or [0]) or 1.0
    lines = []
    for model in models:
        known = None not in (model["ahead"], model["low"], model["high"])
        interval = [round(60 + 56 * model[side] / widest, 1) for side in ("low", "ahead", "high")] if known else None
        clear = known and (model["low"] > 0 or model["high"] < 0)
        share = round(120 * max(0.0, model["value"] or 0) / largest, 1)
        lines.append({**model, "bar": share, "interval": interval, "excludes_zero": clear})
    return {"lines": lines}


def _calibration_figure(calibration: Mapping[str, Any] | None) -> Figure | None:
    """Stated probabilities against shares of hidden links; the axes are logarithmic, most candidates unlikely."""
    curve = (calibration or {}).get("curve") or ()
    rows = [row for row in curve if row["count"] and row["mean_probability"] and row["share"]]
    if not rows:
        return None
    x, y = [row["mean_probability"] for row in rows], [row["share"] for row in rows]
    smallest = 10.0 ** math.floor(math.log10(min(*x, *y)))
    ends = [[row["share"] if row[side] is None else row[side] for row in rows] for side in ("share_low", "share_high")]
    low, high = ([min(1.0, max(smallest, value)) for value in side] for side in ends)
    said = "stated {mean_probability:.3g}, measured {share:.3g}, {count:,} candidates"
    tips = [said.format(**row) for row in rows]
    shares = Series(0, "candidates", x, y, low, high, marks="dot", tips=tips)
    counts = Series(0, "candidates", x, [row["count"] for row in rows], marks="dot", tips=tips)
    unit, label = (smallest, 1.0), "stated probability"
    panels = [
        Panel("Share that were hidden links", label, [shares], True, True, unit, unit, diagonal=True),
        Panel("Candidates in each bin", label, [counts], True, True, unit),
    ]
    return Figure("probabilities", "Calibration of the probabilities", panels)


def _coverage_figure(coverage: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Measured against stated coverage, and the length of lists that it takes, a line for each group of rows."""
    rows = sorted((row for row in coverage if row["covered"] or row["length"]), key=lambda row: row["level"])
    groups = [
        group for group in dict.fromkeys(row["group"] for row in coverage) if any(row["group"] == group for row in rows)
    ]

    def lines(key: str, said: str) -> list[Series]:
        drawn = []
        for index, group in enumerate(groups):
            own = [row for row in rows if row["group"] == group and row[key]]
            x, y, tips = [row["level"] for row in own], [row[key] for row in own], [said.format(**row) for row in own]
            drawn += [Series(index, shortened(group), x, y, marks="dot", tips=tips)] if own else []
        return drawn

    covered = lines("covered", "{group}: stated {level:.0%}, held {covered:.1%} of {links:,} links")
    lengths = lines("length", "{group}: {level:.0%} with a list of {length:,}")
    label, panels = "stated coverage", []
    if covered:
        smallest = min(value for series in covered for value in (*series.x, *series.y))
        unit = (min(0.9, math.floor(10 * smallest) / 10), 1.0)
        title = "Share of hidden links in the list"
        panels.append(Panel(title, label, covered, x_range=unit, y_range=unit, diagonal=True))
    if lengths:
        panels.append(Panel("Length of the list", label, lengths, y_log=True))
    return Figure("coverage", "Coverage of lists", panels, [*map(shortened, groups)]) if panels else None


# The network -------------------------------------------------------------------------------------


def _network(network: Mapping[str, Any], compact: Compact) -> dict[str, Any]:
    """Nodes [column, known, x, y, rank] and the strongest edges, for the script."""
    nodes, edges = network["nodes"], sorted(network["edges"], key=lambda edge: -edge[2])
    width, height, places = layout([node["name"] or node["id"] for node in nodes], edges)
    drawn = [
        [compact.column(node["id"], node["name"]), int(node["kind"] == "known"), *place, node.get("rank")]
        for node, place in zip(nodes, places, strict=True)
    ]
    kept = edges[:MAX_EDGES]
    return {"width": width, "height": height, "nodes": drawn, "edges": kept, "hidden": len(edges) - len(kept)}


def layout(labels: Sequence[str], edges: Sequence[Sequence[float]]) -> tuple[int, int, list[list[int]]]:
    """Width, height and a place (x, y) for each node: springs along edges, repulsion between all nodes (Fruchterman and
    Reingold 1991), then labels that overlap are pushed apart. Nodes without an edge are in lines below. Nothing is
    random.

    :param labels: of the nodes.
    :param edges: of two nodes and a weight each.
    """
    half = np.array([[max(24.0, LETTER * min(14, len(label)) / 2 + 5), LINE / 2] for label in labels])  # (V, 2)
    joined = sorted({int(node) for edge in edges for node in edge[:2]})
    places = np.zeros((len(labels), 2))
    height = 0
    if joined:
        height = int(min(MAX_HEIGHT, max(MIN_HEIGHT, 12 * LINE * half[joined, 0].sum() / WIDTH)))
        number = {node: at for at, node in enumerate(joined)}
        inner = [(number[int(i)], number[int(j)], weight) for i, j, weight in edges]
        places[joined] = _apart(_springs(len(joined), inner), half[joined], np.array([WIDTH, height]))
    x, below = 0.0, float(height)
    for node in (node for node in range(len(labels)) if node not in set(joined)):
        if x + 2 * half[node, 0] > WIDTH:
            x, below = 0.0, below + LINE
        places[node] = x + half[node, 0], below + LINE / 2
        x, height = x + 2 * half[node, 0], int(below + LINE)
    places[:, 1] -= 7  # the label is below
    return WIDTH, height, places.round().astype(int).tolist()


def _springs(count: int, edges: Sequence[tuple[int, int, float]]) -> np.ndarray:
    """(V, 2): places where the forces are even. Nodes with many edges have weak springs, dense parts open up."""
    angle = np.arange(count) * math.pi * (3 - math.sqrt(5))  # of a sunflower: no two nodes in one place
    places = np.sqrt(np.arange(count) + 0.5)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / math.sqrt(count)
    springs = np.zeros((count, count))
    heaviest = max(edge[2] for edge in edges) or 1.0
    for i, j, weight in edges:
        springs[i, j] = springs[j, i] = 0.3 + 0.7 * math.sqrt(max(0.0, weight) / heaviest)
    degree = np.sqrt(springs.sum(1)).clip(1e-9)
    springs = 1.5 * springs / degree[:, None] / degree[None]
    room = 1.0 / math.sqrt(count)
    for step in range(STEPS):
        apart = places[:, None] - places[None]  # (V, V, 2)
        distance = np.sqrt((apart**2).sum(-1)) + 1e-9
        force = (room / distance) ** 2 - springs * distance / room
        np.fill_diagonal(force, 0.0)
        move = (apart * force[..., None]).sum(1) - 0.3 * places
        size = np.sqrt((move**2).sum(-1, keepdims=True)) + 1e-9
        places = places + move / size * np.minimum(size, 0.1 * (1 - step / STEPS))
    return places


def _apart(places: np.ndarray, half: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """(V, 2): places in a frame (2,), with boxes of sides 2 * half (V, 2) pushed apart where they overlap."""
    count = len(places)
    low, high = places.min(0), places.max(0)
    places = half + (places - low) / np.maximum(high - low, 1e-9) * (frame - 2 * half)
    before = np.sign(np.arange(count)[:, None] - np.arange(count)[None])  # (V, V) for nodes in one place
    for _ in range(PUSHES):
        apart = places[:, None] - places[None]
        overlap = half[:, None] + half[None] - np.abs(apart)  # (V, V, 2)
        touching = (overlap > 0).all(-1) & ~np.eye(count, dtype=bool)
        if not touching.any():
            break
        axis = (overlap / frame).argmin(-1)[..., None] == np.arange(2)  # pushed where the least is needed
        sign = np.where(apart == 0, before[..., None], np.sign(apart))
        places = places + (np.where(axis & touching[..., None], overlap * sign, 0.0)).sum(1) * 0.35
        places = np.clip(places, half, frame - half)
    return places
