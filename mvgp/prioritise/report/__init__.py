"""Reports: the tables of a study, or ranked lists, as one page to read, with its figures."""

from .lists import write_lists
from .page import write_report
from .record import record_of

__all__ = ["record_of", "write_lists", "write_report"]
