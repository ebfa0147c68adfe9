"""Files of ``auto``: links, graphs and weights as named parts, and what was fitted of the links alone.

Nothing is fitted again when a file is read, and the ranker gives the same numbers to the last bit.
"""

from __future__ import annotations

from dataclasses import fields as fields_of
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ...checks import check_instance
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...kernels.graph import Graph
from ...storage.fields import Fields, Spending
from ..baselines.base import BlockRanker, symmetrically_normalised
from ..baselines.factors import GraphALS
from ..baselines.linear import EDLAE, GFCF, RowGP
from ..tables.link_set import LinkSet
from .blend import GROUPS, MIXTURE, POPULARITY, Blend, group_of
from .fit import AutoRanker
from .terms import LOW_RANK, TermBank

AUTO = "AutoRanker"  # kind of the part
PARTS = ("kind", "links", "row_graphs", "col_graphs", "seed", "names", "mixture", "weights", "fitted")
RECIPES: dict[str, type[EDLAE] | type[GFCF] | type[GraphALS] | type[RowGP]] = {
    "EDLAE": EDLAE,
    "GFCF": GFCF,
    "GraphALS": GraphALS,
    "RowGP": RowGP,
}
ARRAYS = {  # others follow from the links
    "EDLAE": ("inverse", "scale"),
    "GFCF": ("row_factors", "col_factors"),
    "GraphALS": ("row_factors", "col_factors"),
    "RowGP": ("coefficients",),
}
SUM_ERROR = 1e-6  # of weights that add up to 1
LARGEST = 1e9  # weight of a feature
BYTES = 64  # of memory for each end of an edge or link: weights, normalised ones, and copies in between


def describe_auto(ranker: AutoRanker) -> dict[str, Any]:
    """A fitted ``auto`` as a tree of plain values and tensors, without its assessment.

    :param ranker: of :meth:`~mvgp.prioritise.auto.Auto.fit`.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto import Auto
        >>> from mvgp.prioritise.auto.storage import describe_auto, restore_auto
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.storage.fields import Fields, Spending
        >>> links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
        >>> tree = describe_auto(Auto(links).fit(links.links()))
        >>> restore_auto(Fields(tree, "ranker"), Spending(None), (3, 4)).shape
        (3, 4)

    """
    check_instance(ranker, "ranker", AutoRanker, "mvgp.prioritise.auto.AutoRanker")
    bank, blend = ranker.bank, ranker.blend
    low_rank = [name for name in blend.used if bank.terms[name].source == LOW_RANK]
    return {
        "kind": AUTO,
        "links": {"rows": bank.links.rows, "cols": bank.links.cols, "weight": float(bank.links.weight)},
        "row_graphs": _describe_graphs(*bank.row_graphs),
        "col_graphs": _describe_graphs(*bank.col_graphs),
        "seed": bank.seed,
        "names": list(blend.names),
        "mixture": blend.mixture,  # (4, Q + 1)
        "weights": [{name: float(weight) for name, weight in weights.items()} for weights in blend.weights],
        "fitted": {name: _describe_baseline(bank._ranker(bank.terms[name]), name) for name in low_rank},
    }


def _describe_graphs(union: Graph, single: tuple[Graph, ...]) -> dict[str, Any]:
    """All graphs of an axis, and their union where there are several."""
    return {
        "union": None if len(single) == 1 else _describe_graph(union),
        "single": [_describe_graph(graph) for graph in single],
    }


def _describe_graph(graph: Graph) -> dict[str, Tensor]:
    """Each edge once, (E, 2) and (E,)."""
    upper = sparse.triu(graph.adjacency(), k=1).tocoo()
    ends = np.stack([upper.row, upper.col], axis=1).astype(np.int64)
    return {"edges": torch.from_numpy(ends), "weights": torch.from_numpy(upper.data.astype(np.float64))}


