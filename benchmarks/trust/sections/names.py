"""Names with markup, formulas, escapes and marks of direction, through tables, lists, pages and the screen."""

from __future__ import annotations

import contextlib
import html.parser
import io
import json
import re
import tempfile
import unicodedata
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.plan import Found, Line, generator
from mvgp.errors import MvgpError
from mvgp.kernels import Graph
from mvgp.prioritise import fit_prioritiser
from mvgp.prioritise.cli.entry import run as run_command
from mvgp.prioritise.report import record_of, write_lists
from mvgp.prioritise.tables import LinkSet
from mvgp.text import FORMULAS, UNSAFE, from_cell, to_cell, visible

M, N = 6, 9
PIECES = (
    "=1+1", "=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1:A9)", "\uff1d1", " =1", "\t=1", "'=1", '"=1', "#REF!", "%s%n", "{0}",
    "<script>alert(1)</script>", "</script>", "<img src=x onerror=alert(1)>", '"><svg/onload=alert(1)>', "<!--", "]]>", "&lt;b&gt;",
    "javascript:alert(1)", "{{7*7}}", "${7*7}", "[red]x[/red]", "[link=http://x]y[/link]", "[/]", "\x1b[2J", "\x1b]0;title\x07",
    "\x9b31m", "\r", "\n", "\x00", "\x7f", "\u202eabc\u202c", "\u2066x", "\u200f", "\u061c", "\u2028", "\u2029", "\ufeff", "\u200b",
    "../../etc/passwd", "C:\\x", "\\t\\x1b", "\\", "'", '"', "`", "$x^2$", "$\\frac{1}{0}$", "_{", "__proto__", "constructor",
    "NaN", "null", "None", "true", "0", "1e308", "a b", "  ", "é", "e\u0301", "漢字", "ب", "😀", "👩\u200d👩", "i\u0307", "ß", "K",
    "x" * 300, "n" * 4000, "\ud800",
)  # fmt: skip
HARMFUL = re.compile(f"[{UNSAFE}]")


