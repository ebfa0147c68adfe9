"""Every term of ``auto`` against dense matrices."""

import numpy as np
import pytest
import torch

import mvgp
from mvgp.kernels import Graph
from mvgp.prioritise.auto import terms as module
from mvgp.prioritise.auto.terms import (
    BOTH,
    COLS,
    LOW_RANK,
    POPULAR,
    PROPAGATION,
    ROWS,
    SOURCES,
    TOGETHER,
    Term,
    TermBank,
)
from mvgp.prioritise.baselines import EDLAE, GFCF, Popularity, Propagation, RowGP
from mvgp.prioritise.tables import LinkSet
from tests import randomness
from tests.prioritise.auto import oracle
from tests.prioritise.baselines.problems import dense_links, random_graph, random_links

SHAPES = [(11, 14), (14, 9)]
SINGLE = {"rtol": 2e-5, "atol": 2e-6}  # sums of a few dozen numbers below 10 in single precision


def all_rows(bank):
    return torch.arange(bank.shape[0])


def several_graphs(number, shape=(11, 14)):
    """Three graphs of the rows, two of the columns."""
    rng = randomness.numpy_generator(number)
    link_set = oracle.random_set(rng, shape)
    rows = [random_graph(rng, shape[0], isolated=place) for place in (0, 3)]
    return link_set.with_graphs(row_graphs=rows, col_graphs=[random_graph(rng, shape[1])])


def check(link_set, links):
    bank = TermBank(link_set, links)
    for name, found in bank.scores(all_rows(bank)).items():
        assert found.dtype == torch.float32
        if bank.terms[name].source != LOW_RANK:
            expected = oracle.term(bank.terms[name], link_set, links)
            np.testing.assert_allclose(found.numpy(), expected, **SINGLE, err_msg=name)


class TestAgainstDenseMatrices:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_all_terms(self, shape):
        link_set = oracle.random_set(randomness.numpy_generator(0), shape)
        check(link_set, link_set.links())

    def test_all_sources_occur(self, monkeypatch):
        """Otherwise the oracle would not have seen them."""
        monkeypatch.setattr(module, "DENSE_LINKS", 1.0)
        link_set = oracle.random_set(randomness.numpy_generator(0))
        every = TermBank(link_set, oracle.random_set(randomness.numpy_generator(1), share=0.6).links())
        assert {term.source for term in every.terms.values()} == set(SOURCES)

    def test_links_other_than_those_of_the_set(self):
        rng = randomness.numpy_generator(2)
        link_set = oracle.random_set(rng)
        check(link_set, random_links(rng, link_set.shape, 0.1))

    def test_several_graphs_on_an_axis(self):
        link_set = several_graphs(3)
        check(link_set, link_set.links())

    def test_graphs_without_edges(self):
        for row_edges, col_edges in ((True, False), (False, True), (False, False)):
            link_set = oracle.random_set(randomness.numpy_generator(4), row_edges=row_edges, col_edges=col_edges)
            check(link_set, link_set.links())

    def test_one_row_and_one_column(self):
        for shape in ((1, 5), (5, 1), (1, 1)):
            graphs = [Graph([], count) for count in shape]
            link_set = LinkSet(oracle.names(shape[0], "r"), oracle.names(shape[1], "c"), [0], [0], *graphs)
            check(link_set, link_set.links())


class TestAgainstBaselines:
    def test_propagation(self):
        link_set = oracle.random_set(randomness.numpy_generator(5))
        bank = TermBank(link_set, link_set.links())
        name = Term(BOTH, PROPAGATION).name
        recipe = Propagation(link_set.row_graph, link_set.col_graph, restart=0.3, iterations=4)
        expected = recipe.fit(link_set.links()).scores()
        torch.testing.assert_close(bank.scores(all_rows(bank), [name])[name].double(), expected, **SINGLE)

    def test_popularity(self):
        link_set = oracle.random_set(randomness.numpy_generator(6))
        bank = TermBank(link_set, link_set.links())
        name = Term(POPULAR).name
        expected = Popularity().fit(link_set.links()).scores().log1p()
        torch.testing.assert_close(bank.scores(all_rows(bank), [name])[name].double(), expected, **SINGLE)

    def test_low_rank(self, monkeypatch):
        """The settings are the bank's own; the scores are those of the baseline, bit by bit."""
        monkeypatch.setattr(module, "RANKS", (2, 3, 4))
        monkeypatch.setattr(module, "DENSE_LINKS", 1.0)
        rng = randomness.numpy_generator(7)
        shape = (15, 16)
        link_set = oracle.random_set(rng, shape)
        links = random_links(rng, shape, 0.7)
        bank = TermBank(link_set, links, seed=5)
        found = bank.scores(all_rows(bank))
        low = [term for term in bank.terms.values() if term.source == LOW_RANK]
        assert [term.row_filter for term in low] == [
            "EDLAE",
            "RowGP",
            "2",
            "3",
        ]  # four times the rank is below both sides
        for term in low:
            settings = bank._ranker(term).recipe
            if term.row_filter == "EDLAE":
                recipe = EDLAE(settings.regularisation, settings.dropout, dtype=torch.float32)
            elif term.row_filter == "RowGP":
                recipe = RowGP(link_set.row_graph, dtype=torch.float32)
            else:
                assert (settings.factors, settings.seed) == (int(term.row_filter), 5)
                recipe = GFCF(settings.factors, settings.alpha, seed=5, dtype=torch.float32)
            assert torch.equal(found[term.name], recipe.fit(links).scores())


