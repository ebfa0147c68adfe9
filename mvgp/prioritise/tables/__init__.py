"""Problems to try the models on, and tables of one's own."""

from .hpo import HPO_CITATION, hpo_links
from .link_set import FileReport, LinkSet, ReadReport
from .links import read_links
from .text import TableError

__all__ = ["HPO_CITATION", "FileReport", "LinkSet", "ReadReport", "TableError", "hpo_links", "read_links"]
