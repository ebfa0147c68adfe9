"""RankedRow and Prioritisation: ranked lists of columns, as tables."""

from __future__ import annotations

import difflib
import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...checks import check_whole_number, shown
from ...errors import InputError
from ...storage.files import replacing
from ...text import visible
from .outputs import HEADER, table_cell, write_file

if TYPE_CHECKING:
    import pandas as pd

    from ..auto.fit import Assessment

SUGGESTIONS = 4
EXPLAINED = 3  # columns whose reasons are below a list
SHOWN = 5  # ids of rows with the same name


def find_rows(wanted: Sequence[str], ids: Sequence[str], names: Sequence[str]) -> list[int]:
    """The index of each wanted row, by id first, then by name, then by name in any case; no row twice.

    :param wanted: ids or names.
    :param ids: of all rows, distinct.
    :param names: of all rows, not necessarily distinct.

    Example:
        >>> from mvgp.prioritise import find_rows
        >>> find_rows(["B7", "asthma"], ["A1", "B7", "C2"], ["Gout", "Ataxia", "Asthma"])
        [1, 2]

    """
    expected = {"rows": (wanted, "ids or names"), "ids": (ids, "strings"), "names": (names, "strings")}
    for name, (texts, kind) in expected.items():
        listed = isinstance(texts, Sequence) and not isinstance(texts, str)
        if not listed or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{name}: expected a list of {kind}, got {shown(texts)}")
    if len(ids) != len(names):
        raise InputError(f"names: expected {len(ids)}, one for each id, got {len(names)}")
    by_id = {row_id: row for row, row_id in enumerate(ids)}
    by_name, by_folded = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for row, name in enumerate(names):
        by_name[name].append(row)
        by_folded[name.casefold()].append(row)
    chosen: dict[int, None] = {}
    for text in (text.strip() for text in wanted):
        rows = [by_id[text]] if text in by_id else by_name.get(text) or by_folded.get(text.casefold(), [])
        if len(rows) > 1:
            some = ", ".join(ids[row] for row in rows[:SHOWN]) + (", ..." if len(rows) > SHOWN else "")
            raise InputError(f"row: {text!r} is the name of {len(rows)} rows; give one of the ids {some}")
        if not rows:
            raise InputError(
                f"row: expected the id or the name of one of {len(ids)} rows, got {text!r}{_hint(text, ids, names)}"
            )
        chosen[rows[0]] = None
    return list(chosen)


def _hint(text: str, ids: Sequence[str], names: Sequence[str]) -> str:
    """What may have been meant: names that contain the text, then names and ids that look like it."""
    folded = text.casefold()
    originals = {name.casefold(): name for name in (*ids, *names)}
    inside = sorted((name for name in originals if folded and folded in name), key=lambda name: (len(name), name))
    alike = difflib.get_close_matches(folded, list(originals), n=SUGGESTIONS, cutoff=0.5)
    best = list(dict.fromkeys([*alike[:1], *inside, *alike]))[:SUGGESTIONS]
    return f"; did you mean {' or '.join(repr(originals[name]) for name in best)}?" if best else ""


ASSESSED = ("model", "auc", "metric", "value", "ahead", "low", "high")


