"""Name tables: what each id is called."""

from __future__ import annotations

from .table import Table
from .table_error import TableError, shown


def name_table(table: Table) -> tuple[dict[str, str], int]:
    """The name of each id, and how many lines repeat an earlier one. An empty name counts as none."""
    found: dict[str, str] = {}
    line_of: dict[str, int] = {}
    repeated = 0
    for one, name, line in zip(*table.columns, table.lines, strict=True):
        if one in found and found[one] != name:
            first = f"{shown(found[one])} on line {line_of[one]}"
            raise TableError(table.path, f"expected one name for {shown(one)}, got {shown(name)} after {first}", line)
        repeated += one in found
        found[one] = name
        line_of.setdefault(one, line)
    return {one: name for one, name in found.items() if name}, repeated
