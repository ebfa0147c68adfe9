"""Columns of a text table: found by place or by name, every field with the line it is from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from .text import DELIMITERS, MAX_BYTES, TableError, find_delimiter, is_header, read_lines, shown_field, split_fields

Columns = Sequence[int | str]


@dataclass(frozen=True, eq=False)
class Table:
    """The columns asked for.

    :param path: the file.
    :param columns: lists of equal length.
    :param lines: the line of each, from 1.
    :param header: the fields of the header, none if there is none.
    :param above: the comments above it.
    """

    path: Path
    columns: tuple[list[str], ...]
    lines: list[int]
    header: tuple[str, ...] | None
    above: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)


def read_table(
    path: str | os.PathLike[str],
    columns: Columns | None,
    *,
    ids: int = 2,
    weighted: bool = False,
    header: bool | None = None,
    delimiter: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Table:
    """Some columns of a table. Blank lines and lines that begin with ``#`` are skipped.

    :param path: plain or gzip'd.
    :param columns: their places, from 0, or their names; the first two when left out, and the third for the weight if
        ``weighted`` and the first line has it.
    :param ids: how many of the columns, from the first on, hold ids, which may not be empty.
    :param weighted: whether a further column may hold weights.
    :param header: whether the first line is one; left out: see :func:`mvgp.prioritise.tables.text.is_header`.
    :param delimiter: left out: tab, semicolon or comma, whichever fits.
    :param max_bytes: the largest size of the file, after decompression.
    """
    lines = read_lines(path, max_bytes)
    place = Path(path)
    numbers = [n for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    if not numbers:
        found_instead = "only comments" if any(map(str.strip, lines)) else "an empty file"
        raise TableError(place, f"expected a table, got {found_instead}")
    mark = delimiter or find_delimiter([lines[n - 1] for n in numbers[:1000]])
    above = tuple(line for line in lines[: numbers[0] - 1] if line.strip())
    first = [field.strip() for field in split_fields(lines[numbers[0] - 1], mark, place, numbers[0])]
    wanted: Columns = range(2 + (weighted and len(first) > 2)) if columns is None else columns
    by_name = any(isinstance(one, str) for one in wanted)
    names = _named_fields(first, above, wanted, mark) if by_name else first
    places = [_place(one, names, place, numbers[0]) for one in wanted]
    found = _collect(lines, numbers, places, len(first), mark, place)
    has_header = names is first if by_name else header
    if has_header is None:
        weight = found[2][0] if len(found) > 2 else None
        has_header = is_header([c[0] for c in found[:ids]], [c[1:] for c in found[:ids]], weight)
    if has_header:
        found, numbers = tuple(column[1:] for column in found), numbers[1:]
        if not numbers:
            raise TableError(place, f"expected lines below the header, got only {shown_field(mark.join(first))}")
    _check_ids(found[:ids], numbers, place)
    return Table(place, found, numbers, tuple(names) if has_header or names is not first else None, above)


def check_columns(given: Columns | None, counts: tuple[int, ...], header: bool | None, name: str) -> None:
    """Whether ``given`` are places or names, as many as expected.

    :param counts: how many there may be.
    :param header: as given for the whole reading.
    :param name: for messages.
    """
    if given is None:
        return
    expected = " or ".join(map(str, counts))
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) not in counts:
        raise InputError(f"{name}: expected {expected} names or places of columns, got {given!r}")
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int | str) or (isinstance(one, int) and one < 0):
            raise InputError(f"{name}: expected names or places (from 0) of columns, got {one!r}")
    if len(set(given)) < len(given):
        raise InputError(f"{name}: expected different columns, got {tuple(given)!r}")
    if header is False and any(isinstance(one, str) for one in given):
        raise InputError(f"{name}: columns have names in a header only, got {tuple(given)!r} with header=False")


def _named_fields(first: list[str], above: tuple[str, ...], wanted: Columns, mark: str) -> list[str]:
    """The header: the last comment above the table if it has every name, otherwise the first line."""
    if above:
        fields = [field.strip() for field in above[-1].lstrip().lstrip("#").split(mark)]
        if all(one in fields for one in wanted if isinstance(one, str)) and len(fields) == len(first):
            return fields
    return first


def _place(wanted: int | str, names: list[str], path: Path, line: int) -> int:
    if isinstance(wanted, int):
        return wanted
    if names.count(wanted) != 1:
        what = "no column" if wanted not in names else "more than one column"
        raise TableError(path, f"{what} is called {wanted!r}; there are {', '.join(map(shown_field, names))}", line)
    return names.index(wanted)


def _collect(
    lines: list[str], numbers: list[int], places: list[int], most: int, mark: str, path: Path
) -> tuple[list[str], ...]:
    """The fields at ``places`` of each numbered line, which has at most ``most``."""
    found: tuple[list[str], ...] = tuple([] for _ in places)
    needed, chosen = max(places) + 1, list(zip(found, places, strict=True))
    for number in numbers:
        fields = split_fields(lines[number - 1], mark, path, number)
        if not needed <= len(fields) <= most:
            raise TableError(path, _wrong_count(fields, needed, most, mark), number)
        for column, at in chosen:
            column.append(fields[at].strip())
    return found


def _wrong_count(fields: list[str], needed: int, most: int, mark: str) -> str:
    count, named = len(fields), DELIMITERS.get(mark, repr(mark))
    if count < needed:
        what = f"expected at least {needed} fields separated by a {named}, got {count}"
        what += " (tab, semicolon or comma would do)" if most == 1 and mark in DELIMITERS else ""
        return f"{what}: {shown_field(mark.join(fields))}"
    hint = f"a field that contains a {named} needs quotes"
    return f"expected at most {most} fields, as on the first line, got {count} ({hint})"


def _check_ids(columns: tuple[list[str], ...], lines: list[int], path: Path) -> None:
    for at, column in enumerate(columns, 1):
        if "" in column:
            raise TableError(path, f"expected an id in column {at}, got nothing", lines[column.index("")])
