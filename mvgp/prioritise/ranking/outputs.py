"""Ranked lists as files: tab-separated tables, JSON lines, parquet, and the table of genes that PhEval takes."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ...checks import check_choice
from ...errors import InputError
from ...storage.files import replacing
from ...text import to_cell

TRUSTED = ("probability", "low", "high", "class", "why")
HEADER = (
    *("row_id", "row_name", "rank", "col_id", "col_name", "score", "std", "p_top", "k", "known", "model"),
    *TRUSTED,
)
FORMATS = ("tsv", "jsonl", "parquet", "pheval")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}  # of file names; all others are tables
# The gene results of PhEval: its schema has these columns, with the score as a number and the others as texts.
PHEVAL = ("gene_symbol", "gene_identifier", "score", "grouping_id")
TEXTS = ("row_id", "row_name", "col_id", "col_name", "model", "class", "why", "gene_symbol", "gene_identifier")
GROUP = 2**16  # lines that are written to a parquet file at a time
Line = Mapping[str, Any]

RankedList = Any  # RankedRow, which knows this module


def format_of(path: str | os.PathLike[str], chosen: str | None = None) -> str:
    """The format of a file: the ``chosen`` one of ``FORMATS``, or that of its ending.

    Example:
        >>> from mvgp.prioritise.ranking.outputs import format_of
        >>> format_of("lists.jsonl"), format_of("lists.csv"), format_of("lists.parquet", "pheval")
        ('jsonl', 'tsv', 'pheval')

    """
    return ENDINGS.get(Path(path).suffix.lower(), "tsv") if chosen is None else check_choice(chosen, "format", FORMATS)


def check_format(path: str | os.PathLike[str] | None, chosen: str | None) -> None:
    """Whether a file can be written in its format."""
    if path is None:
        if chosen is not None:
            raise InputError(f"format: expected a file to write, got {chosen!r} without --out")
        return
    if is_parquet(path, format_of(path, chosen)):
        if str(path) == "-":
            raise InputError("format: expected a file for parquet, got - (standard output)")
        check_pyarrow("out" if chosen is None else "format")


def is_parquet(path: str | os.PathLike[str], kind: str) -> bool:
    """Whether a file is parquet: by its format, or the results for PhEval by their ending."""
    return kind == "parquet" or (kind == "pheval" and Path(path).suffix.lower() == ".parquet")


def has_pyarrow() -> bool:
    """Whether pyarrow, which writes parquet, is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def check_pyarrow(name: str) -> None:
    """Refuse to write parquet without pyarrow."""
    if not has_pyarrow():
        raise InputError(f"{name}: expected pyarrow, which writes parquet, got none; pip install 'mvgp[parquet]'")


def write_rows(rows: Iterable[RankedList], file: IO[bytes], kind: str = "tsv", *, parquet: bool | None = None) -> int:
    """Write lists as they come; returns their number.

    :param rows: the lists.
    :param file: open for writing bytes.
    :param kind: one of ``FORMATS``. JSON lines have an object for each candidate, with the columns of the table.
    :param parquet: whether it is written as parquet; by ``kind`` when left out.
    """
    counter = _Counter(rows)
    columns = PHEVAL if kind == "pheval" else HEADER
    lines: Iterable[Line] = (
        line for row in counter for line in (pheval_lines(row) if kind == "pheval" else row.entries())
    )
    if kind == "parquet" if parquet is None else parquet:
        write_parquet(lines, columns, file)
    elif kind == "jsonl":
        for line in lines:
            file.write((json.dumps(line, allow_nan=False) + "\n").encode())
    else:
        file.write(("\t".join(columns) + "\n").encode())
        for line in lines:
            file.write(("\t".join(table_cell(line[name]) for name in columns) + "\n").encode())
    file.flush()
    return counter.count


class _Counter:
    """An iterator over lists that counts them."""

    def __init__(self, rows: Iterable[RankedList]) -> None:
        self.rows, self.count = rows, 0

    def __iter__(self) -> Iterator[RankedList]:
        for row in self.rows:
            self.count += 1
            yield row


def pheval_lines(row: RankedList) -> list[dict[str, Any]]:
    """The candidates of a list as PhEval has gene results: name, id, score, and the row's id as ``grouping_id``."""
    candidates = zip(row.col_names, row.col_ids, row.score.tolist(), strict=True)
    return [dict(zip(PHEVAL, (*candidate, row.row_id), strict=True)) for candidate in candidates]


def write_parquet(lines: Iterable[Line], columns: Sequence[str], file: IO[bytes]) -> None:
    """Write lines to a parquet file, some thousands at a time; texts are as they are.

    :param lines: a value for each of the ``columns``; None where there is none.
    """
    check_pyarrow("parquet")
    pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    texts = {name: pyarrow.string() for name in (*TEXTS, "grouping_id")}
    kinds = {**texts, "rank": pyarrow.int32(), "k": pyarrow.int32(), "known": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in columns])
    with parquet.ParquetWriter(file, schema) as writer:
        for group in _groups(lines):
            values = [[_text(line[name]) if name in texts else line[name] for line in group] for name in columns]
            arrays = [pyarrow.array(own, schema.field(name).type) for own, name in zip(values, columns, strict=True)]
            writer.write_table(pyarrow.table(arrays, schema=schema))


def _text(value: Any) -> str | None:
    """A text that can be written: halves of surrogate pairs cannot."""
    return None if value is None else str(value).encode("utf-8", "replace").decode()


def _groups(lines: Iterable[Line]) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in lines:
        group.append(line)
        if len(group) == GROUP:
            yield group
            group = []
    if group:
        yield group


def write_file(rows: Iterable[RankedList], path: str | os.PathLike[str], kind: str | None = None) -> int:
    """Write lists to a file, whole or not at all; returns their number. ``kind`` by the file's ending if left out."""
    chosen = format_of(path, kind)
    with replacing(os.fspath(path)) as file:
        return write_rows(rows, file, chosen, parquet=is_parquet(path, chosen))


def table_cell(value: Any) -> str:
    """A cell of a table: texts are made harmless (:mod:`mvgp.text`), undefined values are empty."""
    if isinstance(value, str):
        return to_cell(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool | int) else f"{value:.10g}"
