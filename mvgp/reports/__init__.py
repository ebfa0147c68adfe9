"""Reports: the tables of a study as one page to read, with its figures."""

from .write_report import write_report

__all__ = ["write_report"]
