"""Cross-fitting: which links are hidden, and that what is kept of each list is what a dense look would see."""

import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.prioritise.auto.blend import group_of
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.trust import cross_fit
from mvgp.prioritise.trust.cross_fit import PARTS, hidden_folds, observed
from tests.randomness import generator, seed


def some_links(shape=(60, 25), share=0.15, number=0):
    rows, cols = (torch.rand(shape, generator=generator(number)) < share).nonzero(as_tuple=True)
    return mvgp.PositiveUnlabelled(rows, cols, shape)


class Fixed:
    """A ranker of given scores."""

    def __init__(self, scores):
        self.shape, self._scores = tuple(scores.shape), scores

    def scores(self, rows=None):
        return self._scores[rows]


def cells(links):
    return set(zip(links.rows.tolist(), links.cols.tolist(), strict=True))


def hides(links, **options):
    return list(hidden_folds(links, seed=seed(1), **options))


def test_a_row_loses_each_link_once_and_all_links_once():
    links = some_links()
    linked = links.rows.unique()
    hidden, turns = torch.zeros(len(links)), []
    for fold in hides(links, folds=40):
        new = torch.isin(links.rows, fold.new)
        assert bool(fold.links[new].all())
        assert bool(torch.isin(links.rows[fold.links & ~new], fold.thinned).all())
        assert not bool(torch.isin(fold.thinned, fold.new).any())
        assert len(linked) // 8 - len(fold.new) <= len(fold.thinned) <= -(-len(linked) // 8)
        hidden += fold.links & ~new
        turns.append(fold.new)
    assert torch.equal(torch.cat(turns).sort().values, linked)
    assert hidden.max() == 1
    lacking = torch.zeros(60).index_add_(0, links.rows, 1 - hidden)  # a fifth of a row that lost all links at its turn
    assert float(lacking.sum()) <= len(links) / 4


