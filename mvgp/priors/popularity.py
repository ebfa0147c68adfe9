"""PopularityMean: items that have many links are expected to have more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_number, check_shape, check_values, refuse_where
from ..data import PositiveUnlabelled
from ..errors import InputError
from .means import MatrixMean, positions


class PopularityMean(MatrixMean):
    r""":math:`b_{mn} = s \log(1 + c_n)` with c_n the number of known links of column n; s is ``raw_scale``, learned.

    A ranking with low rank that is fitted to few links puts what it knows nothing about in an arbitrary order; this
    puts it in the order of popularity. Count training links only: a count that has seen the test links flatters.

    :param counts: (N,) numbers that are not negative, or ``PositiveUnlabelled`` links to be counted.
    :param scale: s, where it starts; small against the margin of a ranking (0.01 has served with a margin of 1).

    Example:
        >>> import mvgp, torch
        >>> from mvgp.priors import PopularityMean
        >>> links = mvgp.PositiveUnlabelled([0, 1, 1], [2, 2, 0], shape=(2, 3))
        >>> PopularityMean(links, scale=1.0).block(torch.tensor([0]), torch.arange(3)).exp().round().tolist()
        [2.0, 1.0, 3.0]

    """

    counts: Tensor

    def __init__(self, counts: Any, scale: float = 0.01, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        if isinstance(counts, PositiveUnlabelled):
            counts = torch.bincount(counts.cols, minlength=counts.shape[1])
        given = check_values(counts, None, "counts", dtype)
        if given.numel() == 0:
            raise InputError("counts: expected a finite number that is not negative for each column, got none")
        refuse_where(given < 0, given, "counts", "a finite number that is not negative")
        start = check_values([check_number(scale, "scale")], 1, "scale", dtype)[0].clone()
        self.register_buffer("counts", given.clone(), persistent=False)
        self.register_parameter("raw_scale", torch.nn.Parameter(start))

    @property
    def scale(self) -> Tensor:
        """() s."""
        found: Tensor = self.raw_scale
        return found

    def col_part(self, cols: Tensor | None) -> Tensor:
        """(Q,): s log(1 + c_n)."""
        known = positions(cols, "cols", len(self.counts))
        if known is None:
            raise InputError("a popularity mean has no count for new column inputs; put those columns into the prior")
        return self.scale * self.counts[known].log1p()

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior with another number of columns."""
        shape = check_shape(shape)
        if len(self.counts) != shape[1]:
            raise InputError(f"mean: expected a count for each of {shape[1]} columns, got {len(self.counts)}")
