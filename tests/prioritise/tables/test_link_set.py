"""Links, graphs and names that belong together."""

import numpy as np
import pytest
import torch

from mvgp import PositiveUnlabelled
from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise.tables import LinkSet
from tests import randomness


def small(**changes):
    parts = {
        "row_ids": ["a", "b", "c"],
        "col_ids": ["w", "x", "y", "z"],
        "rows": [2, 0, 1],
        "cols": [3, 1, 0],
        "row_graph": Graph([(0, 1), (1, 2)], 3, [1.0, 2.0]),
        "col_graph": Graph([(0, 3)], 4),
    }
    return LinkSet(**(parts | changes))


def test_links_are_sorted_and_ids_are_the_names_that_are_missing():
    links = small()
    assert links.rows.tolist() == [0, 1, 2]
    assert links.cols.tolist() == [1, 0, 3]
    assert links.row_names == ("a", "b", "c")
    assert len(links) == 3
    assert links.report is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"row_ids": ["a", "b", "a"]}, "row_ids: expected distinct ids, got 'a'"),
        ({"col_names": ["one"]}, "col_names: expected 4 names"),
        ({"row_graph": Graph([], 4)}, "row_graph: expected 3 nodes"),
        ({"rows": [0, 0, 9]}, "rows"),
        ({"rows": [0, 0, 1], "cols": [1, 1, 0]}, "twice|duplicate|more than once"),
    ],
)
def test_parts_that_do_not_belong_together(changes, expected):
    with pytest.raises(InputError, match=expected):
        small(**changes)


def test_keep_takes_what_is_among_the_chosen():
    part = small(source="here").keep(rows=[2, 1], cols=[3, 0])
    assert part.row_ids == ("c", "b")
    assert part.col_ids == ("z", "w")
    assert list(zip(part.rows.tolist(), part.cols.tolist(), strict=True)) == [(0, 0), (1, 1)]
    assert np.allclose(part.row_graph.adjacency().toarray(), [[0, 2], [2, 0]])
    assert part.source == "here"
    with pytest.raises(InputError, match="none of the 3 links is left"):
        small().keep(rows=[0], cols=[0])
    with pytest.raises(InputError, match="rows: expected distinct positions"):
        small().keep(rows=[0, 0])


def test_subsample_is_a_part_of_the_links_and_repeats():
    rng = randomness.numpy_generator(0)
    cells = rng.permutation(600)[:100]
    links = LinkSet(range(20), range(30), cells // 30, cells % 30, Graph([], 20), Graph([], 30))
    some = links.subsample(0.05, seed=3)
    assert some.shape == links.shape
    assert len(some) == 5
    assert some.digest() == links.subsample(0.05, seed=3).digest() != links.subsample(0.05, seed=4).digest()
    assert set(zip(some.rows.tolist(), some.cols.tolist(), strict=True)) <= set(
        zip(links.rows.tolist(), links.cols.tolist(), strict=True)
    )
    with pytest.raises(InputError, match="share"):
        links.subsample(0.0)


def test_digest_tells_data_apart():
    digests = [
        small().digest(),
        small(row_ids=["a", "b", "d"]).digest(),
        small(cols=[2, 1, 0]).digest(),
        small(row_graph=Graph([(0, 1), (1, 2)], 3)).digest(),
    ]
    assert len(set(digests)) == 4
    assert small(source="x", row_names=["1", "2", "3"]).digest() == digests[0]


def test_prior_and_links():
    links = small()
    assert links.prior(dtype=torch.float32).covariance().dtype == torch.float32
    assert links.links(weight=0.1).weight == 0.1


@pytest.mark.parametrize("given", [[True, False], [0.5], [[0, 1]], "a"])
def test_only_positions_can_be_kept(given):
    links = LinkSet(["a", "b"], ["x", "y"], [0, 1], [1, 0], Graph([], 2), Graph([], 2))
    with pytest.raises(InputError, match="rows"):
        links.keep(rows=given)


class TestFromLinks:
    def test_ids_are_numbers_and_axes_without_a_graph_have_none(self):
        made = LinkSet.from_links(PositiveUnlabelled([1, 0], [2, 1], (2, 3)))
        assert (made.row_ids, made.col_ids) == (("0", "1"), ("0", "1", "2"))
        assert list(zip(made.rows.tolist(), made.cols.tolist(), strict=True)) == [(0, 1), (1, 2)]
        assert (made.row_graph.num_links, made.col_graph.num_links) == (0, 0)

    def test_names_and_graphs_are_kept(self):
        links = PositiveUnlabelled([0], [2], (2, 3), row_names=["ann", "bob"], col_names=["x", "y", "z"])
        friends, related = Graph([(0, 1)], 2), Graph([(0, 2)], 3)
        made = LinkSet.from_links(links, friends, related)
        assert (made.row_ids, made.col_ids) == (("ann", "bob"), ("x", "y", "z"))
        assert (made.row_graph, made.col_graph) == (friends, related)

    def test_it_equals_the_set_written_out(self):
        every = small()
        made = LinkSet.from_links(
            PositiveUnlabelled(every.rows, every.cols, every.shape, row_names=every.row_ids, col_names=every.col_ids),
            every.row_graph,
            every.col_graph,
        )
        assert made.digest() == every.digest()

    def test_wrong_parts_are_refused(self):
        with pytest.raises(InputError, match=r"links: expected mvgp.PositiveUnlabelled, got tuple"):
            LinkSet.from_links(([0], [1]))
        with pytest.raises(InputError, match="col_graph: expected 3 nodes, one for each id, got 4"):
            LinkSet.from_links(PositiveUnlabelled([0], [2], (2, 3)), col_graph=Graph([], 4))
