"""The ordered simplex: against isotonic regression, against its corners, and at its edges."""

import numpy as np
import pytest
import torch

from mvgp.errors import InputError
from mvgp.likelihoods import RankingLists, SimplexProjection, project_ordered_simplex
from tests import randomness
from tests.likelihoods.instances import random_lists, simplex_projection, simplex_slopes


@pytest.mark.parametrize("seed", range(25))
def test_equals_isotonic_regression_and_nothing_is_nearer(seed):
    rng = randomness.numpy_generator(seed)
    size = int(rng.integers(1, 14))
    scores, positive = rng.normal(size=size) * rng.choice([0.05, 1.0, 5.0]), rng.random(size) < rng.choice([0.2, 0.6])
    total = float(rng.choice([1.0, 3.0]))
    margin = float(rng.choice([0.0, 0.5 * total / size, total / max(positive.sum(), 1)]))
    task = torch.zeros(size, dtype=torch.long)
    found = project_ordered_simplex(torch.from_numpy(scores), torch.from_numpy(positive), task, total, margin)
    assert np.abs(found.numpy() - simplex_projection(scores, positive, total, margin)).max() < 1e-12
    assert simplex_slopes(scores, found.numpy(), positive, total, margin).max() < 1e-12


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_optimality_on_thousands_of_lists(margin):
    """In the set, and no feasible direction from it leads closer: checked against other members of the set."""
    scores, positive, _, task = random_lists(0, 3000)
    project = SimplexProjection(RankingLists.bipartite(positive, task), 1.0, margin)
    lists, found = project.lists, project(scores)
    assert (found >= 0).all()
    sums = torch.zeros(lists.num_lists, dtype=torch.float64).index_add_(0, lists.list_of, found)
    assert torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=1e-12)
    for seed in range(5):
        member = project(torch.randn(len(task), dtype=torch.float64, generator=randomness.generator(seed)))
        slope = (scores - found) * (member - found)  # <= 0 summed over a list: the variational inequality
        assert (torch.zeros_like(sums).index_add_(0, lists.list_of, slope) <= 1e-10).all()


def test_a_projection_is_idempotent_and_non_expansive():
    scores, positive, _, task = random_lists(1, 500)
    project = SimplexProjection(RankingLists.bipartite(positive, task), 2.0, 0.1)
    once = project(scores)
    assert torch.allclose(project(once), once, rtol=0, atol=1e-12)
    other = scores + torch.randn_like(scores)
    assert (project(other) - once).square().sum() <= (other - scores).square().sum()
    project.reset_warm_start()
    assert torch.allclose(project(scores), once, rtol=0, atol=1e-13)


def test_a_common_shift_changes_nothing():
    """The sum is fixed, so a shift of all scores of a task is orthogonal to the set."""
    scores, positive, _, task = random_lists(2, 100)
    found = project_ordered_simplex(scores, positive, task)
    assert torch.allclose(project_ordered_simplex(scores + 3.0, positive, task), found, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_gradients():
    scores, positive, _, task = random_lists(3, 10, largest=6)
    project = SimplexProjection(RankingLists.bipartite(positive, task), 1.0, 0.05)
    inputs = (scores * 0.1).requires_grad_()
    assert torch.autograd.gradcheck(project, (inputs,), eps=1e-7, atol=1e-5, check_forward_ad=True)


def test_one_kind_of_label_one_item_and_none():
    task = torch.zeros(3, dtype=torch.long)
    scores = torch.tensor([0.5, 0.2, -1.0], dtype=torch.float64)
    for positive in (torch.ones(3).bool(), torch.zeros(3).bool()):
        found = project_ordered_simplex(scores, positive, task, margin=0.9)  # no pair to keep apart: no role for it
        assert torch.allclose(found, torch.tensor([0.65, 0.35, 0.0]).double())
    assert project_ordered_simplex(scores[:1], torch.tensor([True]), task[:1]).tolist() == [1.0]
    assert project_ordered_simplex(scores[:0], task[:0].bool(), task[:0]).shape == (0,)


def test_a_margin_that_takes_the_whole_total():
    scores, positive, task = (
        torch.tensor([0.3, 0.9, 0.1, 5.0]),
        torch.tensor([True, True, True, False]),
        torch.zeros(4).long(),
    )
    found = project_ordered_simplex(scores.double(), positive, task, total=0.3, margin=0.1)
    assert torch.allclose(found, torch.tensor([0.1, 0.1, 0.1, 0.0]).double())


@pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-300, 5e-324])
def test_huge_and_tiny_scores(size):
    scores = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64) * size
    found = project_ordered_simplex(scores, torch.tensor([True, False, True]), torch.zeros(3).long())
    wanted = [0.0, 0.0, 1.0] if size > 1 else [1 / 3, 1 / 3, 1 / 3]
    assert torch.allclose(found, torch.tensor(wanted).double())


def test_single_precision():
    scores, positive, _, task = random_lists(4, 300)
    found = project_ordered_simplex(scores.float(), positive, task)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), project_ordered_simplex(scores, positive, task), atol=1e-5)


def test_an_empty_set_is_refused_by_name():
    positive, task = torch.tensor([True, False, True, True, False]), torch.tensor([4, 4, 9, 9, 9])
    with pytest.raises(
        InputError, match="task 9: the set is empty, 2 positives with margin 0.6 need a total of at least 1.2"
    ):
        project_ordered_simplex(torch.zeros(5), positive, task, margin=0.6)
    with pytest.raises(InputError, match="total: expected a positive finite number, got 0.0"):
        project_ordered_simplex(torch.zeros(5), positive, task, total=0.0)
    with pytest.raises(InputError, match="two levels"):
        SimplexProjection(RankingLists.graded([0, 1, 2], [0, 0, 0]))
    with pytest.raises(InputError, match=r"scores\[0\]: expected a finite number, got nan"):
        project_ordered_simplex(torch.tensor([torch.nan] * 5), positive, task)
