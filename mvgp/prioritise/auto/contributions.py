r"""What each known link adds to each term of one row, at some columns.

Every term of a graph is linear in the weights :math:`w_l` of the known links :math:`l = (r_l, c_l)`,

.. math:: T(m, c) = \sum_l w_l \sum_p f_p(m, r_l)\, g_p(c_l, c),

with a filter f along the rows and one along the columns, g; propagation has one pair (f, g) for each power of the walk
on the columns, other terms have a single one. For one row, f is a vector, and g is needed at the C columns that matter:
the filter of the columns is applied to C unit vectors, not to many samples of all columns. Sums over all candidates
are linear in w, too, with one more vector in place of a unit vector.

EDLAE and the low rank of GF-CF are linear in the row's own links, when what they have learned of the columns is fixed.
The Gaussian process over the rows is linear in the links of other rows to the column, with weights that it has learned
of the rows; some of these are negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..baselines.base import BlockRanker
from ..baselines.linear import GFCF, LinearAutoencoder, RowGP
from .terms import (
    BOTH,
    COLS,
    LOW_RANK,
    PROPAGATION,
    PROPAGATION_STEPS,
    RESTARTS,
    ROWS,
    SHARP,
    STEPS,
    TOGETHER,
    VOTES,
    TermBank,
)

FILTERS = ("links", *STEPS, *RESTARTS, *VOTES)  # of the rows, that this module knows
Pair = tuple[tuple[str, int], tuple[str, int, int]]  # keys of a filter of the rows and of one of the columns


class Contributions:
    """The filters of some terms for one row and C columns.

    :param bank: the terms.
    :param row: its number.
    :param cols: (C,) columns; ``extra`` vectors come after them.
    :param names: of the terms; those that are not linear in all links are in :attr:`others`.
    :param extra: (N, E) vectors, such as the candidates for sums over them: a column each.

    Example:
        >>> import torch
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto.contributions import Contributions
        >>> from mvgp.prioritise.auto.terms import TermBank
        >>> from mvgp.prioritise.tables import LinkSet
        >>> links = LinkSet("abc", "wxyz", [0, 1], [1, 2], Graph([(0, 1), (1, 2)], 3), Graph([], 4))
        >>> bank = TermBank(links, links.links())
        >>> found = Contributions(bank, 1, torch.tensor([1]), ["row graph 1 step"])
        >>> found.of_links("row graph 1 step").flatten() > 0  # link (0, 1) brings up column 1
        tensor([ True, False])

    """

    def __init__(
        self, bank: TermBank, row: int, cols: Tensor, names: Sequence[str], extra: Tensor | None = None
    ) -> None:
        self.bank, self.row, self.cols = bank, row, cols
        self.pairs = {name: pairs for name in names if (pairs := _pairs(bank, name)) is not None}
        self.others = [name for name in names if name not in self.pairs]
        units = torch.zeros(bank.shape[1], len(cols))
        units[cols, torch.arange(len(cols))] = 1
        self._start = units if extra is None else torch.cat([units, extra.to(units)], 1)
        self._row_filters = self._of_rows()
        self._col_filters: dict[tuple[str, int, int], Tensor] = {}

    def _of_rows(self) -> dict[tuple[str, int], Tensor]:
        """(M,) for each key of a filter along the rows."""
        bank = self.bank
        start = torch.zeros(bank.shape[0], 1)
        start[self.row] = 1
        found: dict[tuple[str, int], Tensor] = {}
        for key, _ in (pair for pairs in self.pairs.values() for pair in pairs):
            if key in found:
                continue
            if key[0].endswith(PROPAGATION):
                parts = bank.propagation_seeds(key[0], start)
                found |= {(key[0], j): seeds.squeeze(1) for j, seeds in enumerate(parts)}
            else:
                found[key] = bank._row_filter(*key, start).squeeze(1)
        return found

    def row_filter(self, key: tuple[str, int]) -> Tensor:
        """(M,) f_p of the row."""
        return self._row_filters[key]

    def col_filter(self, key: tuple[str, int, int]) -> Tensor:
        """(N, C + E) g_p applied to the unit vectors of the columns and to the extra ones; g is symmetric."""
        if key not in self._col_filters:
            kind, graph, steps = key
            if kind == TOGETHER:
                forward, backward = self.bank.together
                found = backward @ (forward @ self._start)
            elif steps == 0:
                found = self._start
            elif steps == 1:
                found = self._first_step(graph)
            else:
                found = self.bank._walk("cols", graph) @ self.col_filter((kind, graph, steps - 1))
            self._col_filters[key] = found
        return self._col_filters[key]

    def _first_step(self, graph: int) -> Tensor:
        """(N, C + E) the walk on the columns applied once: its own columns, it is symmetric, and the extra vectors."""
        walk, size = self.bank._walk("cols", graph), len(self.cols)
        parts = (walk.values(), walk.col_indices(), walk.crow_indices())
        matrix = sparse.csr_array(tuple(part.numpy() for part in parts), shape=(walk.shape[0], walk.shape[1]))
        found = torch.from_numpy(matrix[self.cols.numpy()].toarray()).mT
        if size == self._start.shape[1]:
            return found.contiguous()
        return torch.cat([found, walk @ self._start[:, size:]], 1)

    def forget(self, *, rows: Tensor) -> dict[tuple[str, int, int], Tensor]:
        """(R, C + E) for each filter of the columns, at some columns ``rows`` (R,); what was computed is freed."""
        used = dict.fromkeys(key for pairs in self.pairs.values() for _, key in pairs)
        found = {key: self.col_filter(key)[rows] for key in used}
        self._col_filters.clear()
        return found

    def of_links(self, name: str, links: Tensor | None = None) -> Tensor:
        """(L, C + E): what each of some links (L,), all of them when left out, adds to a term."""
        rows, cols = self.bank.links.rows.cpu(), self.bank.links.cols.cpu()
        if links is not None:
            rows, cols = rows[links], cols[links]
        total = torch.zeros(len(rows), self._start.shape[1])
        for of_rows, of_cols in self.pairs[name]:
            total += self.row_filter(of_rows)[rows, None] * self.col_filter(of_cols)[cols]
        return total

    def of_sum(self, scales: Mapping[str, Tensor], links: Tensor) -> Tensor:
        """(L, C + E): what each of some links (L,) adds to a sum of terms, each times its scale (C + E,).

        Terms with the same filter along the columns are added before their links are looked at.
        """
        groups: dict[tuple[str, int, int], list[tuple[Tensor, Tensor]]] = {}
        for name, scale in scales.items():
            for of_rows, of_cols in self.pairs[name]:
                groups.setdefault(of_cols, []).append((self.row_filter(of_rows), scale))
        rows, cols = self.bank.links.rows.cpu()[links], self.bank.links.cols.cpu()[links]
        total = torch.zeros(len(links), self._start.shape[1])
        for of_cols, parts in groups.items():
            filters, factors = (torch.stack(part) for part in zip(*parts, strict=True))  # (P, M), (P, C + E)
            total += (filters.mT @ factors)[rows] * self.col_filter(of_cols)[cols]
        return total

    def totals(self, name: str) -> Tensor:
        """(C + E,) the term itself: what all links add together."""
        return torch.stack(
            [
                (self.bank.backward @ self.row_filter(of_rows)[:, None]).squeeze(1) @ self.col_filter(of_cols)
                for of_rows, of_cols in self.pairs[name]
            ]
        ).sum(0)

    def supporting(self) -> Tensor:
        """(L,) the links that add to any of the terms: those of rows that a filter reaches."""
        reached = torch.zeros(self.bank.shape[0], dtype=torch.bool)
        for values in self._row_filters.values():
            reached |= values != 0
        return reached[self.bank.links.rows.cpu()].nonzero().squeeze(1)


def _pairs(bank: TermBank, name: str) -> list[Pair] | None:
    """The filters of a term; None where it is not linear in the links."""
    term = bank.terms[name]
    if term.source not in (ROWS, COLS, BOTH, TOGETHER):
        return None
    if term.row_filter.endswith(PROPAGATION):
        return [((term.row_filter, j), ("cols", 0, j)) for j in range(PROPAGATION_STEPS + 1)]
    if term.row_filter.removeprefix(SHARP) not in FILTERS:
        return None
    of_rows = (term.row_filter, term.graph if term.source == ROWS else 0)
    if term.source == TOGETHER:
        return [(of_rows, (TOGETHER, 0, 0))]
    return [(of_rows, ("cols", term.graph if term.source == COLS else 0, term.col_steps))]


def learned_links(bank: TermBank, name: str, row: int, cols: Tensor) -> tuple[Tensor, Tensor] | None:
    """(K,) links and (K, C) what each adds to a term that was learned; None for terms that do not tell.

    They are links of the row itself, or of other rows to one of the columns (:class:`RowGP
    <mvgp.prioritise.baselines.RowGP>`). What the term has learned of the columns, or of the rows, is fixed.

    :param bank: the terms.
    :param name: of the term.
    :param row: its number.
    :param cols: (C,) columns.

    Example:
        >>> import torch
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto.contributions import learned_links
        >>> from mvgp.prioritise.auto.terms import TermBank
        >>> from mvgp.prioritise.tables import LinkSet
        >>> rows, cols = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 3]
        >>> links = LinkSet("ab", "wxyz", rows, cols, Graph([], 2), Graph([], 4))
        >>> own, added = learned_links(TermBank(links, links.links()), "low rank EDLAE", 0, torch.tensor([3]))
        >>> own.tolist(), added.shape
        ([0, 1, 2], torch.Size([3, 1]))

    """
    if bank.terms[name].source != LOW_RANK:
        return None
    ranker, links = bank._ranker(bank.terms[name]), (bank.links.rows.cpu() == row).nonzero().squeeze(1)
    if isinstance(ranker, BlockRanker) and isinstance(ranker.recipe, RowGP):
        links = torch.isin(bank.links.cols.cpu(), cols).nonzero().squeeze(1)
        of_rows = torch.from_numpy(ranker.arrays["coefficients"][:, row])[bank.links.rows.cpu()[links]]  # (K,)
        return links, of_rows[:, None] * (bank.links.cols.cpu()[links, None] == cols)
    own, wanted = bank.links.cols.cpu()[links].numpy(), cols.numpy()
    if not isinstance(ranker, BlockRanker):
        return None
    if isinstance(ranker.recipe, LinearAutoencoder):
        return links, torch.from_numpy(_autoencoder(ranker, own, wanted)).float()
    if isinstance(ranker.recipe, GFCF):
        return links, torch.from_numpy(_low_pass(ranker, own, wanted)).float()
    return None


def _autoencoder(ranker: BlockRanker, own: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(K, C) entries of B, with X B the scores: :class:`~mvgp.prioritise.baselines.linear.LinearAutoencoder`."""
    known: Any = ranker.arrays["links"]
    inverse, scale = ranker.arrays["inverse"], ranker.arrays["scale"].astype(np.float64)
    if known.shape[0] >= known.shape[1]:
        found = -inverse[np.ix_(own, wanted)].astype(np.float64) / scale[wanted]
    else:
        counts = np.asarray(known.sum(axis=0), dtype=np.float64).ravel()
        recipe = ranker.recipe
        assert isinstance(recipe, LinearAutoencoder)
        columns = known.tocsc()
        left = columns[:, own].T @ inverse.astype(np.float64)  # (K, M)
        found = (columns[:, wanted].T @ left.T).T / recipe.penalties(counts)[own, None] / scale[wanted]
    found[own[:, None] == wanted] = 0  # the diagonal of B
    return np.asarray(found)


def _low_pass(ranker: BlockRanker, own: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(K, C) entries of the matrix that X is multiplied by in :class:`~mvgp.prioritise.baselines.linear.GFCF`."""
    recipe, known = ranker.recipe, ranker.arrays["links"]
    assert isinstance(recipe, GFCF)
    columns = ranker.arrays["backward"].astype(np.float64).tocsc()
    linear = (columns[:, own].T @ columns[:, wanted]).toarray()  # (K, C)
    if recipe.alpha == 0:
        return np.asarray(linear)
    basis = ranker.arrays["col_factors"].astype(np.float64) / recipe.alpha  # (F, N)
    counts = np.asarray(known.sum(axis=0), dtype=np.float64).ravel()
    inside = basis[:, own] / counts[own]  # (F, K) E^-1 of own columns, which have a link
    if known.shape[0] < known.shape[1]:  # K E^-1 K^T are the squared singular values
        some = counts > 0
        squares = ((basis[:, some] / counts[some]) * basis[:, some]).sum(1)
        inside = inside * np.divide(1, squares, out=np.zeros_like(squares), where=squares > 1e-12)[:, None]
    return np.asarray(linear + recipe.alpha * inside.T @ basis[:, wanted])
