"""What all baselines share: recipes with checked settings, rankers that work in blocks, normalised matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Protocol, get_type_hints, runtime_checkable

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ... import checks
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...kernels.graph import Graph
from ...metrics.ranking import Ranker
from ...tensor_checks import check_index

DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
BLOCK = 256  # rows computed at a time: bounds the memory of dense intermediate results


def _check_graph(graph: Any, name: str) -> None:
    checks.check_instance(graph, name, Graph, "mvgp.kernels.Graph")


# Types of settings: each states the check that a recipe runs on it.
NodeGraph = Annotated[Graph, _check_graph]
Count = Annotated[int, checks.check_whole_number]
Seed = Annotated[int, checks.check_seed]
Positive = Annotated[float, checks.check_positive]
NotNegative = Annotated[float, checks.check_not_negative]
Part = Annotated[float, checks.check_part]  # above 0 and at most 1
Flag = Annotated[bool, checks.check_flag]
Precision = Annotated[torch.dtype, checks.check_dtype]


@runtime_checkable
class Baseline(Protocol):
    """A recipe without a prior. Its ``repr`` states the settings that matter; ``fit`` does not change it."""

    def fit(self, links: PositiveUnlabelled) -> Ranker:
        """The ranker given ``links``."""
        ...


class Recipe(ABC):
    """A baseline whose dataclass fields are settings with checks, such as ``hops: Count = 1``.

    Fields called ``row_graph`` and ``col_graph`` have a node for each row, and for each column, of the links. A recipe
    owes two methods: what is computed once, and the scores of a block of rows from that.
    """

    dtype: Precision

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            for check in getattr(hint, "__metadata__", ()):
                check(getattr(self, name), name)

    def fit(self, links: PositiveUnlabelled) -> BlockRanker:
        """The ranker given ``links``."""
        # labels of both kinds are refused: a negative says something that no baseline would use
        checks.check_instance(links, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
        for name, count in zip(("row_graph", "col_graph"), links.shape, strict=True):
            graph = getattr(self, name, None)
            if graph is not None and graph.num_nodes != count:
                raise InputError(f"{name}: expected {count} nodes as in the links, got {graph.num_nodes}")
        ones = np.ones(len(links), dtype=DTYPES[self.dtype])
        ends = (links.rows.cpu().numpy(), links.cols.cpu().numpy())
        arrays = self._prepare(sparse.csr_array((ones, ends), shape=links.shape))
        return BlockRanker(self, links.shape, arrays)

    @abstractmethod
    def _prepare(self, links: Any) -> dict[str, Any]:
        """Arrays by name, given X, a CSR array (M, N) with 1 where there is a link."""

    @abstractmethod
    def _block(self, rows: np.ndarray, *args: Any, **arrays: Any) -> np.ndarray:
        """(R, N): the scores of a block of rows (R,), from the arrays of :meth:`_prepare`."""


class BlockRanker:
    """A fitted baseline: a :class:`~mvgp.metrics.Ranker` that computes rows when they are asked for.

    :param recipe: the settings, and the formula of the scores.
    :param shape: (M, N).
    :param arrays: by name, what the recipe has computed once.
    """

    def __init__(self, recipe: Recipe, shape: tuple[int, int], arrays: dict[str, Any]) -> None:
        self.recipe, self.shape, self.arrays, self.dtype = recipe, shape, arrays, recipe.dtype

    def scores(self, rows: Any = None, *, block: int = BLOCK) -> Tensor:
        """(R, N): the scores of whole rows.

        :param rows: (R,) positions; all rows when left out.
        :param block: how many rows are computed at a time.
        """
        positions = np.arange(self.shape[0]) if rows is None else check_index(rows, self.shape[0], "rows").cpu().numpy()
        size = checks.check_whole_number(block, "block")
        scores = np.empty((len(positions), self.shape[1]), dtype=DTYPES[self.dtype])
        for start in range(0, len(positions), size):
            scores[start : start + size] = self.recipe._block(positions[start : start + size], **self.arrays)
        return torch.from_numpy(scores)

    def __repr__(self) -> str:
        return f"{self.recipe!r} fitted to {self.shape[0]} x {self.shape[1]}"


def weights(graph: Graph, dtype: torch.dtype) -> Any:
    """W, a symmetric CSR array (N, N)."""
    return graph.adjacency().astype(DTYPES[dtype])


def row_normalised(matrix: Any) -> Any:
    """D^-1 A: each row adds up to 1, or to 0 if it is empty."""
    return (power_of_sums(matrix, 1, -1.0) @ matrix).tocsr()


def symmetrically_normalised(matrix: Any) -> Any:
    """D^-1/2 A E^-1/2 with the sums D of the rows and E of the columns; its singular values are at most 1."""
    return (power_of_sums(matrix, 1, -0.5) @ matrix @ power_of_sums(matrix, 0, -0.5)).tocsr()


def power_of_sums(matrix: Any, axis: int, power: float) -> Any:
    """A diagonal matrix of the sums along ``axis`` to a power, in the precision of ``matrix``; 0 where the sum is 0."""
    sums = np.asarray(matrix.sum(axis=axis), dtype=np.float64).ravel()
    powers = np.power(sums, power, out=np.zeros_like(sums), where=sums > 0)
    return sparse.diags_array(powers.astype(matrix.dtype))
