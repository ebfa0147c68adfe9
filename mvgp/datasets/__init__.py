"""Problems to try the models on, and tables of one's own."""

from .hpo import HPO_CITATION, hpo_links
from .link_set import LinkSet
from .read_links import read_links
from .read_report import FileReport, ReadReport
from .synthetic import SyntheticMatrix, synthetic_matrix
from .table_error import TableError

__all__ = [
    "HPO_CITATION",
    "FileReport",
    "LinkSet",
    "ReadReport",
    "SyntheticMatrix",
    "TableError",
    "hpo_links",
    "read_links",
    "synthetic_matrix",
]
