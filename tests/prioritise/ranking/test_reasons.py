"""Reasons in words against the numbers they are made of."""

import gpytorch
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import Graph, PrecomputedKernel
from mvgp.prioritise.auto.blend import GROUPS, MIXTURE, POPULARITY, Blend, distributions
from mvgp.prioritise.auto.fit import AutoRanker, candidates
from mvgp.prioritise.auto.terms import BOTH, COLS, LOW_RANK, POPULAR, ROW_GP, ROWS, TOGETHER, Term, TermBank
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.ranking.mixture import Mixture
from mvgp.prioritise.ranking.reasons import ANY, KNOWN, OTHERS, PRIOR, REST, Reason, Reasons, reasons
from tests import randomness
from tests.prioritise.auto import oracle, planted

WORDS = ("disease", "gene")


def mixture_of(bank, **shares):
    """A ranker with a mixture of some terms alone, by name; the uniform distribution is ``any``."""
    names = tuple(bank.terms)
    weights = torch.zeros(len(names) + 1, dtype=torch.float64)
    for name, share in shares.items():
        weights[-1 if name == "any" else names.index(name)] = share
    return AutoRanker(bank, Blend(names, weights.expand(len(GROUPS), -1), ({MIXTURE: 1.0},) * len(GROUPS)))


def shares(found):
    return {part.source: part.share for part in found.parts}


class TestPercentages:
    @pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
    def test_they_add_up_and_are_next_to_the_shares(self, count):
        for values in randomness.numpy_generator(3).dirichlet(np.ones(count), 20):
            found = Reasons(tuple(Reason(float(value), REST, "x") for value in values))
            whole = found.percentages()
            assert sum(whole) == 100
            assert all(abs(percent - 100 * value) < 1 for percent, value in zip(whole, values, strict=True))

    def test_words_have_them(self):
        found = Reasons((Reason(2 / 3, ROWS, "a"), Reason(1 / 3, COLS, "b"), Reason(0.0, REST, "other")))
        assert str(found) == "67 %: a; 33 %: b"


@pytest.fixture(scope="module")
def bank():
    link_set = oracle.random_set(randomness.numpy_generator(51), (13, 15), share=0.4)
    return TermBank(link_set, link_set.links())


class TestAuto:
    def test_shares_of_sources_are_those_of_the_mixture(self, bank):
        """Sources whose links are all of one kind: each term is one reason."""
        wanted = {"links in common links": 0.3, "low rank EDLAE": 0.2, "popularity count": 0.3, "any": 0.2}
        ranker, row = mixture_of(bank, **wanted), 0
        found = reasons(ranker, row, range(15))
        open_ = candidates(ranker._known, torch.tensor([row]), 15)
        names = [name for name in wanted if name != "any"]
        chances = distributions(bank.scores(torch.tensor([row]), names), open_)[:, 0].double()  # (4, N)
        parts = chances * torch.tensor(list(wanted.values()), dtype=torch.float64)[:, None]
        expected = parts / parts.sum(0)
        own = bank.links.cols[bank.links.rows == row].tolist()
        for col, why in enumerate(found):
            assert sum(part.share for part in why.parts) == pytest.approx(1)
            got = shares(why)
            if col not in own:
                for source, share in zip((TOGETHER, LOW_RANK, POPULAR, ANY), expected[:, col].tolist(), strict=True):
                    if share >= 0.05 or source in got:
                        assert got[source] == pytest.approx(share, rel=1e-4)

    def test_a_process_over_the_rows_is_divided_among_rows_like_this_one(self, bank):
        """Its links are those of other rows to the column, with the positive weights that were learned."""
        name, row = Term(LOW_RANK, ROW_GP).name, 0
        ranker = mixture_of(bank, **{name: 1.0})
        weights = bank._ranker(bank.terms[name]).arrays["coefficients"][:, row].clip(min=0)
        values = bank.scores(torch.tensor([row]), [name])[name][0]
        for col, why in enumerate(reasons(ranker, row, range(15))):
            others = bank.links.rows[bank.links.cols == col].tolist()
            total = sum(float(weights[other]) for other in others)
            for part in why.parts:
                if part.source == ROWS:
                    for other, at, share in part.links:
                        assert at == col
                        assert share == pytest.approx(float(weights[other]) / total, rel=1e-4)
            if values[col] > 0:
                assert {part.source for part in why.parts} <= {ROWS, REST}

    def test_a_term_is_divided_among_its_links(self, bank):
        """Propagation: by own links, links of the column, and others; against the dense term of each link alone."""
        row, name = 2, "both graphs propagation"
        link_set = type("Graphs", (), {})()
        (link_set.row_graph, link_set.row_graphs), (link_set.col_graph, link_set.col_graphs) = (
            bank.row_graphs,
            bank.col_graphs,
        )
        found = reasons(mixture_of(bank, **{name: 1.0}), row, range(15), links=300)
        pairs = list(zip(bank.links.rows.tolist(), bank.links.cols.tolist(), strict=True))
        each = np.zeros((len(pairs), 15))
        for place, pair in enumerate(pairs):
            known = np.zeros(bank.shape)
            known[pair] = 1
            each[place] = oracle.term(bank.terms[name], link_set, bank.links, known)[row]
        for col, why in enumerate(found):
            total = each[:, col].sum()
            if total <= 0:
                continue
            for part in why.parts:
                for other, target, share in part.links:
                    assert share == pytest.approx(each[pairs.index((other, target)), col] / total, rel=1e-3, abs=1e-6)
                    kind = (other == row, target == col)
                    kinds = {(True, True): KNOWN, (True, False): COLS, (False, True): ROWS, (False, False): BOTH}
                    assert kinds[kind] == part.source
                if part.source != REST:
                    assert sum(link[2] for link in part.links) == pytest.approx(part.share, rel=1e-3)

    def test_words(self):
        """One row between two others, one column beside a known one."""
        link_set = planted.link_set([(0, 0), (1, 0), (2, 1)], (3, 4), Graph([(0, 2), (1, 2)], 3), Graph([(1, 3)], 4))
        bank = TermBank(link_set, link_set.links())
        ranker = mixture_of(bank, **{"row graph 1 step": 0.5, "column graph links +1": 0.5})
        options = {"row_names": ["Marfan <b>1</b>", "Marfan 2", "new"], "col_names": ["FBN1", "FBN2", "A", "B"]}
        linked, near = reasons(ranker, 2, [0, 3], words=WORDS, **options)
        assert str(linked) == "100 %: linked to two diseases like this one, Marfan <b>1</b> and Marfan 2"
        assert str(near) == "100 %: near the known gene FBN2"
        assert linked.parts[0].links == ((0, 0, pytest.approx(0.5)), (1, 0, pytest.approx(0.5)))
        (plain,) = reasons(ranker, 2, [0])
        assert str(plain) == "100 %: linked to two rows like this one, row 0 and row 1"
        (nothing,) = reasons(ranker, 2, [2])
        assert str(nothing) == "100 %: nothing speaks for it"

    def test_more_links_than_are_named(self):
        pairs = [(row, 0) for row in range(5)]
        link_set = planted.link_set(pairs, (6, 3), Graph([(row, 5) for row in range(5)], 6))
        bank = TermBank(link_set, link_set.links())
        (found,) = reasons(mixture_of(bank, **{"row graph 1 step": 1.0}), 5, [0], links=3)
        assert str(found) == "100 %: linked to five rows like this one, such as row 0 and row 1"
        assert len(found.parts[0].links) == 3

    def test_names_that_look_like_several_are_quoted(self):
        link_set = planted.link_set([(0, 1)], (2, 3), None, Graph([(1, 2)], 3))
        bank = TermBank(link_set, link_set.links())
        (found,) = reasons(mixture_of(bank, **{"column graph links +1": 1.0}), 0, [2], col_names=["x", "a, b", "y"])
        assert str(found) == '100 %: near the known column "a, b"'

    def test_added_features_count(self, bank):
        names = tuple(bank.terms)
        rng = randomness.numpy_generator(7)
        mixture = torch.from_numpy(rng.dirichlet(np.ones(len(names) + 1), len(GROUPS)))
        weights = {MIXTURE: 0.7, POPULARITY: 0.4, "log low rank EDLAE": 0.5}
        ranker = AutoRanker(bank, Blend(names, mixture, (weights,) * len(GROUPS)))
        for why in reasons(ranker, 0, range(15)):
            assert sum(part.share for part in why.parts) == pytest.approx(1)
            assert {part.source for part in why.parts} <= {
                ROWS,
                COLS,
                BOTH,
                TOGETHER,
                OTHERS,
                LOW_RANK,
                POPULAR,
                ANY,
                KNOWN,
                REST,
            }
            assert all(part.share >= 0.05 for part in why.parts if part.source != REST)


