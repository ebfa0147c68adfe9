"""Nearest neighbours against the textbook, dense."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.prioritise.tables import hpo as nearest
from mvgp.prioritise.tables.hpo import information_content, nearest_graph

SETS = st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=5), min_size=2, max_size=14)


def dense(sets, weight, neighbours):
    vectors = np.array([[weight.get(t, 0.0) * (t in s) for t in "abcdefgh"] for s in sets])
    length = np.linalg.norm(vectors, axis=1)
    vectors = vectors / np.where(length > 0, length, 1)[:, None]
    similar = (vectors @ vectors.T).round(6)
    np.fill_diagonal(similar, 0)
    kept = np.zeros_like(similar)
    for i, row in enumerate(similar):
        for j in sorted(range(len(sets)), key=lambda j, row=row: (-row[j], j))[:neighbours]:
            kept[i, j] = row[j]
    return np.maximum(kept, kept.T)


@settings(max_examples=60, deadline=None)
@given(sets=SETS, neighbours=st.integers(1, 5), block=st.integers(1, 6))
def test_as_dense(sets, neighbours, block):
    weight = information_content(sets)
    before, nearest.BLOCK = nearest.BLOCK, block
    try:
        found = nearest_graph(sets, weight, neighbours).adjacency().toarray()
    finally:
        nearest.BLOCK = before
    assert np.allclose(found, dense(sets, weight, neighbours), atol=2e-6)


def test_information_content():
    found = information_content([{"a", "b"}, {"a"}, {"a"}, {"a", "c"}])
    assert found == pytest.approx({"a": 0.0, "b": np.log(4), "c": np.log(4)})


def test_what_all_have_links_nobody():
    sets = [{"a"}, {"a"}, {"a"}]
    assert nearest_graph(sets, information_content(sets)).num_links == 0


@pytest.mark.parametrize("neighbours", [0, -1, 2.5, True])
def test_bad_number_of_neighbours(neighbours):
    with pytest.raises(InputError, match="neighbours: expected a whole number of at least 1"):
        nearest_graph([{"a"}], {"a": 1.0}, neighbours)
