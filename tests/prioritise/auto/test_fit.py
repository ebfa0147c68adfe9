"""``auto`` from links to scores: what it finds, that it is honest about it, and links of every odd kind."""

import pickle

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.metrics import Ranker, ranking_scores
from mvgp.metrics.ranking import TaskItems
from mvgp.prioritise.auto import Auto, AutoRanker
from mvgp.prioritise.auto import fit as module
from mvgp.prioritise.auto import sample as sampling
from mvgp.prioritise.auto.blend import GROUPS, MIXTURE
from mvgp.prioritise.auto.terms import COLS, ROWS, SOURCES, TOGETHER
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.tables import LinkSet
from mvgp.testing import RankerContract
from tests import chance, randomness
from tests.prioritise.auto import oracle, planted
from tests.prioritise.baselines.problems import dense_links

PLANTED = {ROWS: planted.by_rows, COLS: planted.by_cols, TOGETHER: planted.by_links}


def fitted(link_set, **options):
    return Auto(link_set, **options).fit(link_set.links())


def gain(assessment):
    """How far ``auto`` is ahead of popularity in AUC, in rows with a known link: of others only graphs know."""
    some = assessment.groups > 0
    auto, popularity = (assessment.scores[name].per_task("AUC")[some] for name in ("auto", "popularity"))
    assert len(auto) > 1
    return float((auto - popularity).mean())


@pytest.fixture(scope="module")
def example():
    """A set with a graph of the rows, and what was fitted to it."""
    link_set, _ = planted.by_rows()
    return link_set, fitted(link_set)


class TestWhatIsFound:
    @pytest.mark.parametrize("source", PLANTED)
    def test_planted_links_are_far_above_popularity(self, source):
        """Nothing is drawn. Without the structure the AUC of these links is that of popularity, 0.5 or less."""
        link_set, pairs = PLANTED[source]()
        held_out, train = tuple(np.array(pairs).T.copy()), link_set.links()
        found = {
            name: ranking_scores(ranker, held_out, exclude=train, k=10).summary()
            for name, ranker in (("auto", fitted(link_set)), ("popularity", Popularity().fit(train)))
        }
        assert found["popularity"]["AUC"] < 0.6
        assert found["auto"]["AUC"] > 0.95
        assert found["auto"]["MAP@10"] > found["popularity"]["MAP@10"] + 0.3

    @pytest.mark.parametrize("source", PLANTED)
    def test_the_assessment_says_so(self, source):
        assert gain(fitted(PLANTED[source]()[0]).assessment) > 0.2

    def test_only_graphs_that_are_there_have_evidence(self, example):
        _, ranker = example
        assert COLS not in ranker.evidence()
        assert any("column graph matters little" in line for line in ranker.in_words())


@pytest.mark.slow
class TestHonesty:
    """On labels that are drawn for each row, no gain over popularity is reported, but for chance.

    Given what is known and what the choice was made by, the held-out links of a row that judges are drawn evenly from
    its candidates, independently of other rows. Whatever the scores, the AUC of a row then has mean 1/2, and variance
    at most (C + 1) / (12 (C - 1)) with C candidates. So the difference of two AUCs has mean 0 and at most four times
    that variance: ``share_limit`` is for half the difference, which is at most 1/2 in size.
    """

    ROWS, COLUMNS, MOST = 3000, 60, 8
    JUDGES = 300  # rows: about 400 here

    def limit(self, rows):
        candidates = self.COLUMNS - self.MOST
        variance = (candidates + 1) / (12 * (candidates - 1))  # of half the difference
        share = 0.5 - (0.25 - variance) ** 0.5  # p (1 - p) is the variance
        return 2 * chance.share_limit(rows, entries=3, share=share)  # three baselines

    @pytest.mark.parametrize("metric", ["MAP@100", "AUC"])
    def test_no_gain_on_permuted_labels(self, metric, monkeypatch):
        monkeypatch.setattr(sampling, "GROUP_LIMIT", 300)
        monkeypatch.setattr(module, "REPEATS", 1)  # a second split knows links that the first one is judged by
        link_set = planted.permuted(randomness.numpy_generator(0), (self.ROWS, self.COLUMNS), self.MOST)
        assessment = fitted(link_set, metric=metric, seed=randomness.seed(1)).assessment
        for found in assessment.comparisons("AUC").values():
            assert abs(found.difference) < self.limit(found.num_tasks)
        assert set(assessment.scores) == {"auto", "popularity", "neighbours", "propagation"}

    def test_a_gain_would_have_been_seen(self):
        """The limit is not beyond what structure gives."""
        assert gain(fitted(planted.by_links()[0]).assessment) > self.limit(self.JUDGES)


