"""Progress: how many units are done, shown as a bar with the time left."""

from __future__ import annotations

from types import TracebackType

from tqdm import tqdm


class Progress:
    """Units done and units in all.

    :param total: as far as is known; see :meth:`expect`.
    :param shown: whether there is a bar.
    """

    def __init__(self, total: int, shown: bool) -> None:
        self.done, self.total = 0, total
        self._bar = tqdm(total=total, unit="unit", disable=not shown, dynamic_ncols=True)

    def stage(self, name: str) -> None:
        """What comes now."""
        self._bar.set_description(name)

    def expect(self, total: int) -> None:
        """The number of units, now that more is known."""
        self.total = self._bar.total = total
        self._bar.refresh()

    def step(self, count: int = 1, text: str = "") -> None:
        """So many units were done, the last that was tried is this one."""
        self.done += count
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(count)

    def skip(self, count: int = 1) -> None:
        """So many were there already; they say nothing about the time that others take."""
        self.done += count
        if count and not self._bar.disable:
            self._bar.initial += count
            self._bar.n += count
            self._bar.last_print_n += count
            self._bar.refresh()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