def test_few_folds_hide_all_links_of_an_eighth_of_the_rows_at_most():
    links = some_links((200, 25))
    assert all(len(fold.new) <= -(-len(links.rows.unique()) // 8) for fold in hides(links, folds=2))
    assert all(len(fold.new) == 5 for fold in hides(links, folds=2, row_limit=5))


def test_wide_folds_hide_a_fifth_of_the_links_or_of_the_rows():
    links = some_links()
    folds = hides(links, folds=2 * PARTS, wide=True)
    pairs, rows = folds[::2], folds[1::2]
    assert bool((torch.stack([fold.links for fold in pairs]).sum(0) == 1).all())
    assert {len(links) // PARTS, -(-len(links) // PARTS)} >= {int(fold.links.sum()) for fold in pairs}
    assert all(torch.equal(fold.thinned, links.rows.unique()) and len(fold.new) == 0 for fold in pairs)
    assert torch.equal(torch.cat([fold.new for fold in rows]).sort().values, links.rows.unique())
    assert all(torch.equal(fold.links, torch.isin(links.rows, fold.new)) for fold in rows)


def test_lists_are_those_of_a_dense_look():
    links, other = some_links(number=3), some_links(number=4)
    hidden = [cell for cell in cells(other) if cell not in cells(links)]
    hidden = mvgp.PositiveUnlabelled(*zip(*hidden, strict=True), links.shape)
    scores = torch.randn(links.shape, generator=generator(5)).round(decimals=1)
    rows = torch.arange(0, 60, 2)
    found = observed(Fixed(scores), links, hidden, rows, kept=7)
    at = 0
    for place, row in enumerate(rows.tolist()):
        known = {col for r, col in cells(links) if r == row}
        wanted = {col for r, col in cells(hidden) if r == row}
        order = sorted(set(range(25)) - known, key=lambda col: (-float(scores[row, col]), col))
        assert found.labels[place].tolist() == [col in wanted for col in order[:7]]
        assert found.scores[place].tolist() == pytest.approx([float(scores[row, col]) for col in order[:7]])
        assert (found.known[place], found.candidates[place], found.hidden[place]) == (
            len(known),
            len(order),
            len(wanted),
        )
        ranks = found.link_rank[found.link_list == place].tolist()
        assert ranks == [order.index(col) + 1 for col in sorted(wanted)]
        at += len(ranks)
    assert at == len(found.link_rank)


def test_later_ranks_are_those_of_a_dense_look():
    """Over the columns that were not visible: hidden links are candidates of both lists."""
    links = some_links(number=3)
    hidden = mvgp.PositiveUnlabelled(links.rows[::6], links.cols[::6], links.shape)
    visible = links.without(hidden.rows, hidden.cols)
    first, second = (torch.randn(links.shape, generator=generator(number)).round(decimals=1) for number in (5, 6))
    rows = torch.arange(0, 60, 3)
    found = observed(Fixed(first), visible, hidden, rows, kept=7, complete=Fixed(second))
    for place, row in enumerate(rows.tolist()):
        known = {col for r, col in cells(visible) if r == row}
        orders = [
            sorted(set(range(25)) - known, key=lambda col: (-float(scores[row, col]), col))
            for scores in (first, second)
        ]
        assert found.later[place].tolist() == [orders[1].index(col) + 1 for col in orders[0][:7]]
    assert not bool(observed(Fixed(first), visible, hidden, rows, kept=7).later.any())


@pytest.mark.parametrize("wide", [False, True])
def test_what_a_fit_sees(wide):
    """All links but those hidden in ranked rows; to be compared, a fifth of all is hidden, whether ranked or not."""
    links, seen = some_links((300, 25), 0.1, 12), []

    def fit(visible):
        seen.append(visible)
        return Popularity().fit(visible)

    options = {"folds": 4, "row_limit": 4}
    complete = Popularity().fit(links) if wide else None
    found = cross_fit(fit, links, complete=complete, seed=seed(12), **options)
    assert len(seen) == 4
    hidden = hidden_folds(links, seed=seed(12), wide=wide, **options)
    for at, (fold, visible) in enumerate(zip(hidden, seen, strict=True)):
        ranked = found.row[found.fold == at]
        gone = fold.links if wide else fold.links & torch.isin(links.rows, ranked)
        assert cells(visible) == cells(mvgp.PositiveUnlabelled(links.rows[~gone], links.cols[~gone], links.shape))
        for row, known, lost in zip(ranked, found.known[found.fold == at], found.hidden[found.fold == at], strict=True):
            assert (int(known), int(lost)) == tuple(int((links.rows[some] == row).sum()) for some in (~gone, gone))
    assert bool((found.later > 0).any(1).all()) == wide


@pytest.mark.parametrize("rows", [[0] * 24, [0] * 23 + [1], range(24)])
@pytest.mark.parametrize("wide", [False, True])
def test_folds_that_hide_nothing_or_leave_nothing(rows, wide):
    """Few rows, or one alone: a fold may have no row to look at, no hidden link, or no link left to fit."""
    links = mvgp.PositiveUnlabelled(rows, range(24), (30, 40))
    for shift in range(4):
        complete = Popularity().fit(links) if wide else None
        found = cross_fit(Popularity().fit, links, complete=complete, seed=seed(20) + shift)
        assert int(found.hidden.sum()) == len(found.link_rank)
        assert len(found.link_rank) > 0
        assert bool((found.known + found.hidden <= 24).all())


def test_weights_stand_for_all_rows():
    links = some_links((200, 30), 0.05, 6)
    whole = cross_fit(Popularity().fit, links, seed=seed(7), row_limit=1000)
    part = cross_fit(Popularity().fit, links, seed=seed(7), row_limit=3)
    assert bool((whole.weight == 1).all())
    assert len(part.row) < len(whole.row)
    for fold in range(40):
        for group in range(1, 4):
            for with_links in (False, True):
                sums = [
                    float(
                        one.weight[(one.fold == fold) & (one.group == group) & ((one.hidden > 0) == with_links)].sum()
                    )
                    for one in (whole, part)
                ]
                assert sums[0] == pytest.approx(sums[1])
    assert bool((part.weight[part.known == 0] == 1).all())  # rows that have lost all links are not more than are ranked
    assert bool((whole.hidden == 0).any())  # rows that have lost nothing count, too
    empty = torch.ones(200, dtype=torch.bool).index_fill(0, links.rows, False).nonzero().squeeze(1)
    assert not bool(torch.isin(whole.row, empty).any())  # rows without a link at all do not


def test_chance_is_the_share_of_hidden_links():
    links = some_links((80, 20), 0.1, 8)
    found = cross_fit(Popularity().fit, links, seed=seed(9), row_limit=1000)
    for group in found.group.unique().tolist():
        own = found.group == group
        expected = float(found.hidden[own].sum()) / float(found.candidates[own].sum())
        assert float(found.chance()[group]) == pytest.approx(expected)


def test_one_rank_of_each_row_and_group():
    found = cross_fit(Popularity().fit, some_links((80, 20), 0.1, 10), seed=seed(11))
    for group, ranks in enumerate(found.drawn_ranks(seed(12))):
        own = found.group[found.link_list] == group
        assert len(ranks) == len(found.row[found.link_list[own]].unique())
        assert bool((ranks.diff() >= 0).all())
        assert set(ranks.tolist()) <= set(found.link_rank[own].tolist())


def test_the_same_seed_gives_the_same():
    links = some_links()
    first, second = (cross_fit(Popularity().fit, links, seed=seed(13)) for _ in range(2))
    assert torch.equal(first.scores, second.scores)
    assert torch.equal(first.link_rank, second.link_rank)
    assert torch.equal(first.group, group_of(first.known))


def test_fewer_candidates_than_places():
    found = cross_fit(Popularity().fit, some_links((50, 6), 0.3, 14), seed=seed(15))
    assert found.labels.shape[1] == 6
    assert not bool(found.labels[~found.inside].any())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cross_fit(Popularity().fit, mvgp.PositiveUnlabelled([0, 1], [0, 1], (3, 3))), "at least 20"),
        (lambda: cross_fit(Popularity().fit, None), "links: expected"),
        (lambda: cross_fit(Popularity().fit, some_links(), row_limit=0), "row_limit"),
        (lambda: list(hidden_folds(some_links(), folds=1)), "folds"),
        (lambda: list(hidden_folds(some_links(), folds=41)), "folds"),
        (lambda: list(hidden_folds(some_links(), folds=11, wide=True)), "folds"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_scores_that_are_no_numbers_are_refused():
    class Broken:
        shape = (60, 25)

        def scores(self, rows=None):
            return torch.full((len(rows), 25), torch.nan)

    with pytest.raises(InputError, match="finite"):
        cross_fit(lambda links: Broken(), some_links())