@dataclass(frozen=True, eq=False, repr=False)
class RankedRow:
    """The best I columns of one row, best first.

    :param row: its number.
    :param row_id: its id.
    :param row_name: its name.
    :param cols: (I,) column of each.
    :param col_ids: their I ids.
    :param col_names: their I names.
    :param score: (I,).
    :param std: (I,) standard deviations of the scores, or None.
    :param top_probability: (I,) P(in the top k): that it is still among the first k once hidden links are known, too
        (:mod:`mvgp.prioritise.trust.top_places`), NaN for known links; or by samples; or None.
    :param known: (I,) bool: whether it is a link that was fitted; all False where known links are left out.
    :param k: how many places the top has.
    :param model: what ranked them.
    :param probability: (I,) that it is a link among the hidden ones, if a fifth of the links were hidden
        (:mod:`mvgp.prioritise.trust`); NaN for known links; None where nothing was measured or only the order is meant.
    :param probability_low: (I,) lower end of its 90 % interval.
    :param probability_high: (I,) upper end.
    :param classes: I classes, A to D; empty for known links.
    :param reasons: for each, why it is in the list.
    :param notes: sentences about this list: warnings.
    :param num_known: known links of the row.
    :param lengths: by level: how long a list must be to hold a hidden link with that probability.

    Example:
        >>> import torch
        >>> from mvgp.prioritise import RankedRow
        >>> two = torch.tensor([0.9, 0.4])
        >>> known = torch.tensor([False, False])
        >>> row = RankedRow(3, "D3", "Gout", torch.tensor([5, 0]), ("g5", "g0"), ("ABCG2", "SLC2A9"), two, two / 4, two,
        ...     known, 2, "trace")
        >>> print(row)
        D3  Gout
        rank  id    name  score    std  P(top 2)
           1  g5   ABCG2    0.9  0.225     0.900
           2  g0  SLC2A9    0.4    0.1     0.400

    """

    row: int
    row_id: str
    row_name: str
    cols: Tensor
    col_ids: tuple[str, ...]
    col_names: tuple[str, ...]
    score: Tensor
    std: Tensor | None
    top_probability: Tensor | None
    known: Tensor
    k: int
    model: str
    probability: Tensor | None = None
    probability_low: Tensor | None = None
    probability_high: Tensor | None = None
    classes: tuple[str, ...] | None = None
    reasons: tuple[Any, ...] | None = None
    notes: tuple[str, ...] = ()
    num_known: int | None = None
    lengths: dict[float, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cols)

    def entries(self) -> list[dict[str, Any]]:
        """The fields of ``HEADER`` by name for each column; None where nothing is known."""
        unknown = [None] * len(self)

        def listed(values: Tensor | None) -> list[Any]:
            if values is None:
                return unknown
            return [None if math.isnan(value) else value for value in values.tolist()]

        columns: dict[str, Sequence[Any]] = {
            "row_id": [self.row_id] * len(self),
            "row_name": [self.row_name] * len(self),
            "rank": range(1, len(self) + 1),
            "col_id": self.col_ids,
            "col_name": self.col_names,
            "score": self.score.tolist(),
            "std": listed(self.std),
            "p_top": listed(self.top_probability),
            "k": [self.k] * len(self),
            "known": self.known.tolist(),
            "model": [self.model] * len(self),
            "probability": listed(self.probability),
            "low": listed(self.probability_low),
            "high": listed(self.probability_high),
            "class": unknown if self.classes is None else [name or None for name in self.classes],
            "why": unknown if self.reasons is None else [str(reasons) for reasons in self.reasons],
        }
        return [dict(zip(HEADER, line, strict=True)) for line in zip(*(columns[name] for name in HEADER), strict=True)]

    def lines(self) -> Iterator[tuple[str, ...]]:
        """A line of the table for each column, its fields those of ``HEADER``; empty where nothing is known.

        Ids and names are made harmless for spreadsheets and terminals; :func:`mvgp.text.from_cell` has them back.
        """
        for entry in self.entries():
            yield tuple(table_cell(value) for value in entry.values())

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The table for people: headings, and for each column its fields; control characters of names are escaped."""
        columns = {
            "rank": [str(rank) for rank in range(1, len(self) + 1)],
            "id": [visible(text) for text in self.col_ids],
            "name": [visible(text) for text in self.col_names],
            "score": [f"{value:.3g}" for value in self.score.tolist()],
        }
        if self.std is not None:
            columns["std"] = [f"{value:.3g}" for value in self.std.tolist()]
        if self.top_probability is not None:
            columns[f"P(top {self.k})"] = [
                "" if math.isnan(value) else f"{value:.3f}" for value in self.top_probability.tolist()
            ]
        if self.probability is not None and self.probability_low is not None and self.probability_high is not None:
            parts = (self.probability.tolist(), self.probability_low.tolist(), self.probability_high.tolist())
            columns["probability"] = [percent(*line) for line in zip(*parts, strict=True)]
        if self.classes is not None:
            columns["class"] = list(self.classes)
        if bool(self.known.any()):
            columns["known"] = ["yes" if known else "" for known in self.known.tolist()]
        return list(columns), [list(line) for line in zip(*columns.values(), strict=True)]

    def title(self) -> str:
        """Id and name of the row, for people."""
        return visible(self.row_id if self.row_name == self.row_id else f"{self.row_id}  {self.row_name}")

    def __str__(self) -> str:
        headings, lines = self.cells()
        return "\n".join([self.title(), *aligned([headings, *lines]), *self.remarks()])

    def remarks(self) -> list[str]:
        """Sentences below the table: why the first are there, notes, and how long a list must be."""
        first = list(zip(self.col_names, self.reasons or (), strict=False))[:EXPLAINED]
        known = "" if self.num_known is None else f" of a row with about so many known links ({self.num_known})"
        return [
            *(f"why {visible(name)}: {reasons}" for name, reasons in first),
            *(visible(note) for note in self.notes),
            *(
                f"a hidden link{known} is among the first {length:,} with probability {level:g}"
                for level, length in self.lengths.items()
            ),
        ]

    def __repr__(self) -> str:
        return f"RankedRow({self.row_id!r}, {len(self)} columns)"


@dataclass(frozen=True, eq=False, repr=False)
class Prioritisation:
    """Ranked lists of several rows. Iterating gives a :class:`RankedRow` for each.

    :param rows: the lists.
    :param model: what ranked them.
    :param setting: its settings, in words.
    """

    rows: tuple[RankedRow, ...]
    model: str
    setting: str

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[RankedRow]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> RankedRow:
        return self.rows[index]

    def write(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write the lists to a file, which appears whole or not at all.

        :param path: of the file.
        :param format: ``tsv``, ``jsonl``, ``parquet`` or ``pheval``; by the file's ending when left out.
        """
        write_file(self.rows, path, format)

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a line for each row and column."""
        import pandas as pd

        return pd.DataFrame([entry for row in self.rows for entry in row.entries()], columns=list(HEADER))

    def __str__(self) -> str:
        return "\n\n".join(str(row) for row in self.rows)

    def __repr__(self) -> str:
        return f"Prioritisation({len(self)} rows, {self.model}: {self.setting})"


def judged_rows(assessment: Assessment) -> int:
    """On how many rows the models were compared; with less than two there is no interval."""
    own = assessment.scores["auto"].per_task(assessment.metric)
    return int((~own.isnan()).sum())


def doubt(assessment: Assessment) -> str | None:
    """A sentence, where held-out links do not show that ``auto`` is better than popularity."""
    test = assessment.comparisons()["popularity"]
    low, high = test.interval
    if low > 0:
        return None
    return (
        f"on held-out links auto is not better than popularity in {assessment.metric} (difference "
        f"{test.difference:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}): take the list with caution"
    )


def write_assessment(assessment: Assessment | None, path: str | os.PathLike[str]) -> None:
    """A tab-separated table of how ``auto`` and the baselines rank held-out links; without any, its header alone.

    Its columns are ``ASSESSED``: the model, its AUC, the metric that was optimised and its value, and how far ``auto``
    is ahead of the model in that, with a 95 % interval.
    """
    lines: list[tuple[str, ...]] = [ASSESSED]
    if assessment is not None and judged_rows(assessment) > 1:
        ahead = assessment.comparisons()
        for name, scores in assessment.scores.items():
            test, metric = ahead.get(name), assessment.metric
            auc, value = (float(scores.per_task(one).nanmean()) for one in ("AUC", metric))
            paired = (None, None, None) if test is None else (test.difference, *test.interval)
            lines.append(tuple(table_cell(cell) for cell in (name, auc, metric, value, *paired)))
    with replacing(os.fspath(path)) as file:
        file.write("".join("\t".join(line) + "\n" for line in lines).encode())


def check_top(top: Any, num_cols: int) -> int:
    """How many columns, at most all of them."""
    checked = check_whole_number(top, "top")
    if checked > num_cols:
        raise InputError(f"top: expected at most {num_cols}, the number of columns, got {checked}")
    return checked


def aligned(lines: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Lines of cells under each other; columns are flush right, but for those of ``left``."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in lines
    ]


def percent(value: float, low: float, high: float) -> str:
    """A probability and its interval for people: "12 % (8 to 17)"; empty for NaN."""
    if math.isnan(value):
        return ""
    digits = ".0f" if value >= 0.0995 else ".1f" if value >= 0.00095 else ".1g"
    return f"{100 * value:{digits}} % ({100 * low:{digits}} to {100 * high:{digits}})"
