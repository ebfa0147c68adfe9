"""What separates the fields of a line, and the fields."""

from __future__ import annotations

import csv
from pathlib import Path

from .table_error import TableError, shown

DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma"}  # the earlier wins where several would do
SAMPLE = 1000  # lines that are looked at


def find_delimiter(lines: list[str]) -> str:
    """The first of tab, semicolon and comma that is in every line; failing that, the one in most of them.

    :param lines: without comments and blank ones, at least one.
    """
    sample = lines[:SAMPLE]
    counts = {mark: sum(mark in line for line in sample) for mark in DELIMITERS}
    return max(DELIMITERS, key=lambda mark: counts[mark])


def split_fields(line: str, delimiter: str, path: Path, number: int) -> list[str]:
    """The fields without their quotes.

    With tabs, a field that begins and ends with a quote is unquoted, and any other quote is an ordinary character. With
    other delimiters quotes are those of CSV files; a field does not go on in the next line.
    """
    if '"' not in line:
        return line.split(delimiter)
    if delimiter == "\t":
        return [_unquoted(field.strip()) for field in line.split(delimiter)]
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True))
    except csv.Error:
        raise TableError(path, f"expected every quote to be closed on its line, got {shown(line)}", number) from None


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"':
        return field[1:-1].replace('""', '"')
    return field