class TestHeldOut:
    def test_links_in_two_parts(self):
        links = planted.by_rows()[0].links()
        split = module.hold_out(links, 3)
        np.testing.assert_array_equal(dense_links(split.train) + dense_links(split.held_out), dense_links(links))
        whole = (dense_links(split.train).sum(1) == 0) & (dense_links(links).sum(1) > 0)
        assert whole.sum() >= 1  # rows without any known link are among those that are judged

    def test_a_seed_decides_which(self):
        links = planted.by_rows()[0].links()
        first, again, other = (dense_links(module.hold_out(links, seed).held_out) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_nothing_is_left_of_one_link(self):
        for seed in range(5):
            assert module.hold_out(mvgp.PositiveUnlabelled([0], [1], (2, 3)), seed) is None

    def test_rows_that_choose_are_not_those_that_judge(self):
        links = planted.by_links()[0].links()
        split = module.hold_out(links, 0)
        known, held_out = (TaskItems(part, links.shape, "links") for part in (split.train, split.held_out))
        judges = module.judging_rows(links.shape[0], 0)
        choosing, judging = (module.validation_rows(known, held_out, part, 0) for part in (~judges, judges))
        both = torch.cat([choosing, judging])
        assert len(both.unique()) == len(both)
        assert bool((held_out.counts[both] > 0).all())
        assert 0 < len(judging) < len(choosing)

    def test_candidates_are_all_but_known_links(self):
        links = planted.by_rows()[0].links()
        rows = torch.tensor([5, 0, 5, 7])
        open_ = module.candidates(TaskItems(links, links.shape, "links"), rows, links.shape[1])
        np.testing.assert_array_equal(open_.numpy(), dense_links(links)[rows] == 0)


class TestSeeds:
    def test_the_same_again(self, example):
        link_set, ranker = example
        assert torch.equal(fitted(link_set).scores(), ranker.scores())

    def test_what_is_not_asked_for_changes_nothing(self, example):
        link_set, ranker = example
        quick = fitted(link_set, assess=False)
        assert quick.assessment is None
        assert torch.equal(quick.scores(), ranker.scores())

    def test_where_nothing_is_held_out_the_seed_does_not_matter(self):
        link_set = planted.link_set([(0, 1), (1, 1), (2, 0)], (4, 6), planted.cliques(4, 2), planted.cliques(6, 3))
        first, second = (fitted(link_set, seed=seed).scores() for seed in (0, 1))
        assert torch.equal(first, second)

    def test_global_random_numbers_are_left_alone(self, example):
        link_set, ranker = example
        before = torch.get_rng_state()
        fitted(link_set, assess=False)
        ranker.samples(0, 3)
        assert torch.equal(torch.get_rng_state(), before)


def odd_sets():
    """Links of every odd kind."""
    rows = planted.cliques(60, 3)
    none = [(row, col) for row in range(60) for col in range(40) if row < 30 and (row * 7 + col) % 5 == 0]
    return {
        "one link": planted.link_set([(0, 0)], (3, 4)),
        "one row": planted.link_set([(0, 3 * col) for col in range(300)], (1, 1000)),
        "one row, few": planted.link_set([(0, 1), (0, 2)], (1, 5)),
        "one column": planted.link_set([(row, 0) for row in range(200)], (220, 1)),
        "one column, few": planted.link_set([(1, 0)], (5, 1)),
        "one cell": planted.link_set([(0, 0)], (1, 1)),
        "two rows": planted.link_set([(col % 2, col) for col in range(300)], (2, 320)),
        "four long rows": planted.link_set([(col % 4, col // 2) for col in range(800)], (4, 420)),
        "rows and columns without links": planted.link_set([(r, c) for r, c in none if c < 20], (60, 40), rows),
        "no edges": planted.link_set(none, (60, 40)),
        "everything": planted.link_set([(row, col) for row in range(20) for col in range(12)], (20, 12)),
        "all but one": planted.link_set([(row, col) for row in range(20) for col in range(12) if row != col], (20, 12)),
    }


class TestOddLinks:
    @pytest.mark.parametrize("name", odd_sets())
    @pytest.mark.parametrize("metric", ["MAP@100", "AUC"])
    def test_scores_are_finite(self, name, metric):
        link_set = odd_sets()[name]
        ranker = fitted(link_set, metric=metric)
        scores = ranker.scores()
        assert scores.shape == link_set.shape
        assert torch.isfinite(scores).all()
        assert torch.isfinite(ranker.samples(0, 5)).all()
        assert sum(ranker.evidence().values()) == pytest.approx(1)
        assert ranker.in_words()
        if ranker.assessment is not None:
            assert len(ranker.assessment.table()[1]) == len(ranker.assessment.scores)
            assert ranker.assessment.in_words()

    def test_too_few_links_to_choose_by(self):
        """Equal weights of all terms, and nothing is said of how good they are."""
        link_set = planted.link_set([(0, 1), (1, 1), (2, 0)], (4, 6), planted.cliques(4, 2))
        ranker = fitted(link_set)
        assert ranker.assessment is None
        assert len(ranker.blend.mixture.unique()) == 1
        assert float(ranker.blend.mixture[0].sum()) == pytest.approx(1)
        assert ranker.blend.weights == ({MIXTURE: 1.0},) * len(GROUPS)

    def test_of_a_row_without_links_or_neighbours_only_popularity_is_known(self):
        """Columns 2 j and 2 j + 1 have as many links as each other."""
        pairs = [(row, col) for row in range(40) for col in range(12) if col // 2 <= row % 6]
        ranker = fitted(planted.link_set(pairs, (42, 12), Graph([(row, row + 1) for row in range(0, 40, 2)], 42)))
        score = ranker.scores([40])[0]
        torch.testing.assert_close(score[0::2], score[1::2])

    def test_where_no_term_has_weight_all_columns_tie(self):
        names = tuple(fitted(LINKS).bank.terms)
        mixture = torch.zeros(len(GROUPS), len(names) + 1, dtype=torch.float64)
        mixture[:, -1] = 1
        blend = module.Blend(names, mixture, ({MIXTURE: 1.0},) * len(GROUPS))
        assert len(AutoRanker(fitted(LINKS).bank, blend).scores().unique()) == 1


class TestScores:
    def test_rows_in_any_order(self, example):
        link_set, ranker = example
        whole = ranker.scores()
        rows = [7, 0, 7, link_set.shape[0] - 1]
        torch.testing.assert_close(ranker.scores(rows), whole[rows], rtol=1e-5, atol=1e-5)
        assert ranker.scores([]).shape == (0, link_set.shape[1])
        assert isinstance(ranker, Ranker)
        assert ranker.shape == link_set.shape

    def test_it_survives_pickling(self, example):
        _, ranker = example
        copy = pickle.loads(pickle.dumps(ranker))
        assert torch.equal(copy.scores([3, 4]), ranker.scores([3, 4]))

    def test_unlabelled_weight_does_not_matter(self, example):
        link_set, ranker = example
        assert torch.equal(Auto(link_set).fit(link_set.links(0.5)).scores(), ranker.scores())

    @pytest.mark.parametrize("metric", ["AUC", "P@10", "nDCG@5", "R@7"])
    def test_other_metrics(self, metric):
        link_set, _ = planted.by_rows()
        ranker = fitted(link_set, metric=metric)
        assert torch.isfinite(ranker.scores()).all()
        assert ranker.assessment.metric == metric
        assert ranker.assessment.table()[0][2] == metric
        assert metric in ranker.assessment.in_words()
        assert all(metric in trial for trial in ranker.assessment.trials)

    def test_metrics_in_small_letters_are_the_same(self):
        link_set, _ = planted.by_links()
        assert Auto(link_set, "map@20") == Auto(link_set, "MAP@20")
        assert Auto(link_set, "ndcg@20").metric == "nDCG@20"

    def test_graphs_are_those_of_the_set_and_links_are_not(self):
        link_set, _ = planted.by_rows()
        other = LinkSet(link_set.row_ids, link_set.col_ids, [0], [0], link_set.row_graph, link_set.col_graph)
        first, second = (Auto(one, assess=False).fit(link_set.links()).scores() for one in (link_set, other))
        assert torch.equal(first, second)

    def test_progress_is_shown_when_asked_for(self, capsys):
        link_set, _ = planted.by_cols()
        fitted(link_set, progress=True)
        assert "auto: 3 of 3 stages" in capsys.readouterr().err
        fitted(link_set)
        assert capsys.readouterr().err == ""


class TestWords:
    def test_evidence_adds_up_to_1(self, example):
        _, ranker = example
        shares = ranker.evidence()
        assert sum(shares.values()) == pytest.approx(1)
        assert shares.keys() <= {*SOURCES, "any column"}
        assert all(f"{share:.0%}" in ranker.summary() for share in shares.values() if share >= module.LITTLE)

    def test_the_assessment_compares_with_each_baseline(self, example):
        link_set, ranker = example
        assessment = ranker.assessment
        assert [*assessment.scores] == ["auto", "popularity", "neighbours", "propagation"]
        headings, lines = assessment.table()
        assert all(len(line) == len(headings) for line in lines)
        assert [line[0] for line in lines] == [*assessment.scores]
        assert lines[0][-1] == ""
        assert f"{assessment.comparisons()['popularity'].difference:+.3f}" in lines[1][-1]
        assert len(assessment.groups) == assessment.scores["auto"].num_ranked
        assert assessment.seconds > 0
        assert f"{link_set.shape[0]} x {link_set.shape[1]}" in repr(ranker)

    def test_the_verdict_follows_from_the_interval(self, example):
        _, ranker = example
        ahead = ranker.assessment.comparisons()
        best = max(ahead.values(), key=lambda found: found.mean_b)
        low, high = best.interval
        verdict = "better than" if low > 0 else "worse than" if high < 0 else "not distinguishable from"
        assert verdict in ranker.assessment.in_words()
        assert f"{best.num_tasks} rows" in ranker.assessment.in_words()

    def test_exponents_of_popularity_are_told(self, example):
        _, ranker = example
        for exponent, words in ((-0.5, "few known links (exponent -0.50)"), (0.25, "favoured (exponent 0.25)")):
            weights = ({MIXTURE: 2.0, "popularity": 2 * exponent},) * len(GROUPS)
            blend = module.Blend(ranker.blend.names, ranker.blend.mixture, weights)
            assert any(words in line for line in AutoRanker(ranker.bank, blend).in_words())


class TestUncertainty:
    @pytest.mark.parametrize("k", [1, 5, 100])
    def test_chances_add_up_to_k(self, example, k):
        link_set, ranker = example
        for exclude in (None, link_set.links()):
            top, deviations = ranker.bootstrap(1, k, exclude=exclude, num_samples=70)
            assert float(top.sum()) == pytest.approx(k)
            assert bool(((top >= 0) & (top <= 1 + 1e-12)).all())
            assert top.shape == deviations.shape == (link_set.shape[1],)
            assert bool((deviations >= 0).all())

    def test_excluded_columns_have_none(self, example):
        link_set, ranker = example
        known = link_set.cols[link_set.rows == 1]
        top, _ = ranker.bootstrap(1, 8, exclude=link_set.links(), num_samples=20)
        assert len(known) > 0
        assert bool((top[known] == 0).all())

    def test_all_columns_are_in_the_top_of_all(self, example):
        link_set, ranker = example
        columns = link_set.shape[1]
        top, _ = ranker.bootstrap(1, columns, num_samples=4)
        torch.testing.assert_close(top, torch.ones(columns, dtype=torch.float64))
        top, _ = ranker.bootstrap(1, columns, exclude=link_set.links(), num_samples=4)
        assert float(top.sum()) == pytest.approx(columns - int((link_set.rows == 1).sum()))

    def test_they_are_counted_from_the_samples(self, example):
        _, ranker = example
        drawn = ranker.samples(2, 9, seed=4)
        top, deviations = ranker.bootstrap(2, 3, num_samples=9, seed=4)
        counted = torch.zeros(ranker.shape[1], dtype=torch.float64)
        for sample in drawn:
            counted[sample.topk(3).indices] += 1 / 9
        torch.testing.assert_close(top, counted)
        torch.testing.assert_close(deviations, drawn.double().std(0, unbiased=False))

    def test_a_seed_decides_the_samples(self, example):
        _, ranker = example
        first, again, other = (ranker.samples(1, 5, seed) for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    @pytest.mark.parametrize("count", [1, module.SAMPLE_BLOCK, module.SAMPLE_BLOCK + 1])
    def test_any_number_of_samples(self, example, count):
        _, ranker = example
        assert ranker.samples(0, count).shape == (count, ranker.shape[1])

    def test_samples_are_scores_of_links_with_weights(self, example, monkeypatch):
        """With weights of 1 each of them is the row's score."""
        _, ranker = example
        monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, *_, **__: self.fill_(1.0))
        found = ranker.samples(4, 3)
        torch.testing.assert_close(found, ranker.scores([4]).expand(3, -1), rtol=1e-4, atol=1e-4)

    def test_a_row_without_any_evidence_has_no_spread(self):
        """Nothing of what the terms say of it depends on the weights of the links."""
        pairs = [(row, col) for row in range(30) for col in range(12) if (row + col) % 3]
        ranker = fitted(planted.link_set(pairs, (31, 12)))
        assert float(ranker.bootstrap(30, 3, num_samples=5)[1].max()) < 1e-6


LINKS = planted.link_set([(0, 1), (1, 1)], (3, 4))
BAD = [
    (
        lambda: Auto(LINKS.links()),
        "link_set: expected mvgp.prioritise.tables.LinkSet .*LinkSet.from_links makes one.*, got PositiveUnl",
    ),
    (lambda: Auto(None), "link_set: expected mvgp.prioritise.tables.LinkSet"),
    *(
        (lambda metric=metric: Auto(LINKS, metric), "metric: expected 'AUC', or P, R, MAP or nDCG with a k, as")
        for metric in ("luck", "MAP", "MAP@0", "MAP@-1", "AP@5", "auc@3", "P@٣", "MAP@" + "9" * 30, "", 3, None)
    ),
    (lambda: Auto(LINKS, seed=-1), "seed: expected a whole number of at least 0, got -1"),
    (lambda: Auto(LINKS, max_steps=1.5), "max_steps: expected a whole number of at least 0, got 1.5"),
    (lambda: Auto(LINKS, assess=1), "assess: expected True or False"),
    (lambda: Auto(LINKS, progress="yes"), "progress: expected True, False or 'auto'"),
    (lambda: Auto(LINKS).fit(LINKS), "links: expected mvgp.PositiveUnlabelled, got LinkSet"),
    (lambda: Auto(LINKS).fit(np.zeros((3, 4))), "links: expected mvgp.PositiveUnlabelled, got ndarray"),
    (
        lambda: Auto(LINKS).fit(mvgp.PositiveUnlabelled([0], [0], (4, 3))),
        r"links: expected shape \(3, 4\), as of the graphs, got \(4, 3\)",
    ),
    (lambda: fitted(LINKS).scores([3]), r"rows\[0\]: expected a position in \[0, 3\), got 3"),
    (lambda: fitted(LINKS).samples(3), r"row\[0\]: expected a position in \[0, 3\), got 3"),
    (lambda: fitted(LINKS).samples(0, 0), "num_samples: expected a positive whole number, got 0"),
    (lambda: fitted(LINKS).samples(0, 3, seed=-1), "seed: expected a whole number of at least 0"),
    (lambda: fitted(LINKS).bootstrap(0, 5), "k: expected a whole number from 1 to 4, got 5"),
    (lambda: fitted(LINKS).bootstrap(0, 0), "k: expected a whole number from 1 to 4, got 0"),
    (lambda: fitted(LINKS).bootstrap(0, 2, exclude=([9], [0])), "exclude"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()


class TestContract(RankerContract):
    """Weights that were chosen; ``tests/testing/test_rankers.py`` has equal ones."""

    def make_ranker(self):
        return fitted(planted.by_rows()[0], assess=False)


def test_graphs_on_an_axis_each_have_their_say():
    """The second graph is the one that matters."""
    link_set, pairs = planted.by_rows()
    shifted = Graph(np.stack([np.arange(143), np.arange(1, 144)], axis=1), 144)
    both = LinkSet(
        link_set.row_ids, link_set.col_ids, link_set.rows, link_set.cols, shifted, link_set.col_graph
    ).with_graphs(row_graphs=[link_set.row_graph])
    found = ranking_scores(fitted(both), tuple(np.array(pairs).T.copy()), exclude=both.links(), k=10)
    assert found.summary()["AUC"] > 0.95
    assert oracle.names(2, "r") == [*both.row_ids[:2]]
