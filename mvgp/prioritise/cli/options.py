"""Options that commands share, and what they say, checked and read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ...errors import InputError
from .streams import log

if TYPE_CHECKING:
    from ..ranking.prioritiser import Prioritiser
    from ..ranking.rows import RankedRow
    from ..tables.link_set import LinkSet

LARGEST = 2**63 - 1  # of an option

file_option, directory_option, row_option = (partial(Option, metavar=name) for name in ("FILE", "DIR", "ID_OR_NAME"))
PAIRS = file_option(help="Known links: row id, column id. TSV or CSV, or gzip'd.")
EDGES = "Graph of the {}: two ids, and perhaps a weight. May be repeated, for several graphs."
RowEdges = Annotated[list[Path] | None, file_option(help=EDGES.format("rows"))]
ColEdges = Annotated[list[Path] | None, file_option(help=EDGES.format("columns"))]
FEATURES = "Features of the {}: id, then numbers, with a header. May be repeated."
RowFeatures = Annotated[list[Path] | None, file_option(help=FEATURES.format("rows"))]
ColFeatures = Annotated[list[Path] | None, file_option(help=FEATURES.format("columns"))]
RowNames = Annotated[Path | None, file_option(help="Names of rows: id, name.")]
ColNames = Annotated[Path | None, file_option(help="Names of columns: id, name.")]
KEEP = (
    "Keep rows and columns with a known link or one in their graphs (linked), only those with one in their graphs, "
    "which loses known links (paper), or all (none)."
)
Filters = Annotated[str, Option(metavar="linked|paper|none", help=KEEP)]
MaxSize = Annotated[int, Option(metavar="MIB", help="Largest size of a table in MiB, after decompression.")]
WITHIN = "Sample negatives in each row that has links, not over all cells."
WithinRows = Annotated[bool, Option("--within-rows", help=WITHIN)]
Seed = Annotated[int, Option(help="Of everything random: the same seed gives the same numbers.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no remarks, only results.")]
TIME = "How far heat spreads in the kernel of the {}, above 0. [default: 1]"
RowTime = Annotated[float | None, Option(help=TIME.format("rows"))]
ColTime = Annotated[float | None, Option(help=TIME.format("columns"))]
SHIFT = "Share of each {} of its own in the kernel, at least 0. [default: 1]"
RowShift = Annotated[float | None, Option(help=SHIFT.format("row"))]
ColShift = Annotated[float | None, Option(help=SHIFT.format("column"))]
NOISE = "Variance of the noise, above 0. [default: 0.1; chosen by full and factor]"
PROBABILITIES = (
    "Probabilities, classes and warnings, from more fits with some links hidden. By default for auto, "
    "unless --no-uncertainty is given."
)
Probabilities = Annotated[bool | None, Option("--probabilities/--no-probabilities", help=PROBABILITIES)]
COVERAGE = "How long a list must be to hold a hidden link with this probability, as 0.9; may be repeated."
TRIALS = "Keep what auto has tried in this file; the same command goes on from there if it was stopped."
TrialFile = Annotated[Path | None, file_option(help=TRIALS)]
Coverage = Annotated[list[float] | None, Option(metavar="LEVEL", help=COVERAGE)]
Noise = Annotated[float | None, Option(help=NOISE)]
RATIO = "Sampled negatives for each known link, above 0. [default: 1]"
Ratio = Annotated[float | None, Option(help=RATIO)]


OutFile = Annotated[Path | None, file_option(help="Write the lists there instead of showing them; - for stdout.")]
OutFormat = Annotated[
    str | None,
    Option("--format", metavar="tsv|jsonl|parquet|pheval", help="Of --out; by the file's ending when left out."),
]
DEMO = "For the study and its report. [default: mvgp-demo, with --quick mvgp-demo-quick]"
DemoDir = Annotated[Path | None, directory_option(help=DEMO)]
ReportDir = Annotated[
    Path | None, directory_option(help="Write a page of the lists there, report.html, with JSON and tables beside it.")
]
JsonFile = Annotated[Path | None, file_option(help="Write the lists and all that is known of them as JSON.")]
ParquetFile = Annotated[Path | None, file_option(help="Write the lists as parquet; needs pyarrow.")]
CALLED = "What a {} is called in the page. [default: {}]"
RowWord = Annotated[str | None, Option(metavar="WORD", help=CALLED.format("row", "disease"))]
ColWord = Annotated[str | None, Option(metavar="WORD", help=CALLED.format("column", "gene"))]


class ListFiles:
    """Where ranked lists go, beside the screen and ``--out``: a page, JSON, parquet."""

    def __init__(
        self, report: Path | None, json: Path | None, parquet: Path | None, row_word: str | None, col_word: str | None
    ) -> None:
        self.report, self.files = report, {"json": json, "parquet": parquet}
        self.words = given_words(row_word, col_word)
        if self.words and report is None and json is None:
            raise InputError(
                f"{dashed(next(iter(self.words)))}: expected --report or --json, which show it, got neither"
            )

    @property
    def called(self) -> tuple[str, str]:
        """What a row and a column are."""
        return self.words.get("row_word", "disease"), self.words.get("col_word", "gene")

    @property
    def wanted(self) -> bool:
        """Whether there are any."""
        return self.report is not None or any(path is not None for path in self.files.values())

    def check(self, others: Iterable[Path | None]) -> None:
        """Whether all can be written, and are none of the others."""
        taken = list(others)
        for kind, path in self.files.items():
            check_output(path, f"--{kind}", taken)
            if path is not None and str(path) == "-":
                raise InputError(f"--{kind}: expected the path of a file, got -")
            taken.append(path)
        if self.report is not None:
            check_directory(self.report, "--report")
            if self.report.suffix == ".html" and not self.report.is_dir():
                raise InputError(f"--report: expected a directory, got {self.report}, the name of a file")
            if os.path.lexists(self.report / "study.json"):
                raise InputError(f"--report: expected a directory without another report, got the study {self.report}")
        if self.files["parquet"] is not None:
            from ..ranking.outputs import check_pyarrow

            check_pyarrow("--parquet")

    def write(self, fitted: Prioritiser, lists: Iterable[RankedRow], links: LinkSet | None, quiet: bool) -> Any:
        """Write them; returns an iterator over the same lists."""
        from ..report.lists import save_record, write_lists
        from ..report.record import record_of

        ranked = list(lists)
        record = record_of(fitted, ranked, link_set=links, **self.words)
        written = [] if self.report is None else [write_lists(record, self.report)]
        for kind, path in self.files.items():
            if path is not None:
                save_record(record, path, kind)
                written.append(path)
        if not quiet:
            log(f"wrote {', '.join(map(str, written))}")
        return iter(ranked)


def given_words(row_word: str | None, col_word: str | None) -> dict[str, str]:
    """Those that were given, as arguments of a report."""
    words = {name: word for name, word in (("row_word", row_word), ("col_word", col_word)) if word is not None}
    for name, word in words.items():
        if not word.strip():
            raise InputError(f"{dashed(name)}: expected a word, got {word!r}")
    return words


class Tables:
    """The tables of a command line: one of pairs, and those about rows and columns."""

    def __init__(
        self,
        pairs: Path | None,
        *,
        row_edges: list[Path] | None,
        col_edges: list[Path] | None,
        row_features: list[Path] | None,
        col_features: list[Path] | None,
        row_names: Path | None,
        col_names: Path | None,
    ) -> None:
        self.pairs = pairs
        self.lists = {
            "row_edges": row_edges or [],
            "col_edges": col_edges or [],
            "row_features": row_features or [],
            "col_features": col_features or [],
        }
        self.names = {"row_names": row_names, "col_names": col_names}
        for name, paths in self.lists.items():
            for number, path in enumerate(paths):
                if any(_same(os.fspath(path), os.path.realpath(other)) for other in paths[:number]):
                    raise InputError(f"{dashed(name)}: expected different files, got {path} twice")

    def paths(self) -> list[Path | None]:
        """All of them."""
        return [self.pairs, *(path for paths in self.lists.values() for path in paths), *self.names.values()]

    def read(self, filters: str, max_size: int) -> LinkSet:
        """The links and all that is said about their ends."""
        check_at_least(max_size, 1, "--max-size")
        if self.pairs is None:
            raise InputError("--pairs: expected a table of known links, or a fitted model with --load, got neither")
        from ..tables.from_tables import read_links

        options: dict[str, Any] = {**self.lists, **self.names, "filters": filters, "max_bytes": max_size * 2**20}
        return read_links(self.pairs, **options)


def log_links(links: LinkSet) -> None:
    """What was read, in a few lines; the last has the numbers of rows, columns and links, kept and dropped."""
    for line in str(links.report).splitlines():
        log(line)


def find_row_numbers(row: list[str], links: LinkSet) -> list[int]:
    """Rows by id or name; one that the filters have dropped is named as such, with the filters that keep it."""
    from ..ranking.rows import find_rows

    try:
        return find_rows(row, links.row_ids, links.row_names)
    except InputError:
        if links.report is None:
            raise
        for text in row:
            try:
                find_rows([text], links.row_ids, links.row_names)
            except InputError as error:
                dropped = links.report.find_dropped_row(text)
                if dropped is None:
                    raise
                which = repr(dropped.id) if dropped.name == dropped.id else f"{dropped.name!r} ({dropped.id})"
                lost = f", and its {dropped.links:,} known link{'' if dropped.links == 1 else 's'} with it"
                raise InputError(
                    f"row: {which} was dropped by --filters {links.report.filters}{lost if dropped.links else ''}: it "
                    f"has no link in a graph of the rows; --filters {links.report.keeping(dropped)} keeps it"
                ) from error
        raise


def fixed_settings(model: str, options: Mapping[str, float | None]) -> dict[str, Any]:
    """Settings of a fit from options by their names; those that the model does not use are refused."""
    from ..tuning.tune import overrides

    with options_named():
        return overrides(model, options)


def check_times(options: Mapping[str, float | None], links: LinkSet) -> None:
    """Refuse the time of an axis whose graph has no links: heat does not spread there, and it would change nothing."""
    for option, graph, side in (("row_time", links.row_graph, "rows"), ("col_time", links.col_graph, "columns")):
        if options.get(option) is not None and graph.num_links == 0:
            raise InputError(f"{dashed(option)}: expected a graph of the {side} with links, got none")


@contextlib.contextmanager
def options_named() -> Iterator[None]:
    """Messages about an argument name the option instead: ``row_time: ...`` becomes ``--row-time: ...``."""
    try:
        yield
    except InputError as error:
        name, colon, rest = str(error).partition(":")
        raise InputError(f"{dashed(name)}{colon}{rest}") from None


def dashed(name: str) -> str:
    """The option of an argument."""
    return f"--{name.replace('_', '-')}"


def numbers(text: str, name: str) -> tuple[float, ...]:
    """From ``1,0.8,0.6``."""
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{name}: expected numbers with commas between them, got {text!r}") from None


def count_or_numbers(text: str, name: str) -> int | tuple[float, ...]:
    """How many, as ``30``; or the numbers themselves, as ``0.5,0.2,0.1``."""
    try:
        return int(text)
    except ValueError:
        return numbers(text, name)


def check_at_least(value: int | None, minimum: int, name: str) -> None:
    """A whole number from ``minimum`` on, if it is given."""
    if value is not None and not minimum <= value <= LARGEST:
        expected = f"a whole number of at least {minimum}, at most {LARGEST}"
        raise InputError(f"{name}: expected {expected}, got {value!s:.120}")


def check_coverage(levels: list[float] | None, probabilities: bool | None, uncertainty: bool | None) -> bool | None:
    """Whether to calibrate: as ``fit_prioritiser`` takes it; levels of ``--coverage`` are checked, and need it."""
    if levels:
        from ...checks import check_between

        for level in levels:
            check_option("--", lambda share: check_between(share, "coverage"), level)
        if probabilities is False:
            raise InputError("--coverage: expected it without --no-probabilities, as both come from hidden links")
        return True
    return False if uncertainty is False and probabilities is None else probabilities


def check_option(before: str, check: Callable[[Any], object], value: object) -> None:
    """A check of the library for an option; its message gets the option, or the dashes of its name, in front."""
    try:
        check(value)
    except InputError as error:
        raise InputError(f"{before}{error}") from None


def check_directory(path: Path, option: str = "--out") -> None:
    """The directory of an option, or a place for one."""
    from ...storage.files import check_can_write, check_output_directory

    check_option(f"{option}: ", check_output_directory, path)
    check_option(f"{option}: ", check_can_write, path)


def check_out(path: Path | None, format: str | None, others: Iterable[Path | None]) -> None:
    """``--out`` and ``--format``."""
    check_output(path, "--out", others)
    from ..ranking.outputs import check_format

    check_option("--", lambda chosen: check_format(path, chosen), format)


def check_output(path: Path | None, option: str, others: Iterable[Path | None]) -> None:
    """A file in a directory that is there, and none of the others, which are read or written, too."""
    if path is None or str(path) == "-":
        return
    from ...storage.files import check_can_write, check_output_file

    try:
        target = check_output_file(path)
        check_can_write(path)
    except InputError as error:
        hint = " (--out - writes to standard output)" if str(path) == "/dev/stdout" else ""
        raise InputError(f"{option}: {error}{hint}") from None
    for other in others:
        if other is not None and str(other) != "-" and _same(os.fspath(other), target):
            raise InputError(f"{option}: expected a file of its own, got {path}, which is read or written as well")


def _same(path: str, target: str) -> bool:
    try:
        return os.path.realpath(path) == target or os.path.samefile(path, target)
    except (OSError, ValueError):  # one of them is not there
        return False
