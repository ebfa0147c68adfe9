"""ItemTable: what tables of a row's items share: a pandas frame, and lines of text without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


class ItemTable:
    """A table with a line for each of I items.

    A subclass is a dataclass with the fields named in ``order``, (I,) each, and says what a line's number means.
    """

    place: ClassVar[str]
    order: ClassVar[tuple[str, ...]]
    items: Tensor
    names: tuple[str, ...] | None

    def __len__(self) -> int:
        return len(self.items)

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a line for each item; its index counts them from 1."""
        import pandas as pd

        columns: dict[str, Any] = {"item": self.items.tolist()}
        if self.names is not None:
            columns["name"] = list(self.names)
        for name in self.order:
            columns[name] = getattr(self, name).tolist()
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self) + 1, name=self.place))

    def _text(self, columns: list[list[str]]) -> str:
        """Lines of text: number, item, name if there are any, and the columns, each a heading and I entries."""
        first = [
            [self.place, *(str(number + 1) for number in range(len(self)))],
            ["item", *(str(item) for item in self.items.tolist())],
        ]
        if self.names is not None:
            first.append(["name", *self.names])
        every = first + columns
        widths = [max(len(entry) for entry in column) for column in every]
        lines = zip(*every, strict=True)
        return "\n".join(
            "  ".join(f"{entry:>{width}}" for entry, width in zip(line, widths, strict=True)) for line in lines
        )
