"""Links and graphs to rank on: from text tables, and from the Human Phenotype Ontology."""

from .from_tables import read_links
from .graphs import FeatureTable, neighbour_graph, union_graph
from .hpo import HPO_CITATION, hpo_links
from .link_set import Dropped, FileReport, LinkSet, ReadReport
from .reader import TableError

__all__ = [
    "HPO_CITATION",
    "Dropped",
    "FeatureTable",
    "FileReport",
    "LinkSet",
    "ReadReport",
    "TableError",
    "hpo_links",
    "neighbour_graph",
    "read_links",
    "union_graph",
]