class Elements(html.parser.HTMLParser):
    """Counts of elements and attributes, addresses, and handlers of events."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.counts: Counter[str] = Counter()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        for name, value in attrs:
            self.counts[f"{tag} {name}"] += 1
            if name in ("href", "src", "action", "formaction") or name.startswith("on"):
                self.addresses.add(f"{name}={value}")

    handle_startendtag = handle_starttag


def drawn(rng: np.random.Generator, count: int) -> list[str]:
    """Different names of one to three pieces, some with a number behind."""
    found: list[str] = []
    while len(found) < count:
        name = "".join(rng.choice(PIECES) for _ in range(rng.integers(1, 4)))
        name = name if rng.random() < 0.5 else f"{name}{len(found)}"
        if name not in found:
            found.append(name)
    return found


def link_set(ids: list[str], names: list[str]) -> LinkSet:
    """A small table; every row has links."""
    rows = np.arange(M).repeat(2)
    cols = np.array([(2 * m + at) % N for m in range(M) for at in range(2)])
    graphs = [Graph([(i, i + 1) for i in range(size - 1)], size) for size in (M, N)]
    return LinkSet(ids[:M], ids[M:], rows, cols, *graphs, names[:M], names[M:], "made up")


def page_of(links: LinkSet, folder: Path) -> Elements:
    """The page of lists of every row."""
    fitted = fit_prioritiser(links, model="popularity")
    record = record_of(fitted, fitted.ranked(top=3, uncertainty=False))
    found = Elements()
    found.feed(write_lists(record, folder).read_text(encoding="utf-8"))
    return found


def wrong_lists(links: LinkSet, folder: Path) -> list[str]:
    """What is wrong with the files of lists and with the text."""
    fitted, wrong = fit_prioritiser(links, model="popularity"), []
    lists = fitted.prioritise(range(M), top=3, uncertainty=False)
    known = {*links.row_ids, *links.col_ids, *links.row_names, *links.col_names}
    for name in known:
        if (
            from_cell(to_cell(name)) != name
            or HARMFUL.search(to_cell(name))
            or to_cell(name).lstrip().startswith(tuple(FORMULAS))
        ):
            wrong.append(f"as a cell: {name!r}")
        if HARMFUL.search(visible(name)):
            wrong.append(f"on the screen: {name!r}")
    lists.write(folder / "lists.tsv")
    lists.write(folder / "lists.jsonl")
    header, *lines = (folder / "lists.tsv").read_bytes().decode().split("\n")[:-1]
    columns = header.split("\t")
    entries = [json.loads(line) for line in (folder / "lists.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    if len(lines) != len(entries) or len(lines) != 3 * M:
        wrong.append(f"{len(lines)} lines and {len(entries)} entries for {3 * M} candidates")
    for line, entry in zip(lines, entries, strict=False):
        cells = dict(zip(columns, line.split("\t"), strict=False))
        if line.count("\t") != len(columns) - 1 or HARMFUL.search(line.replace("\t", "")):
            wrong.append(f"a line of a table: {line[:200]!r}")
        for column in ("row_id", "row_name", "col_id", "col_name"):
            if from_cell(cells.get(column, "")) != entry[column] or entry[column] not in known:
                wrong.append(f"{column}: {cells.get(column)!r} and {entry[column]!r}")
    if HARMFUL.search(str(lists).replace("\n", "").replace("\t", "")):
        wrong.append(f"printed: {str(lists)[:300]!r}")
    return wrong


def wrong_screen(ids: list[str], folder: Path) -> list[str]:
    """What is wrong with the screen of ``mvgp rank`` on tables of these ids, those that a table can hold."""
    plain = [
        one
        for one in ids
        if not re.search(r"[\x00\t\r\n\ud800-\udfff\ufeff]", one) and one.strip() == one and len(one) < 1000
    ]
    plain = list(dict.fromkeys(unicodedata.normalize("NFC", one) for one in plain))
    if len(plain) < 4:
        return []
    half = len(plain) // 2
    pairs = [("row", "col")] + [(row, plain[half + at % (len(plain) - half)]) for at, row in enumerate(plain[:half])]
    (folder / "pairs.tsv").write_text("".join(f"{row}\t{col}\n" for row, col in pairs), encoding="utf-8")
    arguments = ["rank", "--pairs", str(folder / "pairs.tsv"), "--model", "popularity", "--row", plain[0]]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(arguments)
    told = (out.buffer.getvalue() + err.buffer.getvalue()).decode()
    wrong = [] if code in (0, 2) else [f"exit code {code} for {plain[0]!r}"]
    if HARMFUL.search(told.replace("\n", "")):
        wrong.append(f"on the screen: {told[:300]!r}")
    if "Traceback" in told:
        wrong.append(f"a traceback: {told[-300:]!r}")
    return wrong


def tables(first: int, count: int, seed: int) -> Found:
    """A table of hostile ids and names for each number."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        usual = page_of(
            link_set([f"i{at}" for at in range(M + N)], [f"name {at}" for at in range(M + N)]), Path(folder, "usual")
        )
        for number in range(first, first + count):
            rng, place = generator("names/tables", number, seed), Path(folder, str(number))
            place.mkdir()
            ids, names = drawn(rng, M + N), drawn(rng, M + N)
            wrong: list[Any] = []
            outcome = "shown"
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    wrong += wrong_screen(ids, place)
                    links = link_set(ids, names)
                    wrong += wrong_lists(links, place)
                    page = page_of(links, place / "page")
                    more = {name: page.counts[name] - usual.counts[name] for name in page.counts | usual.counts}
                    odd = {name: many for name, many in more.items() if many}
                    if odd or page.addresses != usual.addresses:
                        wrong.append(f"elements of the page: {odd}, {sorted(page.addresses ^ usual.addresses)[:5]}")
            except MvgpError as error:
                outcome = "refused"
                if not str(error).isprintable():
                    wrong.append(f"a message: {str(error)[:200]!r}")
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {str(error)[:200]}")
            told = "; ".join(map(str, wrong))
            found.add(
                "failed" if told else outcome,
                told and f"{number}: {told[:400]}".encode("ascii", "backslashreplace").decode(),
            )
    return found


LINES = [
    Line(
        "names/tables",
        f"tables of {2 * (M + N)} names with markup, formulas, escapes or marks of direction",
        400,
        40,
        tables,
    )
]
