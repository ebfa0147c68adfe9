"""What ``auto`` computes, written out with dense matrices in double precision, and small sets to try it on."""

import numpy as np

import mvgp
from mvgp.kernels import Graph
from mvgp.prioritise.auto import terms as module
from mvgp.prioritise.baselines import Propagation
from mvgp.prioritise.tables import LinkSet
from tests.prioritise.baselines.problems import dense_links, random_graph, random_links


def names(count, side):
    return [f"{side}{place}" for place in range(count)]


def random_set(rng, shape=(11, 14), share=0.3, *, row_edges=True, col_edges=True):
    """Random links and weighted graphs; the last node of each graph is isolated, row 1 has no link."""
    graphs = [
        random_graph(rng, count, isolated=count - 1) if edges else Graph([], count)
        for count, edges in zip(shape, (row_edges, col_edges), strict=True)
    ]
    links = random_links(rng, shape, share, empty_row=1)
    return LinkSet(names(shape[0], "r"), names(shape[1], "c"), links.rows, links.cols, *graphs)


def power(sums, exponent):
    """Of numbers that are not negative; 0 stays 0."""
    return np.array([value**exponent if value > 0 else 0.0 for value in sums])


def normalised(matrix):
    """D^-1/2 A E^-1/2 with the sums of the rows and of the columns."""
    return power(matrix.sum(1), -0.5)[:, None] * matrix * power(matrix.sum(0), -0.5)


def row_filter(name, weights):
    """f, (M, M)."""
    if name.startswith(module.SHARP):
        return row_filter(name.removeprefix(module.SHARP), weights**4)
    walk, identity = normalised(weights), np.eye(len(weights))
    if name == "links":
        return identity
    if name in module.RESTARTS:
        restart, steps = module.RESTARTS[name]
        series = [restart * (1 - restart) ** step * np.linalg.matrix_power(walk, step) for step in range(steps)]
        return sum(series) + (1 - restart) ** steps * np.linalg.matrix_power(walk, steps)
    if name in module.VOTES:
        votes = power(weights.sum(1), -1.0)[:, None] * weights
        return np.linalg.matrix_power(votes, module.VOTES.index(name) + 1)
    return np.linalg.matrix_power(walk, module.STEPS.index(name) + 1)


def propagation(known, rows, cols):
    """The recursion of the baseline, step by step."""
    recipe = Propagation(Graph([], len(rows)), Graph([], len(cols)), 0.3, module.PROPAGATION_STEPS)
    state = known
    for _ in range(recipe.iterations):
        walked = normalised(rows) @ state + state @ normalised(cols)
        state = (1 - recipe.restart) / 2 * walked + recipe.restart * known
    return state


def term(found, link_set, links, known=None):
    """(M, N): a term by the equations of the module, for all rows.

    :param known: (M, N) the links that are smoothed, where they have weights.
    """
    linked = dense_links(links)
    known = linked if known is None else known
    row_graphs, col_graphs = (
        [union.adjacency().toarray(), *(graph.adjacency().toarray() for graph in each)]
        for union, each in ((link_set.row_graph, link_set.row_graphs), (link_set.col_graph, link_set.col_graphs))
    )
    rows = row_graphs[found.graph if found.source == module.ROWS else 0]
    cols = col_graphs[found.graph if found.source == module.COLS else 0]
    if found.source == module.POPULAR:
        counts = np.linalg.matrix_power(normalised(cols), found.col_steps) @ linked.sum(0)
        return np.tile(counts if found.row_filter == "count" else np.log1p(counts), (len(linked), 1))
    if found.row_filter.removeprefix(module.SHARP) == module.PROPAGATION:
        return propagation(known, rows**4 if found.row_filter.startswith(module.SHARP) else rows, cols)
    smooth = row_filter(found.row_filter, rows) @ known
    if found.source == module.TOGETHER:
        return smooth @ normalised(linked).T @ normalised(linked)
    return smooth @ np.linalg.matrix_power(normalised(cols), found.col_steps)


def subset(links, kept):
    """Some of the links."""
    return mvgp.PositiveUnlabelled(links.rows[kept], links.cols[kept], links.shape)
