"""Which phenotypes each disease has: the annotation table of the Human Phenotype Ontology."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .ontology import Ontology
from .table import read_table
from .table_error import TableError


@dataclass(frozen=True, eq=False)
class Annotations:
    """Diseases and what they look like.

    :param version: of the release.
    :param names: of each disease.
    :param terms: the phenotypes of each disease and everything they are kinds of.
    """

    version: str
    names: dict[str, str]
    terms: dict[str, set[str]]


def read_annotations(path: str | os.PathLike[str], ontology: Ontology, database: str = "OMIM") -> Annotations:
    """Phenotypes (aspect P) that diseases of one database have; what they are said not to have is left out.

    :param path: ``phenotype.hpoa``.
    :param ontology: of the same release.
    :param database: what the ids of the diseases begin with.
    """
    table = read_table(path, ("database_id", "disease_name", "qualifier", "hpo_id", "aspect"), ids=1)
    names: dict[str, str] = {}
    terms: dict[str, set[str]] = {}
    for disease, name, qualifier, term, aspect, line in zip(*table.columns, table.lines, strict=True):
        if not disease.startswith(f"{database}:"):
            continue
        names.setdefault(disease, name)
        found = terms.setdefault(disease, set())
        if aspect == "P" and qualifier != "NOT" and term not in found:
            if term not in ontology.parents:
                raise TableError(table.path, f"{term} is no term of the ontology of {ontology.version}", line)
            found |= ontology.with_ancestors(term)
    if not names:
        raise TableError(table.path, f"expected diseases of {database}, got none among {len(table)} lines")
    return Annotations(_version(table.above), names, terms)


def _version(comments: tuple[str, ...]) -> str:
    """From one such as ``#version: 2025-01-16``."""
    found = [match.group(1) for match in (re.match(r"#\s*version:\s*(\S+)", line) for line in comments) if match]
    return found[0] if found else "of unknown version"
