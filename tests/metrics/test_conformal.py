"""Conformal lengths: the guarantee itself, exactly, and ranks against a dense oracle."""

import math

import gpytorch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.metrics.conformal import conformal, conformal_length, draw_one, group_names, link_ranks, listed
from tests.randomness import generator, seed

LEVELS = st.sampled_from([0.1, 0.5, 0.7, 0.8, 0.9, 0.95, 1 / 3])


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), LEVELS)
def test_any_of_exchangeable_ranks_is_covered_often_enough(ranks, level):
    """Exchangeable: given the n + 1 values, each of them is the new one with the same probability. All are tried."""
    covered = [
        rank <= conformal_length(ranks[:at] + ranks[at + 1 :] or torch.zeros(0), level) for at, rank in enumerate(ranks)
    ]
    assert sum(covered) / len(ranks) >= level - 1e-12


@given(st.integers(1, 60), LEVELS)
def test_and_not_much_too_often_where_ranks_differ(count, level):
    ranks = list(range(1, count + 1))
    covered = [rank <= conformal_length(ranks[:at] + ranks[at + 1 :], level) for at, rank in enumerate(ranks)]
    assert sum(covered) / count <= level + 1 / count + 1e-12


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 9), LEVELS)
def test_a_shorter_list_would_not_do(ranks, shorter, level):
    """The length is the shortest with (n + 1) level ranks inside."""
    length = conformal_length(torch.tensor(ranks), level)
    inside = sum(rank <= shorter for rank in ranks)
    assert (shorter >= length) == (inside >= (len(ranks) + 1) * level - 1e-9)


def test_few_ranks_say_nothing():
    assert conformal_length([], 0.5) == math.inf
    assert conformal_length(range(1, 9), 0.9) == math.inf
    assert conformal_length(range(1, 10), 0.9) == 9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_places_are_those_of_a_stable_sort(dtype):
    scores = (torch.randn(7, 50, generator=generator(0)) * 2).round().to(dtype) / 2  # many ties
    scores[0, :5] = -0.0
    known = (torch.rand(7, 50, generator=generator(1)) < 0.2).nonzero(as_tuple=True)
    wanted = torch.rand(7, 50, generator=generator(2)) < 0.3
    wanted[known], wanted[3] = False, False  # a row without any
    order, ranks = listed(scores, known, wanted.nonzero(as_tuple=True), 10)
    closed = scores.clone()
    closed[known] = -torch.inf
    expected = closed.argsort(dim=1, descending=True, stable=True)
    assert torch.equal(order, expected[:, :10])
    places = expected.argsort(1)
    assert torch.equal(ranks, places[wanted] + 1)


def test_ranks_of_links():
    scores = torch.randn(6, 30, generator=generator(3))
    mask = torch.rand(6, 30, generator=generator(4))
    held_out, known = (mask < 0.1).nonzero(as_tuple=True), (mask > 0.8).nonzero(as_tuple=True)
    found = link_ranks(scores, held_out, known=known)
    for row, col, rank, count, left in zip(*held_out, found.ranks, found.known, found.candidates, strict=True):
        open_ = mask[row] <= 0.8
        assert rank == 1 + int((scores[row][open_] > scores[row, col]).sum())
        assert (count, left) == (int((~open_).sum()), int(open_.sum()))


def test_one_link_of_each_row_is_drawn_and_any_can_be():
    units = torch.tensor([4, 4, 4, 0, 0, 2])
    drawn = [draw_one(units, seed(number)) for number in range(200)]
    assert all(units[places].tolist() == [4, 0, 2] for places in drawn)
    assert set(torch.cat(drawn).tolist()) == set(range(6))  # (2/3)^200 that one of them never comes


def test_groups_have_their_own_lengths():
    scores = -torch.arange(100.0).expand(40, 100)  # the rank of column c is c + 1, less known ones before it
    known = [(row, 99 - at) for row in range(20, 40) for at in range(3)]
    held_out = [(row, row % 20) for row in range(40)]
    found = conformal(scores, tuple(zip(*held_out, strict=True)), known=tuple(zip(*known, strict=True)), level=0.9)
    assert found.num_rows == (20, 0, 20, 0)
    assert found.lengths == (19, math.inf, 19, math.inf)
    assert (found.of(0), found.of(5), found.of(6)) == (19, 19, math.inf)
    assert "0 rows are too few" in str(found)
    assert conformal(scores, tuple(zip(*held_out, strict=True)), edges=(), level=0.5).num_rows == (40,)


def test_names_of_groups():
    assert group_names((1, 2, 6)) == ("no known link", "1 known link", "2 to 5", "6 and more")
    assert group_names((2, 3)) == ("0 to 1", "2 known links", "3 and more")


def test_a_posterior_answers():
    inputs = {"row_inputs": torch.arange(6.0), "col_inputs": torch.arange(9.0)}
    prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), gpytorch.kernels.RBFKernel(), **inputs)
    data = mvgp.ObservedMatrix([0, 1, 2], [0, 1, 5], [3.0, -3.0, 1.0], (6, 9))
    posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
    held_out = ([0, 1, 3, 4, 5], [1, 2, 3, 4, 5])
    found = posterior.conformal(held_out, known=data, level=0.6, edges=())
    assert found.lengths == conformal(posterior.scores(), held_out, known=data, level=0.6, edges=()).lengths


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: conformal_length([1, 2], 1.0), "level: expected"),
        (lambda: conformal_length([0, 2], 0.5), "ranks: expected finite numbers from 1"),
        (lambda: conformal(torch.eye(3), ([0], [1]), known=([0], [1])), "in both"),
        (lambda: conformal(torch.eye(3), ([0], [1]), edges=(2, 1)), "ascending"),
        (lambda: conformal(torch.eye(3), ([0], [7])), "held_out"),
        (lambda: conformal(torch.full((2, 2), torch.nan), ([0], [1])), "finite"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()