class TestWhichTerms:
    @pytest.mark.parametrize(("side", "wanted"), [(16, ["EDLAE", "RowGP"]), (15, ["EDLAE", "RowGP"]), (14, [])])
    def test_large_axes_have_no_dense_inverse(self, side, wanted, monkeypatch):
        monkeypatch.setattr(module, "DENSE_SIDE", side)
        monkeypatch.setattr(module, "DENSE_LINKS", 0.0)
        for shape in ((15, 16), (16, 15)):
            link_set = oracle.random_set(randomness.numpy_generator(9), shape)
            names = [term.row_filter for term in TermBank(link_set, link_set.links()).terms.values()]
            found = [name for name in ("EDLAE", "RowGP") if name in names]
            assert found == [name for name in wanted if name == "EDLAE" or shape[0] <= side]

    def test_a_graph_without_edges_has_none(self):
        for row_edges, col_edges in ((True, False), (False, True), (False, False)):
            link_set = oracle.random_set(randomness.numpy_generator(8), row_edges=row_edges, col_edges=col_edges)
            terms = TermBank(link_set, link_set.links()).terms.values()
            assert any(term.source == ROWS for term in terms) == row_edges
            assert any(term.source == COLS for term in terms) == col_edges
            assert any(term.source == BOTH for term in terms) == (row_edges and col_edges)
            assert any(term.col_steps for term in terms) == col_edges
            assert row_edges or {term.row_filter for term in terms if term.source == TOGETHER} == {"links"}
            assert Term(POPULAR) in terms

    def test_equal_weights_are_not_sharpened(self):
        """Their powers are equal, too."""
        links = oracle.random_set(randomness.numpy_generator(11))
        same = [
            Graph(np.argwhere(np.triu(graph.adjacency().toarray())), len(ids))
            for graph, ids in ((links.row_graph, links.row_ids), (links.col_graph, links.col_ids))
        ]
        plain = LinkSet(links.row_ids, links.col_ids, links.rows, links.cols, *same)
        weighted, equal = (set(TermBank(found, links.links()).terms) for found in (links, plain))
        assert equal < weighted
        assert all(module.SHARP in name for name in weighted - equal)
        assert not any(module.SHARP in name for name in equal)

    def test_nor_has_one_of_several(self):
        link_set = several_graphs(9)
        rows, cols = (
            (*graphs, Graph([], count))
            for graphs, count in zip((link_set.row_graphs, link_set.col_graphs), link_set.shape, strict=True)
        )
        ids = link_set.row_ids, link_set.col_ids, link_set.rows, link_set.cols
        more = LinkSet(*ids, link_set.row_graph, link_set.col_graph, row_graphs=rows, col_graphs=cols)
        assert TermBank(more, more.links()).terms.keys() == TermBank(link_set, link_set.links()).terms.keys()

    def test_each_graph_has_its_own(self):
        link_set = several_graphs(10)
        terms = TermBank(link_set, link_set.links()).terms.values()
        assert {term.graph for term in terms if term.source == ROWS} == {0, 1, 2, 3}
        assert {term.graph for term in terms if term.source == COLS} == {0, 1, 2}

    def test_one_graph_is_not_counted_twice(self):
        link_set = oracle.random_set(randomness.numpy_generator(11))
        assert {term.graph for term in TermBank(link_set, link_set.links()).terms.values()} == {0}

    def test_few_links_are_too_few_for_rows_in_common(self, monkeypatch):
        monkeypatch.setattr(module, "RANKS", (2,))
        link_set = oracle.random_set(randomness.numpy_generator(12))
        per_row = len(link_set) / link_set.shape[0]
        for limit, there in ((per_row, True), (per_row + 0.01, False)):
            monkeypatch.setattr(module, "DENSE_LINKS", limit)
            terms = TermBank(link_set, link_set.links()).terms.values()
            assert any(term.source == LOW_RANK for term in terms) == there

    def test_names_are_distinct_and_in_order(self):
        link_set = several_graphs(13)
        bank = TermBank(link_set, link_set.links())
        assert len(bank.terms) == len(module.all_terms(*(axis[1] for axis in module.graphs_of(link_set)), bank.links))
        some = [*bank.terms][::-3]
        assert [*bank.scores(torch.tensor([2]), some)] == some


