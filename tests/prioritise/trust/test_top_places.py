"""P(top k) against planted lists whose truth is known, order inside a row, and what is refused."""

import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.trust import cross_fit, top_places
from mvgp.prioritise.trust.cross_fit import CrossFit
from mvgp.prioritise.trust.top_places import FEW_ROWS, TOP_FEATURES, TOP_SLOPES, top_features
from tests import chance
from tests.randomness import generator, seed

ROWS, KEPT = 1200, 40


def lists(later, scores, known, candidates):
    """A cross-fit of these lists; nothing is hidden."""
    rows, kept = scores.shape
    zero = torch.zeros(rows, dtype=torch.long)
    return CrossFit(
        fold=torch.arange(rows) % 2,
        row=torch.arange(rows),
        known=known,
        candidates=zero + candidates,
        hidden=zero,
        weight=torch.ones(rows, dtype=torch.float64),
        scores=scores,
        labels=torch.zeros(rows, kept, dtype=torch.bool),
        link_list=zero[:0],
        link_rank=zero[:0],
        later=later,
    )


def drawn_scores(number, rows=ROWS, kept=KEPT):
    return torch.randn(rows, kept, generator=generator(number), dtype=torch.float64).sort(1, descending=True).values


@pytest.fixture(scope="module")
def planted():
    r"""Place l becomes :math:`l e^{\epsilon / 2}` with logistic noise: P(at most k) is exactly sigmoid(2 log(k / l))."""
    scores, known = drawn_scores(0), torch.arange(ROWS) % 2  # two groups
    uniform = torch.rand(ROWS, KEPT, generator=generator(1), dtype=torch.float64)
    later = (torch.arange(1, KEPT + 1) * torch.exp(torch.logit(uniform) / 2)).ceil().long().clamp(1, 10**6)
    return top_places(lists(later, scores, known, 300)), scores


@pytest.mark.parametrize("k", [1, 7, 10, 20, 30, 40])
def test_a_truth_that_is_known_is_found(planted, k):
    top, scores = planted
    truth = torch.sigmoid(2 * torch.log(k / torch.arange(1, KEPT + 1).double()))
    limit = chance.share_limit(ROWS // 2, entries=6 * KEPT) / 2 + 0.02  # neighbours share what they know
    for known in (0, 1):
        found = torch.stack([top.chances(torch.cat([line, line[-1:] - 1]), known, k) for line in scores[:20]]).mean(0)
        assert float((found[:KEPT] - truth).abs().max()) <= limit
    assert top.error <= limit
    assert top.error_k == 20


def test_places_of_a_permutation_add_up():
    """All candidates are compared, so k of them are in the later top k in every row, and the mean of sums is k.

    Exactly so for those k that are fitted; between them the lines in log k are not exact.
    """
    scores = drawn_scores(2, 400, 12)
    noisy = scores + 0.5 * torch.randn(400, 12, generator=generator(3))
    later = noisy.argsort(1, descending=True).argsort(1) + 1
    top = top_places(lists(later, scores, torch.zeros(400, dtype=torch.long), 12))
    assert [knot.k for knot in top.knots] == [1, 2, 5, 10, 11]
    for k in (1, 2, 3, 5, 8, 10):
        total = torch.stack([top.chances(line, 0, k) for line in scores]).sum(1)
        assert float(total.mean()) == pytest.approx(k, rel=1e-6 if k in (1, 2, 5, 10) else 0.1)
    assert top.chances(scores[0], 0, 12).tolist() == [1.0] * 12


@pytest.mark.parametrize("unrelated", [True, False])
def test_it_does_not_rise_with_the_place(unrelated):
    """Whatever happened, and where scores are equal."""
    scores = drawn_scores(4, 300).round(decimals=1)
    later = torch.randint(1, 100, (300, KEPT), generator=generator(5)) if unrelated else KEPT - torch.arange(KEPT)
    top = top_places(lists(later.expand(300, KEPT), scores, torch.arange(300) % 4, 500))
    for k in (1, 3, 20, 33):
        for row in range(8):
            found = top.chances(scores[row], row % 4, k) if row % 4 < 3 else top.chances(scores[row], 2, k)
            assert bool((found.diff() <= 1e-12).all())
            assert bool((found >= 0).all() & (found <= 1).all())


def test_features_of_the_end_of_the_top_are_small_and_of_one_row_or_many_the_same():
    scores = drawn_scores(6, 3, 9)
    x = top_features(scores, torch.tensor([0, 2, 3]), 4, 2.0)
    assert x.shape == (3, 9, TOP_FEATURES)
    end = (scores[:, 3] + scores[:, 4]) / 2
    assert torch.allclose(x[:, :, 1] + x[:, :, 3], (scores - end[:, None]) / 2)
    assert torch.allclose(x[0, :, 0] + x[0, :, 2], torch.log(4.5 / torch.arange(1, 10).double()))
    assert bool((x[:, :, :TOP_SLOPES].diff(dim=1) <= 1e-12).all())
    assert torch.equal(top_features(scores[1:2], torch.tensor([2]), 4, 2.0)[0], x[1])


def test_what_is_not_known_is_refused(planted):
    top, scores = planted
    assert top.rows.tolist() == [ROWS // 2, ROWS // 2, 0, 0]
    line = torch.cat([scores[0], scores[0, -1:] - 1])
    assert top.refusal(0, 20, 300) is None
    assert "the first 40 places were compared" in top.refusal(0, 41, 300)
    assert "order only: 0 rows" in top.refusal(3, 20, 300)
    assert top.refusal(3, 20, 20) is None  # all are in the top
    with pytest.raises(InputError, match="k: expected one for which there are probabilities, got 20"):
        top.chances(line, 3, 20)
    with pytest.raises(InputError, match="k: expected"):
        top.chances(line, 1, 0)
    with pytest.raises(InputError, match="scores"):
        top.chances("many", 1, 3)


def test_few_rows_are_too_few():
    scores = drawn_scores(7, FEW_ROWS + 10, 8)
    known = (torch.arange(FEW_ROWS + 10) < 11).long()  # 11 of one group, one less than enough of the other
    later = torch.arange(1, 9).expand(FEW_ROWS + 10, 8)
    top = top_places(lists(later, scores, known, 50))
    assert top.refusal(0, 3, 50) is not None
    assert "11 rows" in top.refusal(1, 3, 50)


def test_lists_that_were_not_compared():
    links = mvgp.PositiveUnlabelled(torch.arange(40), torch.arange(40) % 7 % 3, (40, 9))
    found = cross_fit(Popularity().fit, links, seed=seed(8))
    assert not bool(found.later.any())
    with pytest.raises(InputError, match="found: expected lists that were compared"):
        top_places(found)
    with pytest.raises(InputError, match="found"):
        top_places(links)
    again = cross_fit(Popularity().fit, links, complete=Popularity().fit(links), seed=seed(8))
    with pytest.raises(InputError, match="ks: expected"):
        top_places(again, [0])
    assert [knot.k for knot in top_places(again, []).knots] == [1, 8]
