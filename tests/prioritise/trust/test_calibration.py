"""Calibration: the regression against a general solver, order inside a row, and probabilities that are known."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from mvgp.errors import InputError
from mvgp.prioritise.trust import calibrate, false_discovery, longest_list
from mvgp.prioritise.trust.calibration import (
    CLASSES,
    FEATURES,
    RIDGE,
    SLOPES,
    _monotone,
    _moved,
    features,
    logistic_weights,
    mass_bins,
)
from mvgp.prioritise.trust.cross_fit import CrossFit
from tests import chance
from tests.randomness import generator, seed


def drawn(number=0, rows=600, kept=40, candidates=60):
    """Lists whose labels are drawn with a probability that falls with the place; and that probability."""
    scores = torch.randn(rows, kept, generator=generator(number), dtype=torch.float64).sort(1, descending=True).values
    known = torch.randint(0, 9, (rows,), generator=generator(number + 1))
    truth = torch.sigmoid(1.5 * scores - 2.5 + 0.1 * known[:, None])
    labels = torch.rand(rows, kept, generator=generator(number + 2), dtype=torch.float64) < truth
    link_list, place = labels.nonzero(as_tuple=True)
    found = CrossFit(
        fold=torch.arange(rows) % 5,
        row=torch.arange(rows) // 2,  # each row is in two folds
        known=known,
        candidates=torch.full((rows,), candidates),
        hidden=labels.sum(1),
        weight=torch.ones(rows, dtype=torch.float64),
        scores=scores,
        labels=labels,
        link_list=link_list,
        link_rank=place + 1,
        later=torch.zeros(rows, kept, dtype=torch.long),
    )
    return found, truth


def test_weights_are_those_of_a_general_solver():
    count = 400
    scores = torch.randn(count, generator=generator(0), dtype=torch.float64)
    places = torch.randint(1, 50, (count,), generator=generator(1))
    known = torch.randint(0, 9, (count,), generator=generator(2))
    x = features(scores, places, known)
    assert x.shape == (count, FEATURES)
    labels = (torch.rand(count, generator=generator(3)) < 0.3).double()  # unrelated: some bounds are active
    counts = torch.rand(count, generator=generator(4), dtype=torch.float64) + 0.5
    weights, residual = logistic_weights(x, labels, counts, tolerance=1e-10)
    assert residual <= 1e-10

    def objective(b):
        eta = x.numpy() @ b
        penalty = np.sum(np.delete(b, SLOPES) ** 2) * RIDGE / 2
        return counts.numpy() @ (np.logaddexp(0, eta) - labels.numpy() * eta) + penalty

    bounds = [(0, None)] * SLOPES + [(None, None)] * (FEATURES - SLOPES)
    reference = minimize(objective, np.zeros(FEATURES), bounds=bounds, method="L-BFGS-B", tol=1e-14)
    assert objective(weights.numpy()) <= reference.fun + 1e-6
    assert bool((weights[:SLOPES] >= 0).all())


def test_isotonic_regression_is_the_known_one():
    shares = torch.rand(40, generator=generator(5), dtype=torch.float64)
    mass = torch.rand(40, generator=generator(6), dtype=torch.float64) + 0.1
    expected = IsotonicRegression().fit_transform(np.arange(40), shares.numpy(), sample_weight=mass.numpy())
    assert _monotone(shares, mass).tolist() == pytest.approx(expected.tolist())


def test_equal_probabilities_that_are_moved_stay_in_order():
    """Instructions for vectors and those for what is left over round differently: a record fell, and was refused."""
    shares = torch.linspace(1e-6, 0.99, 4000, dtype=torch.float64)
    for length in (41, 42, 43):
        assert bool((_moved(shares[:, None].expand(-1, length), 0.37).diff() >= 0).all())


@pytest.mark.parametrize("num_known", [0, 1, 4, 20])
def test_the_order_inside_a_row_stays(num_known):
    found, _ = drawn(10)
    calibration = calibrate(found, seed=seed(0))
    scores = torch.randn(90, generator=generator(11), dtype=torch.float64).sort(descending=True).values * 3
    result = calibration.probabilities(scores, num_known)
    for line in (result.value, result.low, result.high):
        assert bool((line.diff() <= 0).all())
        assert bool(((line >= 0) & (line <= 1)).all())
    assert bool((result.low <= result.value).all() & (result.value <= result.high).all())


def test_probabilities_that_are_known_come_back():
    found, truth = drawn(20, rows=2000)
    calibration = calibrate(found, seed=seed(1))
    errors = []
    for at in range(0, 2000, 40):
        result = calibration.probabilities(found.scores[at], int(found.known[at]))
        errors.append((result.value - truth[at]).abs())
    # about 15,000 labels of 80,000; 21 weights and a monotone line; far above what they can be off by
    assert float(torch.cat(errors).mean()) < 0.02
    assert calibration.error < 0.01 + chance.share_limit(2000 * 20, entries=20)
    assert calibration.residual <= 1e-7


def test_classes_and_curve_add_up():
    found, _ = drawn(30)
    calibration = calibrate(found, seed=seed(2))
    assert [each.name for each in calibration.classes] == list(CLASSES)
    links = sum(each.links for each in calibration.classes)
    assert links == pytest.approx(float(found.labels.sum()))
    for each in calibration.classes:
        assert each.low <= each.share <= each.high
        if each.candidates > 0:
            assert each.share == pytest.approx(each.links / each.candidates)
    means = [point.mean_probability for point in calibration.curve]
    assert means == sorted(means)
    assert calibration.classes_of(torch.tensor([0.2, 0.19, 0.05, 0.01, 0.0], dtype=torch.float64)) == (
        "A",
        "B",
        "B",
        "C",
        "D",
    )
    assert any("class A: of 100 candidates" in line for line in calibration.in_words())


def test_beyond_the_last_place_that_was_kept_is_the_share_there():
    found, _ = drawn(40)
    more = torch.tensor([3, 8, 9])  # links at places beyond 40
    found = replace(
        found,
        hidden=found.hidden + torch.bincount(more, minlength=600),
        link_list=torch.cat([found.link_list, more]),
        link_rank=torch.cat([found.link_rank, torch.tensor([41, 50, 60])]),
    )
    calibration = calibrate(found, seed=seed(3))
    shares = calibration.tail[:, 0]
    for group in range(4):
        own = found.group == group
        assert float(shares[group]) == pytest.approx(float((found.group[more] == group).sum()) / (20 * int(own.sum())))
    result = calibration.probabilities(torch.linspace(3, -3, 60), 4)
    assert float(result.value[-1]) <= float(result.value[39])
    assert float(result.value[-1]) == pytest.approx(min(float(shares[2]), float(result.value[39])))


def test_without_a_hidden_link_in_sight_nothing_is_said():
    found, _ = drawn(50)
    found.labels[:] = False
    with pytest.raises(InputError, match="none of .* hidden links is among the first 40"):
        calibrate(found)


def test_bins_hold_every_place_once():
    values = torch.rand(300, generator=generator(60)).round(decimals=1)
    bins = mass_bins(values, torch.rand(300, generator=generator(61)), 7)
    assert sorted(torch.cat(bins).tolist()) == list(range(300))
    edges = [(float(values[own].min()), float(values[own].max())) for own in bins]
    assert all(left[1] < right[0] for left, right in pairwise(edges))


def test_false_discoveries():
    p = torch.rand(30, generator=generator(70)).sort(descending=True).values
    expected = [1 - float(p[: at + 1].double().mean()) for at in range(30)]
    assert false_discovery(p).tolist() == pytest.approx(expected)
    for share in (0.1, 0.4, 0.7):
        length = longest_list(p, share)
        assert length == sum(value <= share for value in expected)
    with pytest.raises(InputError, match="share"):
        longest_list(p, 1.5)
