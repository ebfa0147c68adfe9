"""An ontology in OBO format: which terms are kinds of which others."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .table_error import TableError
from .text_lines import read_lines


@dataclass(frozen=True, eq=False)
class Ontology:
    """Terms and the terms they are kinds of.

    :param version: of the release.
    :param parents: of each term.
    """

    version: str
    parents: dict[str, list[str]]
    _known: dict[str, frozenset[str]] = field(default_factory=dict, init=False, repr=False)

    def with_ancestors(self, term: str) -> frozenset[str]:
        """The term, its parents, their parents, and so on."""
        if term not in self._known:
            found, waiting = {term}, [term]
            while waiting:
                for parent in self.parents[waiting.pop()]:
                    if parent not in found:
                        found.add(parent)
                        waiting.append(parent)
            self._known[term] = frozenset(found)
        return self._known[term]


def read_ontology(path: str | os.PathLike[str]) -> Ontology:
    """From the ``id`` and ``is_a`` lines of an OBO file; everything else is skipped.

    :param path: plain or gzip'd.
    """
    place, version, term, in_term = Path(path), "", "", False
    parents: dict[str, list[str]] = {}
    for line in read_lines(place):
        if line.startswith("["):
            in_term = line.startswith("[Term]")
        elif line.startswith("data-version:"):
            version = line.split("/")[-1].removeprefix("data-version:").strip()
        elif in_term and line.startswith("id:"):
            term = line[3:].strip()
            parents[term] = []
        elif in_term and line.startswith("is_a:"):
            parents[term].append(line[5:].split("!")[0].split("{")[0].strip())
    if not parents:
        raise TableError(place, "expected an ontology in OBO format, got no [Term] with an id")
    for term, above in parents.items():
        for parent in above:
            if parent not in parents:
                raise TableError(place, f"{term} is a kind of {parent}, which is no term of this file")
    return Ontology(version, parents)
