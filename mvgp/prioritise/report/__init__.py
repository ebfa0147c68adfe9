"""Reports: the tables of a study as one page to read, with its figures."""

from .page import write_report

__all__ = ["write_report"]
