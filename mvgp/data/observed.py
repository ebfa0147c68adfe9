"""ObservedMatrix: the observed entries of an M x N matrix."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, check_names, check_shape, check_values, check_weights
from ..errors import InputError
from ..linalg.csr import Pattern
from . import sources
from .checks import check_no_duplicates


class ObservedMatrix:
    r"""T observed entries :math:`r_{mn}` of an M x N matrix; each pair at most once.

    The entries are checked, sorted row by row, and never change afterwards. A weight ``w`` says that
    an entry was measured with noise variance :math:`\sigma^2 / w`.

    Values and weights may require gradients (warped targets, a learned noise of each row): the marginal likelihoods of
    :mod:`mvgp.evidence` carry them. A fit, whose posterior is constant, refuses such data; give it :meth:`detach`.

    :param rows: (T,) row of each entry, in [0, M).
    :param cols: (T,) column of each entry, in [0, N).
    :param values: (T,) finite numbers. Whole numbers become float64.
    :param shape: (M, N).
    :param weights: (T,) positive numbers; all 1 when left out.
    :param row_names: M distinct names, optional.
    :param col_names: N distinct names, optional.

    Example:
        >>> import mvgp
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [0.5, -1.0], shape=(3, 2))
        >>> len(data), data.shape
        (2, (3, 2))

    """

    def __init__(
        self,
        rows: Any,
        cols: Any,
        values: Any,
        shape: tuple[int, int],
        *,
        weights: Any = None,
        row_names: Any = None,
        col_names: Any = None,
    ) -> None:
        shape = check_shape(shape)
        given_rows = check_index(rows, shape[0], "rows")  # (T,)
        given_cols = check_index(cols, shape[1], "cols")  # (T,)
        if given_rows.numel() != given_cols.numel():
            raise InputError(f"rows and cols differ in length: {given_rows.numel()} and {given_cols.numel()}")
        if given_rows.numel() == 0:
            raise InputError(f"no observations: expected at least one entry of the {shape[0]} x {shape[1]} matrix")
        given_values = check_values(values, given_rows.numel(), "values", keep_gradient=True)
        given_weights = None
        if weights is not None:
            given_weights = check_weights(weights, given_rows.numel(), given_values.dtype, keep_gradient=True)

        key, order = torch.sort(given_rows * shape[1] + given_cols, stable=True)
        check_no_duplicates(key, order, shape[1])
        self._rows, self._cols = given_rows[order], given_cols[order]
        self._values = given_values[order]
        self._weights = None if given_weights is None else given_weights[order]
        self._shape = shape
        self._row_names = check_names(row_names, shape[0], "row_names")
        self._col_names = check_names(col_names, shape[1], "col_names")

    # Other sources ------------------------------------------------------------------------------

    @classmethod
    def from_dense(cls, matrix: Any, **options: Any) -> ObservedMatrix:
        """The entries of a dense (M, N) array or tensor that are not NaN."""
        return cls(*sources.dense_entries(matrix), **options)

    @classmethod
    def from_mask(cls, matrix: Any, mask: Any, **options: Any) -> ObservedMatrix:
        """The entries of a dense (M, N) matrix where the boolean ``mask`` (M, N) is true."""
        return cls(*sources.masked_entries(matrix, mask), **options)

    @classmethod
    def from_scipy(cls, matrix: Any, **options: Any) -> ObservedMatrix:
        """The stored entries of a scipy sparse matrix (stored zeros count as observed)."""
        return cls(*sources.scipy_entries(matrix), **options)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        row: str | None = None,
        col: str | None = None,
        value: str | None = None,
        **options: Any,
    ) -> ObservedMatrix:
        """A pandas frame: wide (index and columns are the names, NaN is missing), or long.

        A long frame has one line for each entry; ``row``, ``col`` and ``value`` say which columns
        hold the row name, the column name and the number. Names are numbered in order of appearance.
        """
        entries, row_names, col_names = sources.frame_entries(frame, row, col, value)
        return cls(*entries, row_names=row_names, col_names=col_names, **options)

    # What it holds ------------------------------------------------------------------------------

    @property
    def rows(self) -> Tensor:
        """(T,) int64, ascending."""
        return self._rows

    @property
    def cols(self) -> Tensor:
        """(T,) int64, ascending within a row."""
        return self._cols

    @property
    def values(self) -> Tensor:
        """(T,)"""
        return self._values

    @property
    def weights(self) -> Tensor | None:
        """(T,), or None when all weights are 1."""
        return self._weights

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self._shape

    @property
    def row_names(self) -> tuple[str, ...] | None:
        """M names, or None."""
        return self._row_names

    @property
    def col_names(self) -> tuple[str, ...] | None:
        """N names, or None."""
        return self._col_names

    @property
    def requires_grad(self) -> bool:
        """Whether values or weights require a gradient."""
        return bool(self._values.requires_grad or (self._weights is not None and self._weights.requires_grad))

    def detach(self) -> ObservedMatrix:
        """The same entries as constants."""
        found = copy.copy(self)
        found._values = self._values.detach()
        found._weights = None if self._weights is None else self._weights.detach()
        return found

    @cached_property
    def pattern(self) -> Pattern:
        """Where the entries are, in CSR form with its transpose, ready for ``sampled_addmm``."""
        return Pattern(self._rows, self._cols, self._shape)

    @property
    def is_complete(self) -> bool:
        """Whether every entry of the matrix is observed."""
        return len(self) == self._shape[0] * self._shape[1]

    def to_dense(self) -> Tensor:
        """(M, N) with NaN where nothing was observed; for small matrices."""
        dense = torch.full(self._shape, torch.nan, dtype=self._values.dtype, device=self._values.device)
        dense[self._rows, self._cols] = self._values
        return dense

    def with_values(self, values: Any) -> ObservedMatrix:
        """The same entries with other ``values`` (T,), given in this object's sorted order."""
        return ObservedMatrix(
            self._rows,
            self._cols,
            values,
            self._shape,
            weights=self._weights,
            row_names=self._row_names,
            col_names=self._col_names,
        )

    def __len__(self) -> int:
        return int(self._rows.numel())

    def __repr__(self) -> str:
        share = len(self) / (self._shape[0] * self._shape[1])
        weighted = ", weighted" if self._weights is not None else ""
        return f"ObservedMatrix({self._shape[0]} x {self._shape[1]}, {len(self)} observed ({share:.1%}){weighted})"
