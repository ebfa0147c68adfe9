"""Rows by what a person types: an id or a name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..checks import shown
from ..errors import InputError

SUGGESTIONS = 4
SHOWN = 5  # ids of rows with the same name


def find_rows(wanted: Sequence[str], ids: Sequence[str], names: Sequence[str]) -> list[int]:
    """The place of each wanted row, by id first, then by name, then by name in any case; no row twice.

    :param wanted: ids or names.
    :param ids: of all rows, distinct.
    :param names: of all rows, not necessarily distinct.

    Example:
        >>> from mvgp.prioritise import find_rows
        >>> find_rows(["B7", "asthma"], ["A1", "B7", "C2"], ["Gout", "Ataxia", "Asthma"])
        [1, 2]

    """
    if isinstance(wanted, str) or not isinstance(wanted, Sequence) or not all(isinstance(one, str) for one in wanted):
        raise InputError(f"rows: expected a list of ids or names, got {shown(wanted)}")
    for given, name in ((ids, "ids"), (names, "names")):
        if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
            raise InputError(f"{name}: expected a list of strings, got {shown(given)}")
    if len(ids) != len(names):
        raise InputError(f"names: expected {len(ids)}, one for each id, got {len(names)}")
    by_id = {one: place for place, one in enumerate(ids)}
    by_name, by_folded = _places(names), _places([name.casefold() for name in names])
    found: dict[int, None] = {}
    for text in (one.strip() for one in wanted):
        places = [by_id[text]] if text in by_id else by_name.get(text) or by_folded.get(text.casefold(), [])
        if len(places) > 1:
            some = ", ".join(ids[place] for place in places[:SHOWN]) + (", ..." if len(places) > SHOWN else "")
            raise InputError(f"row: {text!r} is the name of {len(places)} rows; give one of the ids {some}")
        if not places:
            raise InputError(
                f"row: expected the id or the name of one of {len(ids)} rows, got {text!r}{_hint(text, ids, names)}"
            )
        found[places[0]] = None
    return list(found)


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return found


def _hint(text: str, ids: Sequence[str], names: Sequence[str]) -> str:
    """What may have been meant: names that contain the text, then names and ids that look like it."""
    folded = text.casefold()
    shown = {name.casefold(): name for name in (*ids, *names)}
    inside = sorted((one for one in shown if folded and folded in one), key=lambda one: (len(one), one))
    alike = difflib.get_close_matches(folded, list(shown), n=SUGGESTIONS, cutoff=0.5)
    best = list(dict.fromkeys([*alike[:1], *inside, *alike]))[:SUGGESTIONS]
    return f"; did you mean {' or '.join(repr(shown[one]) for one in best)}?" if best else ""
