"""PositiveUnlabelled: links, every other item of a row unlabelled; and positive pairs in any form."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from scipy import sparse
from torch import Tensor

from ..checks import check_choice, check_instance, check_part, shown
from ..errors import InputError
from ..linalg.pairs import CompleteRows, cell_slots, sort_cells
from ..tensor_checks import check_cells, check_index, check_list, check_name, check_names, check_shape
from .observed import ObservedMatrix, numbered

if TYPE_CHECKING:
    import pandas as pd


class PositiveUnlabelled:
    """Positive pairs of an M x N matrix; every other item of a row is in its list, unlabelled.

    No negatives are sampled: the whole list enters with weight ``weight``, the positives with weight 1. A row without
    a positive says nothing about the order of its items, and has no list unless ``lists="all"`` asks for it: under a
    Gaussian likelihood its items then count as observed zeros.

    :param rows: (P,) row of each positive, in [0, M).
    :param cols: (P,) column of each positive, in [0, N).
    :param shape: (M, N).
    :param weight: of an unlabelled item, in (0, 1].
    :param lists: ``linked``: only rows with a positive have a list; ``all``: every row has one.
    :param row_names: M distinct names, optional.
    :param col_names: N distinct names, optional.

    Example:
        >>> import mvgp
        >>> links = mvgp.PositiveUnlabelled([0, 2, 2], [1, 0, 3], shape=(3, 5), weight=0.05)
        >>> len(links), links.num_cells
        (3, 10)

    """

    def __init__(
        self,
        rows: Any,
        cols: Any,
        shape: Any,
        weight: float = 0.05,
        *,
        lists: Literal["linked", "all"] = "linked",
        row_names: Any = None,
        col_names: Any = None,
    ) -> None:
        self.shape = check_shape(shape)
        row, col = check_index(rows, self.shape[0], "rows"), check_index(cols, self.shape[1], "cols")
        if len(row) != len(col) or len(row) == 0:
            raise InputError(f"expected as many rows as cols, at least one, got {len(row)} and {len(col)}")
        self.rows, self.cols, _ = sort_cells(row, col, self.shape[1])
        self.weight = check_part(weight, "weight")
        self.lists: Literal["linked", "all"] = check_choice(lists, "lists", ("linked", "all"))
        self.row_names = check_names(row_names, self.shape[0], "row_names")
        self.col_names = check_names(col_names, self.shape[1], "col_names")

    @classmethod
    def from_frame(cls, frame: Any, *, row: str, col: str, **options: Any) -> PositiveUnlabelled:
        """A pandas frame with a line for each link; ``row`` and ``col`` say which columns hold the names of its ends.

        Names are numbered in order of appearance, unless ``row_names`` or ``col_names`` are given, which may hold more.
        """
        known, cells = [str(column) for column in getattr(frame, "columns", ())], []
        for name, column in (("row", row), ("col", col)):
            named = isinstance(column, str | int) and not isinstance(column, bool)
            if not named or column not in getattr(frame, "columns", ()):
                raise InputError(f"{name}={shown(column)}: the frame's columns are {known}")
            own = options.get(f"{name}_names")
            listed = () if own is None else check_list(own, f"{name}_names", "names")
            numbers, names = numbered(frame[column], name, [check_name(one, f"{name}_names") for one in listed])
            options[f"{name}_names"] = names
            cells.append(numbers)
        return cls(cells[0], cells[1], (len(options["row_names"]), len(options["col_names"])), **options)

    @classmethod
    def from_scipy(cls, matrix: Any, **options: Any) -> PositiveUnlabelled:
        """The links of a scipy sparse matrix (M, N): its entries above 0, or True."""
        data = _entries(matrix)
        linked = data.values > 0
        return cls(data.rows[linked], data.cols[linked], data.shape, **options)

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with the columns row and col: names, or numbers where there are none."""
        values = torch.ones(len(self))
        names: dict[str, Any] = {"row_names": self.row_names, "col_names": self.col_names}
        return ObservedMatrix(self.rows, self.cols, values, self.shape, **names).to_frame()[["row", "col"]]

    def __len__(self) -> int:
        return int(self.rows.numel())

    def __repr__(self) -> str:
        size = f"{self.shape[0]} x {self.shape[1]}"
        every = ", every row has a list" if self.lists == "all" else ""
        return f"PositiveUnlabelled({len(self)} positives of {size}, weight {self.weight:g}{every})"

    def joined(self, more: PositiveUnlabelled) -> PositiveUnlabelled:
        """These links and ``more``, of the same lists; a link that is in both is an error."""
        check_instance(more, "more", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
        for name in ("shape", "weight", "lists"):
            if getattr(more, name) != getattr(self, name):
                raise InputError(
                    f"more.{name}: expected {getattr(self, name)} as in the data, got {getattr(more, name)}"
                )
        for name in ("row_names", "col_names"):
            if getattr(more, name) not in (None, getattr(self, name)):
                raise InputError(f"more.{name}: expected those of the data, got others")
        slots = cell_slots(more.rows, more.cols, self.rows, self.cols, self.shape[1])
        if bool((slots >= 0).any()):
            at = int((slots >= 0).nonzero()[0])
            raise InputError(f"more: link {(int(more.rows[at]), int(more.cols[at]))} is known already")
        return self._with_links(torch.cat([self.rows, more.rows]), torch.cat([self.cols, more.cols]))

    def without(self, rows: Any, cols: Any) -> PositiveUnlabelled:
        """All links but the pairs (``rows``, ``cols``), (k,) each, which have to be known."""
        row, col = check_cells(rows, cols, self.shape)
        slots = cell_slots(row, col, self.rows, self.cols, self.shape[1])
        if bool((slots < 0).any()):
            at = int((slots < 0).nonzero()[0])
            raise InputError(f"pairs: expected known links, got {(int(row[at]), int(col[at]))}, which is none")
        kept = torch.ones(len(self), dtype=torch.bool, device=self.rows.device)
        kept[slots] = False
        if not bool(kept.any()):
            raise InputError("pairs: expected some links to be left, got all of them")
        return self._with_links(self.rows[kept], self.cols[kept])

    def _with_links(self, rows: Tensor, cols: Tensor) -> PositiveUnlabelled:
        names = {"row_names": self.row_names, "col_names": self.col_names}
        return PositiveUnlabelled(rows, cols, self.shape, self.weight, lists=self.lists, **names)

    @cached_property
    def pattern(self) -> CompleteRows:
        """Every cell of the rows that have a list."""
        listed = self.rows.unique() if self.lists == "linked" else torch.arange(self.shape[0])
        return CompleteRows(listed, self.shape)

    @property
    def num_cells(self) -> int:
        """How many cells are in some list."""
        return len(self.pattern)

    @cached_property
    def positions(self) -> Tensor:
        """(P,): where the positives are among the cells of :attr:`pattern`."""
        return torch.searchsorted(self.pattern.chosen, self.rows) * self.shape[1] + self.cols


def _entries(matrix: Any) -> ObservedMatrix:
    """The stored entries of a scipy sparse matrix; True is 1."""
    flags = sparse.issparse(matrix) and getattr(matrix, "dtype", None) == "bool"
    return ObservedMatrix.from_scipy(matrix.astype(float) if flags else matrix)


def positive_pairs(pairs: Any, shape: tuple[int, int], name: str) -> tuple[Tensor, Tensor]:
    """(P,) rows and (P,) columns of distinct pairs of an M x N matrix, on the CPU, row-major sorted.

    :param pairs: an ``ObservedMatrix`` or a scipy sparse matrix, whose entries above 0 count, anything else with
        ``rows`` and ``cols``, or a pair (rows, cols) of vectors (P,); ``None`` for no pairs.
    """
    if sparse.issparse(pairs):
        pairs = _entries(pairs)
    values: Any = getattr(pairs, "values", None)
    if pairs is None:
        pairs = (), ()
    elif hasattr(pairs, "rows") and hasattr(pairs, "cols"):
        if tuple(getattr(pairs, "shape", shape)) != shape:
            raise InputError(f"{name}: expected shape {shape} as in the scores, got {tuple(pairs.shape)}")
        known = isinstance(values, Tensor)
        pairs = (pairs.rows[values > 0], pairs.cols[values > 0]) if known else (pairs.rows, pairs.cols)
    elif not isinstance(pairs, tuple | list) or len(pairs) != 2:
        forms = "an ObservedMatrix, a scipy sparse matrix or a pair (rows, cols)"
        raise InputError(f"{name}: expected {forms}, got {type(pairs).__name__}")
    rows, cols = check_cells(pairs[0], pairs[1], shape, name)
    return sort_cells(rows.cpu(), cols.cpu(), shape[1])[:2]
