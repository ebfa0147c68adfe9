"""Whether the ids of two files belong together."""

from __future__ import annotations

from pathlib import Path

from .table_error import TableError, some


def check_match(ids: set[str], path: Path, side: str, pair_ids: dict[str, set[str]], pairs: Path) -> int:
    """How many of ``ids`` are among those of the pairs; none is an error that shows some of both.

    :param ids: of the file.
    :param path: the file.
    :param side: "row" or "column".
    :param pair_ids: those of the pairs, for both sides.
    :param pairs: the file of pairs.
    """
    common = ids & pair_ids[side]
    if common:
        return len(common)
    other = "column" if side == "row" else "row"
    swapped = len(ids & pair_ids[other])
    hint = f"; {swapped} are among its {other} ids: are its columns the other way round?" if swapped else ""
    raise TableError(
        path,
        f"expected ids of {pairs.name}, but none of its {len(ids)} ids ({some(ids)}) is among the "
        f"{len(pair_ids[side])} {side} ids there ({some(pair_ids[side])}){hint}",
    )