class TestBlocks:
    def test_rows_one_by_one_and_in_any_order(self):
        link_set = several_graphs(14)
        bank = TermBank(link_set, link_set.links())
        whole = bank.scores(all_rows(bank))
        rows = torch.tensor([7, 0, 7, 1, link_set.shape[0] - 1])
        block = bank.scores(rows)
        for name, expected in whole.items():
            torch.testing.assert_close(block[name], expected[rows], **SINGLE)
            for row in rows.tolist():
                torch.testing.assert_close(bank.scores(torch.tensor([row]), [name])[name], expected[[row]], **SINGLE)

    def test_some_names_are_the_same_as_all(self):
        link_set = several_graphs(15)
        bank = TermBank(link_set, link_set.links())
        whole = bank.scores(all_rows(bank))
        for name in bank.terms:
            assert torch.equal(bank.scores(all_rows(bank), [name])[name], whole[name])

    def test_rows_split(self):
        rows = torch.arange(10)
        parts = module.blocks(rows, 4)
        assert [len(part) for part in parts] == [4, 4, 2]
        assert torch.equal(torch.cat(parts), rows)

    def test_a_sparse_matrix_is_kept_as_it_is(self):
        matrix = randomness.numpy_generator(16).random((4, 6)) * (randomness.numpy_generator(17).random((4, 6)) < 0.5)
        np.testing.assert_allclose(module.to_torch(matrix).to_dense().numpy(), matrix, rtol=1e-6)


class TestLinkWeights:
    """``link_weights``: each link counts so much."""

    def scores(self, bank, row, weights):
        return bank.scores(torch.tensor([row]), None, weights)

    def bank(self, number):
        link_set = several_graphs(number)
        return link_set, TermBank(link_set, link_set.links())

    @pytest.mark.parametrize("row", [0, 1, 10])  # row 1 has no link, row 10 no neighbour in the first graph
    def test_weights_of_1_change_nothing(self, row):
        _, bank = self.bank(18)
        found = self.scores(bank, row, torch.ones(len(bank.links), 3))
        for name, plain in bank.scores(torch.tensor([row])).items():
            assert found[name].shape == (3, bank.shape[1])
            torch.testing.assert_close(found[name], plain.expand(3, -1), **SINGLE)

    def test_against_dense_matrices(self):
        link_set, bank = self.bank(19)
        weights = torch.rand(len(bank.links), 2, generator=randomness.generator(19))
        for row in (0, 1, 5):
            found = self.scores(bank, row, weights)
            for sample in range(2):
                known = np.zeros(bank.shape)
                known[bank.links.rows, bank.links.cols] = weights[:, sample]
                for name, term in bank.terms.items():
                    if term.source == LOW_RANK:
                        continue
                    expected = oracle.term(term, link_set, bank.links, known)[row]
                    np.testing.assert_allclose(found[name][sample].numpy(), expected, **SINGLE, err_msg=name)

    def test_linear_but_for_what_is_learned_of_the_columns(self):
        _, bank = self.bank(20)
        drawn = torch.rand(len(bank.links), 2, generator=randomness.generator(20))
        both = torch.cat([drawn, drawn @ torch.tensor([[2.0], [0.5]])], dim=1)
        for name, found in self.scores(bank, 3, both).items():
            if bank.terms[name].source in (POPULAR, LOW_RANK):
                assert torch.equal(found, found[:1].expand(3, -1)), name
            else:
                torch.testing.assert_close(found[2], 2 * found[0] + 0.5 * found[1], rtol=1e-4, atol=1e-5)

    def test_a_link_of_weight_0_is_as_if_unknown_to_the_row(self):
        """Of filters along the graphs; rows in common and popularity keep what all links say of the columns."""
        link_set, bank = self.bank(21)
        kept = torch.arange(len(bank.links)) % 3 != 0
        other = TermBank(link_set, oracle.subset(bank.links, kept))
        found = self.scores(bank, 4, kept.float()[:, None])
        plain = other.scores(torch.tensor([4]))
        for name, term in bank.terms.items():
            if term.source in (ROWS, COLS, BOTH):
                torch.testing.assert_close(found[name], plain[name], **SINGLE)


def test_what_is_counted():
    """Columns have as many links as they have, whatever the weight of unlabelled items."""
    link_set = oracle.random_set(randomness.numpy_generator(22))
    links = mvgp.PositiveUnlabelled(link_set.rows, link_set.cols, link_set.shape, weight=0.5)
    bank = TermBank(link_set, links)
    np.testing.assert_array_equal(bank.counts.numpy(), dense_links(links).sum(0))
    np.testing.assert_array_equal(bank.known.toarray(), dense_links(links))
