"""The order cone: against scipy's isotonic regression, and what theory says about projections onto it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.likelihoods import LevelProjection, OrderProjection, RankingLists, project_levels, project_order
from tests import randomness
from tests.likelihoods.instances import isotonic_projection, level_projection, level_slopes, random_lists


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("margin", [0.0, 1.0])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("contiguous", [False, True])
def test_equals_isotonic_regression(weighted, margin, ties, contiguous):
    """600 tasks in each of 16 settings, in one call each."""
    scores, positive, weight, task = random_lists(int(10 * margin + ties), 600, contiguous=contiguous, ties=ties)
    weight = weight if weighted else None
    found = project_order(scores, positive, task, margin, weight)
    wanted = isotonic_projection(scores, positive, task, margin, weight)
    assert (found - wanted).abs().max() < 1e-10


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.floats(-1e3, 1e3), st.booleans(), st.floats(0.01, 100.0), st.integers(0, 3)),
        min_size=1,
        max_size=25,
    ),
    st.floats(0.0, 10.0),
)
@settings(max_examples=200)
def test_equals_isotonic_regression_on_what_hypothesis_thinks_of(entries, margin):
    scores, positive, weight, task = (torch.tensor(part) for part in zip(*entries, strict=True))
    scores, weight = scores.double(), weight.double()
    for weights in (None, weight):
        found = project_order(scores, positive, task, margin, weights)
        assert (found - isotonic_projection(scores, positive, task, margin, weights)).abs().max() < 1e-10


def test_long_lists_and_many_groups():
    """Lists longer than a padded group, groups of many lists, and settled lists dropping out."""
    scores, positive, weight, task = random_lists(3, 300, largest=400)
    whole = project_order(scores, positive, task, 1.0, weight)
    assert (whole - isotonic_projection(scores, positive, task, 1.0, weight)).abs().max() < 1e-10
    project = LevelProjection(RankingLists.bipartite(positive, task), 1.0, weight, group_size=300)
    assert torch.allclose(project(scores), whole, rtol=0, atol=1e-12)


def test_newton_alone_would_go_round_in_circles():
    """Steep on either side of the root and flat around it: the bracket has to step in."""
    for seed in range(20):
        rng = randomness.numpy_generator(seed)
        scores = torch.from_numpy(
            np.concatenate([rng.normal(size=3), rng.choice([-1.0, 1.0], 60) * 10.0 ** rng.integers(-8, 8, 60)])
        )
        positive = torch.from_numpy(rng.random(63) < 0.5)
        weight = torch.from_numpy(10.0 ** rng.integers(-6, 6, 63).astype(float))
        task = torch.zeros(63, dtype=torch.long)
        found = project_order(scores, positive, task, 0.0, weight)
        wanted = isotonic_projection(scores, positive, task, 0.0, weight)
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-12 * float(scores.abs().max()))


def test_warm_and_cold_starts_agree():
    scores, positive, weight, task = random_lists(5, 400, largest=40)
    project = OrderProjection(positive, task, 1.0, weight)
    moved = scores.clone()
    for step in (0.0, 1e-3, 0.1, 1.0, 100.0):
        moved = moved + step * torch.randn_like(moved)
        cold = OrderProjection(positive, task, 1.0, weight)(moved)
        assert torch.allclose(project(moved), cold, rtol=1e-13, atol=1e-12)
    project.reset_warm_start()
    assert torch.equal(project(moved), cold)


@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_a_projection_is_idempotent_non_expansive_and_follows_shifts(margin):
    scores, positive, weight, task = random_lists(6, 500)
    project = OrderProjection(positive, task, margin, weight)
    once = project(scores)
    assert torch.allclose(project(once), once, rtol=0, atol=1e-12)
    other = scores + torch.randn_like(scores)
    assert (weight * (project(other) - once).square()).sum() <= (weight * (other - scores).square()).sum()
    shift = torch.randn(project.lists.num_lists, dtype=torch.float64)[project.lists.list_of]
    assert torch.allclose(project(scores + shift), once + shift, rtol=0, atol=1e-12)


def test_the_result_is_in_the_set_and_moves_only_what_it_must():
    scores, positive, _, task = random_lists(7, 200)
    found = project_order(scores, positive, task, 0.5)
    for number in task.unique():
        own = task == number
        top, bottom = found[own & positive], found[own & ~positive]
        if len(top) and len(bottom):
            assert top.min() >= bottom.max() + 0.5 - 1e-12
        up, down = scores[own & positive], scores[own & ~positive]
        if not len(up) or not len(down) or up.min() >= down.max() + 0.5:
            assert torch.equal(found[own], scores[own])
    assert (found[positive] >= scores[positive]).all()
    assert (found[~positive] <= scores[~positive]).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_margin_identity(weighted):
    """Equation (10): half the squared distance is a squared-hinge classifier with the best threshold."""
    scores, positive, weight, task = random_lists(8, 60)
    weight = weight if weighted else torch.ones_like(weight)
    margin = 1.0
    found = project_order(scores, positive, task, margin, weight)
    for number in task.unique():
        own = task == number
        psi, w, top = scores[own], weight[own], positive[own]
        distance = (w * (psi - found[own]).square()).sum() / 2

        def hinge(b, psi=psi, w=w, top=top):
            off = torch.where(top, b[:, None] + margin - psi, psi - b[:, None]).relu()
            return (w * off.square()).sum(1) / 2

        low, high = psi.min() - 2, psi.max() + 2
        for _ in range(12):  # a scan that zooms in; the function of b is convex
            grid = torch.linspace(float(low), float(high), 41, dtype=torch.float64)
            best = int(hinge(grid).argmin())
            low, high = grid[max(best - 1, 0)], grid[min(best + 1, 40)]
        assert torch.isclose(hinge(grid).min(), distance, rtol=1e-9, atol=1e-12)


# Several levels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_levels_equal_isotonic_regression_and_nothing_is_nearer(seed):
    rng = randomness.numpy_generator(seed)
    size = int(rng.integers(2, 14))
    level = rng.integers(0, rng.integers(2, 6), size) * rng.choice([1, 2])
    scores, weight = rng.normal(size=size) * 3, rng.uniform(0.05, 2.0, size)
    margin = float(rng.choice([0.0, 0.5]))
    task = torch.zeros(size, dtype=torch.long)
    found = project_levels(torch.from_numpy(scores), torch.from_numpy(level), task, margin, weight)
    assert np.abs(found.numpy() - level_projection(scores, level, weight, margin)).max() < 1e-12
    assert level_slopes(scores, found.numpy(), level, weight, margin).max() < 1e-12


def test_two_levels_are_the_order_cone():
    scores, positive, weight, task = random_lists(9, 400)
    found = project_levels(scores, positive.long(), task, 0.5, weight)
    assert torch.allclose(found, project_order(scores, positive, task, 0.5, weight), rtol=0, atol=1e-12)


def test_a_total_order_is_isotonic_regression():
    from scipy.optimize import isotonic_regression

    rng = randomness.numpy_generator(0)
    scores, weight = rng.normal(size=3000) + np.linspace(0, 2, 3000), rng.uniform(0.1, 1.0, 3000)
    task = torch.arange(3000) // 100
    found = project_levels(torch.from_numpy(scores), torch.arange(3000), task, 0.0, weight)
    wanted = [
        isotonic_regression(s, weights=w).x
        for s, w in zip(scores.reshape(30, 100), weight.reshape(30, 100), strict=True)
    ]
    assert np.abs(found.numpy() - np.concatenate(wanted)).max() < 1e-10


def test_levels_are_idempotent_non_expansive_and_follow_shifts():
    scores, _, weight, task = random_lists(10, 300)
    level = torch.randint(0, 5, task.shape) - 2
    project = LevelProjection(RankingLists.graded(level, task), 0.3, weight)
    once = project(scores)
    assert torch.allclose(project(once), once, rtol=0, atol=1e-11)
    other = scores + torch.randn_like(scores)
    assert (weight * (project(other) - once).square()).sum() <= (weight * (other - scores).square()).sum()
    assert torch.allclose(project(scores + 2.0), once + 2.0, rtol=0, atol=1e-11)


# Derivatives -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients(weighted):
    scores, positive, weight, task = random_lists(11, 12, largest=6)
    weight = weight if weighted else None
    level = torch.randint(0, 4, task.shape)
    for project in (
        OrderProjection(positive, task, 0.5, weight),
        LevelProjection(RankingLists.graded(level, task), 0.5, weight),
    ):
        inputs = scores.clone().requires_grad_()
        assert torch.autograd.gradcheck(project, (inputs,), eps=1e-7, atol=1e-5, check_forward_ad=True)
        jacobian, direction = project.jacobian(scores), torch.randn_like(scores)
        slope = (project(scores + 1e-7 * direction) - project(scores)) / 1e-7
        assert torch.allclose(jacobian.apply(direction), slope, atol=1e-5)


# Edges -------------------------------------------------------------------------------------------


def test_nothing_moves_where_there_is_nothing_to_order():
    one, none = torch.tensor([1.5]), torch.zeros(0)
    for positive in (True, False):
        assert torch.equal(project_order(one, torch.tensor([positive]), torch.tensor([3]), 1.0), one)
    empty = torch.zeros(0, dtype=torch.long)
    assert project_order(none, empty.bool(), empty, 1.0).shape == (0,)
    assert project_levels(none, empty, empty, 1.0).shape == (0,)
    scores = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    assert torch.equal(project_order(scores, torch.ones(3).bool(), torch.zeros(3).long(), 1.0), scores)
    assert torch.equal(project_order(scores, torch.zeros(3).bool(), torch.zeros(3).long(), 1.0), scores)


def test_equal_scores_stay_equal():
    scores = torch.full((6,), 0.1, dtype=torch.float64)
    positive, task = torch.tensor([True, False] * 3), torch.zeros(6, dtype=torch.long)
    assert torch.equal(project_order(scores, positive, task), scores)
    found = project_order(scores, positive, task, 1.0)
    assert torch.allclose(found, torch.where(positive, 0.6, -0.4).double())
    assert found[positive].unique().numel() == found[~positive].unique().numel() == 1


@pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-300, 5e-324])
def test_huge_and_tiny_scores(size):
    """Neither overflow nor loss, beside a list of ordinary size."""
    scores = torch.tensor([-1.0, 1.0, 0.0, 1.0, 0.25], dtype=torch.float64) * size
    scores = torch.cat([scores, torch.tensor([0.0, 3.0], dtype=torch.float64)])
    positive = torch.tensor([True, False, False, False, True, True, False])
    task = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    found = project_order(scores, positive, task)
    assert torch.isfinite(found).all()
    wanted = torch.tensor([0.3125, 0.3125, 0.0, 0.3125, 0.3125], dtype=torch.float64) * size
    assert torch.allclose(found[:5], wanted, rtol=1e-14, atol=5e-324)
    assert found[5:].tolist() == [1.5, 1.5]
    assert project_order(scores.neg(), ~positive, task)[5:].tolist() == [-1.5, -1.5]


def test_weights_of_any_size():
    scores, positive, task = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([True, False, False]), torch.zeros(3).long()
    usual = project_order(scores, positive, task, 0.0, torch.tensor([1.0, 2.0, 3.0]))
    for size in (1e-300, 1e300):
        weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) * size
        assert torch.allclose(project_order(scores, positive, task, 0.0, weight), usual)


def test_single_precision():
    scores, positive, weight, task = random_lists(12, 300)
    found = project_order(scores.float(), positive, task, 0.5, weight.float())
    assert found.dtype == torch.float32
    exact = project_order(scores.float().double(), positive, task, 0.5, weight.float())
    assert torch.allclose(found.double(), exact, rtol=3e-7, atol=1e-7)
    assert project_order([1, 0], torch.tensor([True, False]), [0, 0]).dtype == torch.float64


def test_the_input_is_left_alone():
    scores, positive, weight, task = random_lists(13, 20)
    before = scores.clone()
    project_order(scores, positive, task, 1.0, weight)
    assert torch.equal(scores, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.0, float("nan"), 1.0]}, r"scores\[1\]: expected a finite number, got nan"),
        ({"scores": [0.0, float("inf"), 1.0]}, r"scores\[1\]: expected a finite number, got inf"),
        ({"scores": [0.0, 1.0]}, r"scores: expected shape \(3,\).*got \(2,\)"),
        ({"scores": torch.zeros(3, dtype=torch.complex64)}, "scores: expected real numbers"),
        ({"positive": torch.tensor([1, -1, 1])}, "positive: expected booleans, got torch.int64"),
        ({"positive": torch.tensor([True])}, "positive: expected 3 entries, one for each of task, got 1"),
        ({"task": [0, 0.5, 1]}, r"task\[1\]: expected a whole number, got 0.5"),
        ({"task": [[0, 0, 1]]}, "task: expected a vector"),
        ({"margin": -1.0}, "margin: expected a finite number that is not negative, got -1.0"),
        ({"margin": "wide"}, "margin: expected .* got 'wide'"),
        ({"weight": [1.0, 0.0, 1.0]}, r"weight\[1\]: expected a positive finite number, got 0.0"),
        ({"weight": [1.0]}, "weight: expected 3 numbers"),
    ],
)
def test_bad_input(change, message):
    given = {"scores": [0.0, 1.0, 2.0], "positive": torch.tensor([True, False, True]), "task": [0, 0, 1], **change}
    with pytest.raises(InputError, match=message):
        project_order(**given)


def test_bad_levels():
    with pytest.raises(InputError, match=r"level\[0\]: expected a whole number, got 0.5"):
        project_levels([0.0, 1.0], [0.5, 1], [0, 0])
