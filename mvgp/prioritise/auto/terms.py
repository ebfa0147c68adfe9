r"""The terms of ``auto``: what each source of evidence says of the columns of a row.

With the links X (M, N) and the normalised weights :math:`S = D^{-1/2} W D^{-1/2}` of each graph, a term smooths the
links along the rows, the columns, or the links themselves:

.. math:: T = f(S_M)\, X\, g(S_N), \qquad T = f(S_M)\, X\, \tilde X^T \tilde X, \qquad
          \tilde X = D_M^{-1/2} X D_N^{-1/2}.

Here f is a number of steps, or a walk with restart r, :math:`r (I - (1 - r) S_M)^{-1}`, and g a number of steps. Each
:math:`f(S_M) \otimes g(S_N)` is a Kronecker kernel, and its term the mean of a Gaussian process under that kernel when
the noise is large. Other terms are fitted baselines (EDLAE, a Gaussian process over the rows, the low rank of GF-CF,
alternating least squares on whole lists), and popularity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ...data.positive_unlabelled import PositiveUnlabelled
from ...kernels.graph import Graph
from ..baselines.base import BLOCK, BlockRanker, row_normalised, symmetrically_normalised
from ..baselines.factors import GraphALS
from ..baselines.graphs import Propagation
from ..baselines.linear import EDLAE, GFCF, RowGP
from ..tables.link_set import LinkSet

ROWS, COLS, BOTH, TOGETHER, LOW_RANK, POPULAR = (
    "row graph",
    "column graph",
    "both graphs",
    "links in common",
    "low rank",
    "popularity",
)
SOURCES = (ROWS, COLS, BOTH, TOGETHER, LOW_RANK, POPULAR)
RESTARTS = {"restart 0.3": (0.3, 12), "restart 0.05": (0.05, 30)}  # r, and steps of the series
STEPS = ("1 step", "2 steps", "3 steps")
VOTES = ("votes", "votes of 2 steps")
PROPAGATION, PROPAGATION_STEPS = "propagation", 4
SHARP, EXPONENT = "sharp ", 4  # filters by that name have the weights of the row graph to this power
DENSE_LINKS = 3.0  # links of a row on average from which rows have enough in common for EDLAE and a low rank
DENSE_SIDE = 8000  # up to which EDLAE and a GP over the rows are among the terms: inverses take seconds there
RANKS = (32, 128)
ROW_GP = "RowGP"
ALS, ALS_FACTORS = "ALS", (512, 128, 32)  # of which the largest that is small beside the matrix


@dataclass(frozen=True)
class Term:
    """A term by name.

    :param source: what it draws on, one of ``SOURCES``.
    :param row_filter: "links" (of the row itself), "1 step", ..., "restart 0.3", "votes", "sharp restart 0.3"; of
        popularity "count" for the number of links instead of its logarithm; empty where there is none.
    :param col_steps: steps on the graph of the columns.
    :param graph: which of several graphs of an axis; 0 is all of them together.
    """

    source: str
    row_filter: str = ""
    col_steps: int = 0
    graph: int = 0

    @property
    def name(self) -> str:
        """The key of the term."""
        parts = [self.source, self.row_filter, f"+{self.col_steps}" if self.col_steps else ""]
        return " ".join(filter(None, parts)) + (f", graph {self.graph}" if self.graph else "")


def all_terms(row_graphs: Sequence[Graph], col_graphs: Sequence[Graph], links: PositiveUnlabelled) -> list[Term]:
    """The terms that the data can carry: none of a graph without edges, none of rows in common where links are few."""
    with_rows = any(graph.num_links for graph in row_graphs)
    with_cols = any(graph.num_links for graph in col_graphs)
    filters = (*STEPS, *RESTARTS)
    terms = [Term(TOGETHER, "links")]
    if with_rows:
        terms += [Term(ROWS, name) for name in (*filters, *VOTES)]
        terms += [Term(TOGETHER, name) for name in STEPS[:2]]
    if with_cols:
        terms += [Term(COLS, "links", steps) for steps in (1, 2)]
        terms.append(Term(POPULAR, "", 1))
    if with_rows and with_cols:
        terms += [Term(BOTH, name, steps) for name in (*STEPS[:2], *RESTARTS) for steps in (1, 2)]
        terms.append(Term(BOTH, PROPAGATION))
    if with_rows and any(np.ptp(graph.adjacency().data) > 0 for graph in row_graphs if graph.num_links):
        terms.append(Term(ROWS, f"{SHARP}restart 0.3"))
        if with_cols:
            terms += [Term(BOTH, f"{SHARP}restart 0.3", steps) for steps in (1, 2)]
            terms.append(Term(BOTH, f"{SHARP}{PROPAGATION}"))
    if with_rows and len(row_graphs) > 1:
        single = [at for at, graph in enumerate(row_graphs, 1) if graph.num_links]
        terms += [Term(ROWS, name, 0, at) for at in single for name in ("1 step", "restart 0.3")]
    if with_cols and len(col_graphs) > 1:
        terms += [Term(COLS, "links", 1, at) for at, graph in enumerate(col_graphs, 1) if graph.num_links]
    if len(links) >= DENSE_LINKS * links.shape[0]:
        terms += [Term(LOW_RANK, "EDLAE")] if min(links.shape) <= DENSE_SIDE else []
        terms += [Term(LOW_RANK, ROW_GP)] if links.shape[0] <= DENSE_SIDE else []
        terms += [Term(LOW_RANK, f"{rank}") for rank in RANKS if 4 * rank < min(links.shape)]
        if 4 * min(ALS_FACTORS) < min(links.shape):
            terms.append(Term(LOW_RANK, ALS))
    return [*terms, Term(POPULAR, "count"), Term(POPULAR)]


class TermBank:
    """All terms of one set of links, computed for blocks of rows when they are asked for.

    :param link_set: its graphs are used, its links are not.
    :param links: what is known; a held-out link counts as unlabelled.
    :param seed: of singular vectors.
    :param terms: those that the data can carry when left out.
    """

    def __init__(
        self, link_set: LinkSet, links: PositiveUnlabelled, seed: int = 0, terms: Sequence[Term] | None = None
    ) -> None:
        self.links, self.shape, self.seed = links, links.shape, seed
        self.row_graphs, self.col_graphs = graphs_of(link_set)
        chosen = all_terms(self.row_graphs[1], self.col_graphs[1], links) if terms is None else terms
        self.terms = {term.name: term for term in chosen}
        ends = (links.rows.cpu().numpy(), links.cols.cpu().numpy())
        known = sparse.csr_array((np.ones(len(links), dtype=np.float32), ends), shape=links.shape)
        self.known = known  # X, (M, N)
        self.counts = torch.from_numpy(np.asarray(known.sum(axis=0)).ravel())  # (N,) links of each column
        self.backward = to_torch(known.T)  # (N, M)
        normalised = symmetrically_normalised(known)
        self.together = (to_torch(normalised), to_torch(normalised.T))  # (M, N), (N, M)
        self._walks: dict[tuple[str, int], Tensor] = {}
        self._rankers: dict[str, BlockRanker] = {}
        self._incidence: Tensor | None = None  # (N, P) which column a link belongs to

    def scores(
        self, rows: Tensor, names: Sequence[str] | None = None, link_weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """(R, N) in single precision for each name: the terms of a block of rows (R,).

        :param link_weights: (P, B) weights of the links, of one row: then (B, N) for each name, what the term would be
            if each link counted so much. What is learned of the columns from all links stays as it is.
        """
        wanted = [self.terms[name] for name in (self.terms if names is None else names)]
        size = len(rows) if link_weights is None else link_weights.shape[1]
        computed: dict[str, Tensor] = {}
        smoothed: dict[tuple[str, int], Tensor] = {}  # (N, R): links of the rows after a filter on the row graph
        start = torch.zeros(self.shape[0], len(rows))
        start[rows, torch.arange(len(rows))] = 1
        for term in wanted:
            if term.source == LOW_RANK:
                computed[term.name] = self._ranker(term).scores(rows).expand(size, -1)
            elif term.source == POPULAR:
                values = self.counts if not term.col_steps else self._walk("cols", 0) @ self.counts
                computed[term.name] = (values if term.row_filter else torch.log1p(values)).expand(size, -1)
            elif term.row_filter.endswith(PROPAGATION):
                computed[term.name] = self._propagation(term.row_filter, start, link_weights).mT
            else:
                computed[term.name] = self._filtered(term, start, link_weights, smoothed).mT
        return {term.name: computed[term.name] for term in wanted}

    def _filtered(
        self, term: Term, start: Tensor, link_weights: Tensor | None, smoothed: dict[tuple[str, int], Tensor]
    ) -> Tensor:
        """(N, R): links smoothed along rows, then along columns or rows in common."""
        key = (term.row_filter, term.graph if term.source == ROWS else 0)
        if key not in smoothed:
            smoothed[key] = self._spread(self._row_filter(*key, start), link_weights)
        state = smoothed[key]
        if term.source == TOGETHER:
            forward, backward = self.together
            return backward @ (forward @ state)
        col_graph = term.graph if term.source == COLS else 0
        for steps in range(1, term.col_steps + 1):
            key = (f"{term.row_filter}+{steps}", col_graph)
            if key not in smoothed:
                smoothed[key] = self._walk("cols", col_graph) @ state
            state = smoothed[key]
        return state

    def _spread(self, seeds: Tensor, link_weights: Tensor | None) -> Tensor:
        """(N, R): X^T applied to weights of the rows (M, R), or, of one row, with B weights for each link (N, B)."""
        if link_weights is None:
            return self.backward @ seeds
        if self._incidence is None:
            count = len(self.links)
            ends = (self.links.cols.cpu().numpy(), np.arange(count))
            ones = np.ones(count, dtype=np.float32)
            self._incidence = to_torch(sparse.csr_array((ones, ends), shape=(self.shape[1], count)))
        return self._incidence @ (seeds[self.links.rows.cpu()] * link_weights)

    def _propagation(self, name: str, start: Tensor, link_weights: Tensor | None) -> Tensor:
        """(N, R): :class:`~mvgp.prioritise.baselines.Propagation`, by Horner's rule in the walk on the columns."""
        *seeds, last = self.propagation_seeds(name, start)
        state = self._spread(last, link_weights)
        for part in reversed(seeds):
            state = self._walk("cols", 0) @ state + self._spread(part, link_weights)
        return state

    def propagation_seeds(self, name: str, start: Tensor) -> list[Tensor]:
        """(M, R) for each power of the walk on the columns: what propagation makes of ``start`` (M, R) on the rows."""
        recipe = Propagation(self.row_graphs[0], self.col_graphs[0], 0.3, PROPAGATION_STEPS)
        weight = torch.from_numpy(recipe.coefficients()).float()  # (T + 1, T + 1)
        powers = [start]  # each (M, R): S_M^i at some rows
        for _ in range(PROPAGATION_STEPS):
            powers.append(self._walk("sharp" if name.startswith(SHARP) else "rows", 0) @ powers[-1])
        return [
            torch.stack([weight[i, j] * powers[i] for i in range(PROPAGATION_STEPS - j + 1)]).sum(0)
            for j in range(PROPAGATION_STEPS + 1)
        ]

    def _row_filter(self, name: str, graph: int, state: Tensor) -> Tensor:
        """(M, R): f(S_M) applied to the columns of ``state``, all that is kept of a row of the matrix."""
        axis, name = ("sharp" if name.startswith(SHARP) else "rows"), name.removeprefix(SHARP)
        if name in RESTARTS:
            restart, steps = RESTARTS[name]
            walk, start = self._walk(axis, graph), state
            for _ in range(steps):
                state = (1 - restart) * (walk @ state) + restart * start
            return state
        if name in VOTES:
            for _ in range(VOTES.index(name) + 1):
                state = self._walk("votes", graph) @ state
            return state
        for _ in range(0 if name == "links" else STEPS.index(name) + 1):
            state = self._walk(axis, graph) @ state
        return state

    def _walk(self, axis: str, graph: int) -> Tensor:
        """The weights of a graph, normalised; ``votes`` are D^-1 W of the rows, transposed, ``sharp`` a power of W."""
        if (axis, graph) not in self._walks:
            union, single = self.col_graphs if axis == "cols" else self.row_graphs
            weights = (single[graph - 1] if graph else union).adjacency()
            if axis == "sharp":
                weights = (weights / weights.max()).power(EXPONENT)
            weights = weights.astype(np.float32)
            matrix = row_normalised(weights).T if axis == "votes" else symmetrically_normalised(weights)
            self._walks[axis, graph] = to_torch(matrix)
        return self._walks[axis, graph]

    def _ranker(self, term: Term) -> BlockRanker:
        """A fitted baseline."""
        if term.name not in self._rankers:
            recipe: EDLAE | GFCF | GraphALS | RowGP
            if term.row_filter == "EDLAE":
                recipe = EDLAE(30.0, 0.5, dtype=torch.float32)
            elif term.row_filter == ROW_GP:
                recipe = RowGP(self.row_graphs[0], dtype=torch.float32)
            elif term.row_filter == ALS:
                factors = next(size for size in ALS_FACTORS if 4 * size < min(self.shape))
                graphs = self.row_graphs[0], self.col_graphs[0]
                recipe = GraphALS(*graphs, factors, seed=self.seed, dtype=torch.float32)
            else:
                recipe = GFCF(int(term.row_filter), 1.0, seed=self.seed, dtype=torch.float32)
            self._rankers[term.name] = recipe.fit(self.links)
        return self._rankers[term.name]


def graphs_of(link_set: LinkSet) -> tuple[tuple[Graph, tuple[Graph, ...]], tuple[Graph, tuple[Graph, ...]]]:
    """For rows and columns: all graphs of the axis in one, and each of them."""
    rows, cols = (getattr(link_set, f"{side}_graphs", (getattr(link_set, f"{side}_graph"),)) for side in ("row", "col"))
    return (link_set.row_graph, tuple(rows)), (link_set.col_graph, tuple(cols))


def to_torch(matrix: Any) -> Tensor:
    """A sparse matrix as a CSR tensor in single precision."""
    matrix = sparse.csr_array(matrix)
    matrix.sort_indices()
    starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data.astype(np.float32))
    return torch.sparse_csr_tensor(starts, columns, values, size=matrix.shape, check_invariants=False)


def blocks(rows: Tensor, size: int = BLOCK) -> tuple[Tensor, ...]:
    """Rows (R,) in parts that are computed at a time."""
    return rows.split(size)
