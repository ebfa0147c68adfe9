"""Links and graphs to rank on: from text tables, and from the Human Phenotype Ontology."""

from .hpo import HPO_CITATION, hpo_links
from .link_set import FileReport, LinkSet, ReadReport, read_links
from .reader import TableError

__all__ = ["HPO_CITATION", "FileReport", "LinkSet", "ReadReport", "TableError", "hpo_links", "read_links"]
