"""Cross-fitting: which links are hidden, and that what is kept of each list is what a dense look would see."""

import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.prioritise.auto.blend import group_of
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.trust import cross_fit
from mvgp.prioritise.trust.cross_fit import COMPARED, FOLDS, hidden_folds, observed
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


def test_every_link_is_hidden_and_none_is_lost():
    links = some_links()
    times = dict.fromkeys(cells(links), 0)
    for visible, hidden, new in hidden_folds(links, seed(1)):
        assert cells(visible) | cells(hidden) == cells(links)
        assert not cells(visible) & cells(hidden)
        assert not set(visible.rows.tolist()) & set(new.tolist())  # they have lost all links
        others = [cell for cell in cells(hidden) if cell[0] not in set(new.tolist())]
        assert len(others) <= -(-len(links) // FOLDS)
        for cell in cells(hidden):
            times[cell] += 1
    assert min(times.values()) == 1
    assert max(times.values()) <= 2  # once with its part, once with its row


def test_new_rows_are_others_in_each_fold():
    new = torch.cat([rows for _, _, rows in hidden_folds(some_links(), seed(2))])
    assert len(new) == len(new.unique()) == FOLDS * 3  # one row in 20 of 60


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


def test_no_more_than_a_fifth_is_hidden_where_rows_are_left_out():
    """Rows that are ranked miss what was hidden; those that are not have some of it again."""
    links, seen = some_links((300, 25), 0.1, 12), []

    def fit(visible):
        seen.append(visible)
        return Popularity().fit(visible)

    found = cross_fit(fit, links, seed=seed(12), row_limit=4)
    for at, ((before, hidden, _), visible) in enumerate(zip(hidden_folds(links, seed(12)), seen, strict=True)):
        assert cells(before) <= cells(visible) <= cells(links)
        ranked = set(found.row[found.fold == at].tolist())
        assert not {cell for cell in cells(visible) - cells(before) if cell[0] in ranked}
        assert len(visible) == len(links) - round(len(links) / 5)
        for row, count in zip(found.row[found.fold == at], found.hidden[found.fold == at], strict=True):
            assert int(count) == int((hidden.rows == row).sum())


@pytest.mark.parametrize("size", [100, 2000])
def test_every_so_many_lists_are_compared(size):
    links = some_links((size, 6), 0.3, 9)
    found = cross_fit(Popularity().fit, links, complete=Popularity().fit(links), seed=seed(9))
    for fold in range(FOLDS):
        step = max(1, round(FOLDS * int((found.fold == fold).sum()) / COMPARED))
        assert (step > 1) == (size == 2000)
        compared = (found.later[found.fold == fold] > 0).any(1).nonzero().squeeze(1)
        assert bool((compared.diff() == step).all())
        assert int(compared[0]) < step
        assert int(compared[-1]) >= int((found.fold == fold).sum()) - step


def test_weights_stand_for_all_rows():
    links = some_links((200, 30), 0.05, 6)
    whole = cross_fit(Popularity().fit, links, seed=seed(7), row_limit=1000)
    part = cross_fit(Popularity().fit, links, seed=seed(7), row_limit=9)
    assert bool((whole.weight == 1).all())
    assert len(part.row) < len(whole.row)
    for fold in range(FOLDS):
        for group in range(4):
            for with_links in (False, True):
                sums = [
                    float(
                        one.weight[(one.fold == fold) & (one.group == group) & ((one.hidden > 0) == with_links)].sum()
                    )
                    for one in (whole, part)
                ]
                assert sums[0] == pytest.approx(sums[1])
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
