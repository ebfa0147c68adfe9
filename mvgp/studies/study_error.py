"""StudyError: some units of a study failed."""

from __future__ import annotations

from ..errors import MvgpError


class StudyError(MvgpError, RuntimeError):
    """Some units of a study failed; all the others are saved, and running the study again tries only these.

    :param failures: (unit, error) of each, as text.
    :param details: the traceback of each.
    """

    def __init__(self, failures: tuple[tuple[str, str], ...], details: tuple[str, ...] = ()) -> None:
        self.failures, self.details = failures, details
        shown = "; ".join(f"{unit}: {error}" for unit, error in failures[:3])
        more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
        count = f"{len(failures)} unit{'s' if len(failures) > 1 else ''}"
        super().__init__(f"{count} of the study failed, the others are saved: {shown}{more}")