def posterior(values):
    kernels = [PrecomputedKernel(torch.eye(size, dtype=torch.float64) + 0.5) for size in (3, 4)]
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(0.5, dtype=torch.float64)
    data = mvgp.ObservedMatrix([0, 0, 1, 2], [0, 1, 3, 3], values, (3, 4))
    return mvgp.FullGP(mvgp.MatrixGP(*kernels), likelihood).fit(data)


class TestPosteriors:
    def test_shares_are_those_of_the_explanation(self):
        fitted = posterior([2.0, 1.0, 1.5, 1.0])
        why, (found,) = fitted.explain(0, 3), reasons(fitted, 0, [3], words=WORDS)
        positive = why.shares.clamp(min=0)
        total = float(positive.sum()) + max(0.0, why.prior_mean)
        own = float(positive[(why.rows == 0) & (why.cols != 3)].sum()) / total
        same = float(positive[(why.rows != 0) & (why.cols == 3)].sum()) / total
        assert shares(found) == pytest.approx({COLS: own, ROWS: same})
        assert "linked to two diseases like this one" in str(found)
        assert "near the known genes gene 0 and gene 1" in str(found)

    def test_a_mixture_averages(self):
        parts = [posterior([2.0, 1.0, 1.5, 1.0]), posterior([1.0, 1.0, 3.0, 2.0])]
        each = [shares(reasons(part, 0, [3])[0]) for part in parts]
        (found,) = Mixture(parts).reasons(0, [3])
        assert shares(found) == pytest.approx({key: (each[0][key] + each[1][key]) / 2 for key in (COLS, ROWS)})

    def test_nothing_speaks_for_it(self):
        (found,) = reasons(posterior([-2.0, -1.0, -1.0, -1.0]), 0, [3])
        assert str(found) == "100 %: nothing speaks for it" or set(shares(found)) <= {PRIOR}


def test_refusals(bank):
    ranker = mixture_of(bank, any=1.0)
    with pytest.raises(InputError, match="row"):
        reasons(ranker, 13, [0])
    with pytest.raises(InputError, match="cols"):
        reasons(ranker, 0, [15])
    for words in ("disease", ("disease",), ("disease", ""), None):
        with pytest.raises(InputError, match="words: expected two words"):
            reasons(ranker, 0, [1], words=words)
    with pytest.raises(InputError, match="links: expected"):
        reasons(ranker, 0, [1], links=-1)
    with pytest.raises(InputError, match="ranker: expected auto or a posterior"):
        reasons(Popularity().fit(bank.links), 0, [1])