def _describe_baseline(ranker: BlockRanker, name: str) -> dict[str, Any]:
    kind = type(ranker.recipe).__name__
    if kind not in ARRAYS or ranker.dtype != torch.float32:
        raise InputError(f"term {name!r}: expected {' or '.join(ARRAYS)} in single precision, got {ranker.recipe!r}")
    settings = {part: getattr(ranker.recipe, part) for part in _settings(kind)}
    arrays = {part: torch.from_numpy(ranker.arrays[part]) for part in ARRAYS[kind]}
    return {"kind": kind, "settings": settings, **arrays}


def _settings(kind: str) -> list[str]:
    """The numbers among the settings of a recipe."""
    return [field.name for field in fields_of(RECIPES[kind]) if field.name not in ("dtype", "row_graph", "col_graph")]


def restore_auto(parts: Fields, spending: Spending, shape: tuple[int, int]) -> AutoRanker:
    """The ranker of :func:`describe_auto`; what makes none is a :class:`~mvgp.errors.StorageError`.

    :param parts: of a file.
    :param spending: what loading may cost.
    :param shape: (M, N), known from elsewhere, such as the ids: a file must not choose how much memory is taken.
    """
    parts.only(*PARTS)
    parts.text("kind", (AUTO,))
    links = _restore_links(parts.fields("links"), spending, shape)
    graphs: dict[str, Any] = {}
    for side, size in zip(("row", "col"), shape, strict=True):
        union, single = _restore_graphs(parts.fields(f"{side}_graphs"), spending, size)
        graphs |= {f"{side}_graph": union, f"{side}_graphs": single}
    row_ids, col_ids = (tuple(str(number) for number in range(size)) for size in shape)
    bank = TermBank(
        LinkSet(row_ids, col_ids, links.rows, links.cols, **graphs), links, parts.whole("seed", maximum=2**63 - 1)
    )
    blend = _restore_blend(parts, bank)
    low_rank = [name for name in blend.used if bank.terms[name].source == LOW_RANK]
    fitted = parts.fields("fitted")
    fitted.only(*low_rank)
    for name in low_rank:
        bank._rankers[name] = _restore_baseline(fitted.fields(name), spending, bank)
    ranker = AutoRanker(bank, blend)
    groups = group_of(torch.bincount(links.rows, minlength=shape[0]))
    examples = [int((groups == group).nonzero()[0]) for group in groups.unique()]
    with np.errstate(all="ignore"):  # seen below
        answers = ranker.scores(examples)  # of a row of each group: that there are some is better known now
    parts.require(torch.isfinite(answers).all(), "", "weights and factors that give finite scores", "others")
    return ranker


def _restore_links(parts: Fields, spending: Spending, shape: tuple[int, int]) -> PositiveUnlabelled:
    """Links in the order in which they were, on which samples depend."""
    parts.only("rows", "cols", "weight")
    rows = parts.positions("rows", shape[0])
    cols = parts.positions("cols", shape[1], len(rows))
    parts.require(len(rows) > 0, "rows", "at least one link", "none")
    parts.require(((rows * shape[1] + cols).diff() > 0).all(), "", "distinct links, row by row")
    weight = parts.positive("weight")
    parts.require(weight <= 1, "weight", "a number of at most 1", weight)
    spending.need(parts.where, memory_bytes=BYTES * (len(rows) + sum(shape)))
    return PositiveUnlabelled(rows, cols, shape, weight)


def _restore_graphs(parts: Fields, spending: Spending, size: int) -> tuple[Graph, tuple[Graph, ...]]:
    """The union of the graphs of an axis, and each of them."""
    parts.only("union", "single")
    single = [_restore_graph(inner, spending, size) for inner in parts.each("single", Fields.fields)]
    parts.require(single, "single", "at least one graph", "none")
    several = len(single) > 1
    parts.require(parts.has("union") == several, "union", "a union of several graphs, and none of one")
    return _restore_graph(parts.fields("union"), spending, size) if several else single[0], tuple(single)


