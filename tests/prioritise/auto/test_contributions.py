"""What links add to terms, against dense matrices, and samples made of it against samples of all columns."""

import numpy as np
import pytest
import torch

from mvgp.prioritise.auto import Auto
from mvgp.prioritise.auto import bootstrap as module
from mvgp.prioritise.auto.blend import GROUPS, MIXTURE, POPULARITY, Blend, group_of
from mvgp.prioritise.auto.bootstrap import RowBootstrap, contenders, top_shares
from mvgp.prioritise.auto.contributions import Contributions, learned_links
from mvgp.prioritise.auto.fit import AutoRanker, candidates
from mvgp.prioritise.auto.terms import LOW_RANK, POPULAR, ROW_GP, Term, TermBank
from mvgp.prioritise.baselines.linear import GFCF
from tests import randomness
from tests.prioritise.auto import oracle, planted

SHAPES = [(11, 14), (17, 12)]  # more columns than rows, and less


def close(found, expected):
    """Single precision against double."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=2e-6 * max(1e-3, np.abs(expected).max()))


@pytest.fixture(params=SHAPES, scope="module")
def problem(request):
    link_set = oracle.random_set(randomness.numpy_generator(41), request.param, share=0.45)
    return link_set, TermBank(link_set, link_set.links())


class TestContributions:
    @pytest.mark.parametrize("row", [0, 1, 7])  # row 1 has no link
    def test_links_add_up_to_the_terms(self, problem, row):
        link_set, bank = problem
        links, cols = link_set.links(), torch.tensor([3, 0, 9])
        open_ = torch.from_numpy(randomness.numpy_generator(5).random(bank.shape[1]) < 0.7)
        found = Contributions(bank, row, cols, list(bank.terms), open_[:, None])
        assert {bank.terms[name].source for name in found.others} == {LOW_RANK, POPULAR}
        for name in found.pairs:
            dense = oracle.term(bank.terms[name], link_set, links)[row]
            each = found.of_links(name)
            assert each.shape == (len(links), 4)
            close(each.double().sum(0)[:3], dense[cols])
            close(each.double().sum(0)[3], dense[open_.numpy()].sum())
            close(found.totals(name), each.double().sum(0))

    def test_sums_of_terms(self, problem):
        _, bank = problem
        found = Contributions(bank, 7, torch.tensor([3, 0, 9]), list(bank.terms))
        scales = {name: torch.rand(3, generator=randomness.generator(6)) * at for at, name in enumerate(found.pairs)}
        links = torch.arange(0, len(bank.links), 2)
        close(found.of_sum(scales, links), sum(scales[name] * found.of_links(name, links) for name in scales))
        assert not bool(found.of_sum({}, links).any())

    def test_each_link_adds_what_it_adds_alone(self, problem):
        link_set, bank = problem
        links, cols = link_set.links(), torch.arange(bank.shape[1])
        found = Contributions(bank, 4, cols, list(bank.terms))
        for place in (0, len(links) // 2):
            known = np.zeros(bank.shape)
            known[links.rows[place], links.cols[place]] = 1
            for name in found.pairs:
                dense = oracle.term(bank.terms[name], link_set, links, known)[4]
                close(found.of_links(name, torch.tensor([place]))[0], dense)

    def test_other_links_add_nothing(self, problem):
        _, bank = problem
        found = Contributions(bank, 4, torch.arange(bank.shape[1]), list(bank.terms))
        kept = found.supporting()
        for name in found.pairs:
            each = found.of_links(name)
            assert float(each[~torch.isin(torch.arange(len(each)), kept)].abs().sum()) == 0

    @pytest.mark.parametrize("row", [0, 1, 7])
    def test_low_rank_is_made_of_own_links(self, problem, row):
        _, bank = problem
        cols = torch.arange(bank.shape[1])
        names = [name for name, term in bank.terms.items() if term.source == LOW_RANK and term.row_filter != ROW_GP]
        assert names
        for name in names:
            links, each = learned_links(bank, name, row, cols)
            assert bool((bank.links.rows[links] == row).all())
            scores = bank.scores(torch.tensor([row]), [name])[name][0]
            np.testing.assert_allclose(each.double().sum(0), scores, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("row", [0, 1, 7])
    def test_a_process_over_the_rows_is_made_of_links_of_others(self, problem, row):
        _, bank = problem
        name, cols = Term(LOW_RANK, ROW_GP).name, torch.arange(bank.shape[1])
        links, each = learned_links(bank, name, row, cols)
        np.testing.assert_allclose(each.double().sum(0), bank.scores(torch.tensor([row]), [name])[name][0], atol=1e-5)
        ends = bank.links.rows[links], bank.links.cols[links]
        assert not bool(each[(ends[0] == row)[:, None] | (ends[1][:, None] != cols)].any())
        some = learned_links(bank, name, row, cols[2:4])
        assert set(bank.links.cols[some[0]].tolist()) <= {2, 3}
        torch.testing.assert_close(some[1].sum(0), each[:, 2:4].sum(0))

    @pytest.mark.parametrize("shape", SHAPES)
    def test_so_is_a_low_pass(self, shape):
        link_set = oracle.random_set(randomness.numpy_generator(43), shape, share=0.45)
        bank = TermBank(link_set, link_set.links())
        bank._rankers["low rank EDLAE"] = GFCF(3, 0.7, dtype=torch.float64).fit(link_set.links())
        _, each = learned_links(bank, "low rank EDLAE", 0, torch.arange(shape[1]))
        scores = bank._rankers["low rank EDLAE"].scores([0])[0]
        np.testing.assert_allclose(each.sum(0), scores, rtol=1e-4, atol=1e-5)

    def test_popularity_does_not_tell(self, problem):
        assert learned_links(problem[1], "popularity", 0, torch.tensor([1])) is None


def random_blend(bank, rng):
    """Weights of every kind of feature."""
    names = tuple(bank.terms)
    mixture = torch.from_numpy(rng.dirichlet(np.full(len(names) + 1, 0.5), len(GROUPS)))
    weights = {MIXTURE: 1.0, POPULARITY: -0.3, "log row graph 2 steps": 0.4, "both graphs propagation": 0.2}
    weights |= {"low rank EDLAE": 0.1, "log low rank EDLAE": 0.3}
    return Blend(names, mixture, (weights,) * len(GROUPS))


def rounding(weights, terms, open_):
    """(B, N) what single precision leaves of scores: a standardised value is as uncertain as its mean is large beside
    its deviation, which is small where few candidates happen to have nearly equal values."""
    total = 0
    for name, weight in weights.items():
        if name in terms:
            values = terms[name].double()
            deviation, mean = torch.std_mean(values[:, open_], 1, correction=0, keepdim=True)
            deviation = torch.where(
                deviation.square() > 1e-12 * (mean.square() + 1e-30), deviation, 1.0
            )  # as in the code
            ratio = values.abs().amax(1, keepdim=True) / deviation
            total = total + abs(weight) * (1 + ((values - mean) / deviation).abs()) * ratio
    return 20 * torch.finfo(torch.float32).eps * total


class TestSamples:
    @pytest.mark.parametrize("row", [0, 1, 7])
    def test_scores_of_contenders_are_those_of_all_columns(self, problem, row):
        """With the same weights of the links; all columns are contenders, so deviations are exact as well."""
        _, bank = problem
        blend = random_blend(bank, randomness.numpy_generator(6))
        ranker = AutoRanker(bank, blend)
        open_ = candidates(ranker._known, torch.tensor([row]), bank.shape[1])[0]
        group = int(group_of(ranker._known.counts[[row]]))
        bootstrap = RowBootstrap(bank, blend, row, group, open_)
        weights = torch.empty(len(bank.links), 5).exponential_(generator=randomness.generator(8))
        pilot, terms = bootstrap.everybody(weights)
        cols = torch.arange(bank.shape[1])
        sampler = module._Sampler(bootstrap, cols, terms, pilot, bank.scores(torch.tensor([row]), bootstrap.names))
        found = sampler.scores(weights[sampler.links])
        assert bool(
            ((found - pilot).abs() <= 1e-4 * (1 + pilot.abs()) + rounding(blend.weights[group], terms, open_)).all()
        )

    def test_links_that_hardly_matter_keep_their_weight(self, problem, monkeypatch):
        _, bank = problem
        blend = random_blend(bank, randomness.numpy_generator(6))
        ranker = AutoRanker(bank, blend)
        everything = ranker.contender_samples(0, bank.shape[1], num_samples=40, seed=randomness.seed(2))
        reached = Contributions(bank, 0, everything.cols, list(bank.terms)).supporting()
        assert everything.num_links == len(reached)
        monkeypatch.setattr(module, "FEW_LINKS", 0)
        monkeypatch.setattr(module, "LEFT_OUT", 1e9)  # none is drawn any more
        found = ranker.contender_samples(0, bank.shape[1], num_samples=40, seed=randomness.seed(2))
        assert found.num_links == 0
        expected = ranker.scores([0])[0, found.cols]
        torch.testing.assert_close(found.values[module.PILOT :], expected.expand(8, -1), rtol=1e-3, atol=1e-3)

    def test_they_are_samples_of_the_ranker(self, monkeypatch):
        """Of the same draws: the first are those of the pilot."""
        link_set, _ = planted.by_rows()
        ranker = Auto(link_set, assess=False).fit(link_set.links())
        found = ranker.contender_samples(1, 4, num_samples=100, seed=randomness.seed(3))
        assert found.values.shape == (100, len(found.cols))
        assert len(found.cols) < link_set.shape[1]
        assert bool((found.cols.diff() > 0).all())
        pilot = ranker.samples(1, module.PILOT, seed=randomness.seed(3))
        torch.testing.assert_close(found.values[: module.PILOT], pilot[:, found.cols], rtol=1e-4, atol=1e-4)
        others = torch.ones(link_set.shape[1], dtype=torch.bool)
        others[found.cols] = False
        assert not bool(others[pilot.topk(4, 1).indices].any())

    def test_shares_of_the_top(self):
        values = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
        assert top_shares(values, 1).tolist() == pytest.approx([2 / 3, 0, 1 / 3])
        assert top_shares(values, 5).tolist() == [1, 1, 1]

    def test_contenders_are_those_who_come_near(self):
        pilot = torch.zeros(8, 6)
        pilot[:, 0], pilot[:, 1] = 5.0, 4.9
        pilot[:, 2] = torch.tensor([5.2, 4.0] * 4)  # lacks 0.4 or nothing
        pilot[:, 3] = 1.0
        allowed = torch.ones(6, dtype=torch.bool)
        assert contenders(pilot, allowed, 1).tolist() == [0, 1, 2]  # the first 3 of some sample
        allowed[0] = False
        assert contenders(pilot, allowed, 1).tolist() == [1, 2, 3]
        assert contenders(pilot, allowed, 5).tolist() == [1, 2, 3, 4, 5]