def _restore_graph(parts: Fields, spending: Spending, size: int) -> Graph:
    parts.only("edges", "weights")
    edges = parts.array("edges", torch.int64, (None, 2))
    weights = parts.finite("weights", torch.float64, (len(edges),))
    inside = (edges >= 0).all() and (edges < size).all()
    parts.require(inside, "edges", f"positions in [0, {size})")
    parts.require((edges[:, 0] < edges[:, 1]).all(), "edges", "two nodes, ascending")
    parts.require(((edges[:, 0] * size + edges[:, 1]).diff() > 0).all(), "edges", "distinct ones, sorted")
    parts.require((weights > 0).all(), "weights", "positive numbers")
    spending.need(parts.where, memory_bytes=BYTES * (2 * len(edges) + size))
    return Graph(edges.numpy(), size, weights.numpy())


def _restore_blend(parts: Fields, bank: TermBank) -> Blend:
    """Weights of terms that the links and graphs have."""
    names = parts.each("names", Fields.text)
    parts.require(len(set(names)) == len(names), "names", "distinct terms")
    unknown = [name for name in names if name not in bank.terms]
    parts.require(not unknown, "names", f"terms of these links and graphs ({', '.join(bank.terms)})", unknown)
    mixture = parts.finite("mixture", torch.float64, (len(GROUPS), len(names) + 1))
    parts.require((mixture >= 0).all(), "mixture", "weights that are not negative")
    whole = (mixture.sum(1) - 1).abs().max() <= SUM_ERROR
    parts.require(whole, "mixture", "weights that add up to 1", mixture.sum(1).tolist())
    groups = parts.each("weights", Fields.fields)
    parts.require(len(groups) == len(GROUPS), "weights", f"{len(GROUPS)} groups of rows", len(groups))
    features = [MIXTURE, POPULARITY, *names, *(f"log {name}" for name in names)]
    weights = []
    for group in groups:
        group.positive(MIXTURE)
        group.only(*(name for name in features if group.holds(name)))
        weights.append({name: float(group.number(name, -LARGEST, LARGEST)) for name in features if group.holds(name)})
    return Blend(tuple(names), mixture, tuple(weights))


def _restore_baseline(parts: Fields, spending: Spending, bank: TermBank) -> BlockRanker:
    """A baseline with the arrays that it had."""
    links = bank.links
    kind = parts.text("kind", RECIPES)
    parts.only("kind", "settings", *ARRAYS[kind])
    chosen = parts.fields("settings")
    chosen.only(*_settings(kind))
    numbers: dict[str, Any] = {name: chosen.number(name) for name in _settings(kind)}
    (m, n), dtype = links.shape, torch.float32
    spending.need(parts.where, memory_bytes=BYTES * len(links))
    ends = (links.rows.numpy(), links.cols.numpy())
    known = sparse.csr_array((np.ones(len(links), dtype=np.float32), ends), shape=links.shape)
    arrays: dict[str, Any] = {"links": known}
    if kind == "EDLAE":
        side = min(m, n)
        arrays["inverse"] = parts.finite("inverse", dtype, (side, side)).numpy()
        scale = parts.finite("scale", dtype, (n,))
        parts.require((scale > 0).all(), "scale", "positive numbers")
        arrays["scale"] = scale.numpy()
    elif kind == "RowGP":
        arrays["coefficients"] = parts.finite("coefficients", dtype, (m, m)).numpy()
        numbers |= {"row_graph": bank.row_graphs[0]}
    elif kind == "GraphALS":
        factors = chosen.whole("factors", 1, min(m, n) - 1)
        arrays = {
            name: parts.finite(name, dtype, (size, factors)).numpy()
            for name, size in zip(ARRAYS[kind], (m, n), strict=True)
        }
        numbers |= {"row_graph": bank.row_graphs[0], "col_graph": bank.col_graphs[0]}
    else:
        normalised = symmetrically_normalised(known)
        factors = chosen.whole("factors", 1, min(m, n) - 1)
        arrays |= {"backward": normalised, "forward": normalised.T.tocsr()}
        arrays["row_factors"] = parts.finite("row_factors", dtype, (m, factors)).numpy()
        arrays["col_factors"] = parts.finite("col_factors", dtype, (factors, n)).numpy()
    recipe = RECIPES[kind](**numbers, dtype=dtype)
    return BlockRanker(recipe, links.shape, arrays)
