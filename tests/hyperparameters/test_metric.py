import math

import gpytorch
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import split_pairs, with_negatives
from mvgp.hyperparameters.records import AveragedRanker, resolve_metric, score_over_rows, score_over_tasks
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.metrics import ranking_scores
from tests import randomness
from tests.hyperparameters.planted import M, N, gaussian_model, make_links, make_numbers

RANKING = BipartiteRankingLikelihood()
GAUSSIAN = gpytorch.likelihoods.GaussianLikelihood().double()


class Scores:
    """A ranker with random scores."""

    shape = (M, N)

    def scores(self, rows=None):
        whole = torch.randn(M, N, generator=randomness.generator(0)).double()
        return whole if rows is None else whole[rows]


@pytest.mark.parametrize("name", ["MAP@100", "AUC", "nDCG@7", "P@3", "r@20"])
def test_ranking_metrics_are_those_of_the_metrics(name):
    split = split_pairs(make_links(), share=0.3)[0]
    found = resolve_metric(name, RANKING, split.train)(Scores(), split.train, split.held_out)
    truth = ranking_scores(Scores(), split.held_out, exclude=split.train)
    assert found.value == pytest.approx(float(torch.nanmean(truth.per_task(name))), abs=1e-14)
    assert found.tasks.tolist() == split.held_out.rows.unique().tolist()
    torch.testing.assert_close(found.per_task, truth.per_task(name)[found.tasks])
    assert found.standard_error == pytest.approx(found.per_task.std().item() / math.sqrt(len(found.tasks)))


def test_of_labels_the_positives_are_scored_and_all_entries_leave_the_training_part():
    labelled = with_negatives(make_links())
    split = split_pairs(labelled, share=0.3)[0]
    assert {-1.0, 1.0} == set(split.held_out.values.tolist())
    found = resolve_metric("AUC", RANKING, labelled)(Scores(), split.train, split.held_out)
    positive = split.held_out.values > 0
    pairs = split.held_out.rows[positive], split.held_out.cols[positive]
    kept = split.train.values > 0
    truth = ranking_scores(Scores(), pairs, exclude=(split.train.rows[kept], split.train.cols[kept]))
    assert found.value == pytest.approx(truth.summary()["AUC"])


@pytest.mark.parametrize("weighted", [False, True])
def test_gaussian_metrics_follow_their_definitions(weighted):
    data = make_numbers()
    if weighted:
        weights = 0.5 + torch.arange(len(data)).double() / len(data)
        data = mvgp.ObservedMatrix(data.rows, data.cols, data.values, data.shape, weights=weights)
    split, model = split_pairs(data, share=0.3)[0], gaussian_model(strength=0.1)
    posterior, held_out = model.fit(split.train), split.held_out
    weights = torch.ones(len(held_out)).double() if held_out.weights is None else held_out.weights
    mean = posterior.mean(held_out.rows, held_out.cols)
    error = (held_out.values - mean).square()
    found = resolve_metric("-mse", model.likelihood, data)(posterior, split.train, held_out)
    assert found.value == pytest.approx(-float((weights * error).sum() / weights.sum()))
    variance = posterior.variance(held_out.rows, held_out.cols) + 0.25 / weights
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(held_out.values)
    metric = resolve_metric("log density", model.likelihood, data)
    for _ in range(2):  # the second time the variance is there already
        assert metric(posterior, split.train, held_out).value == pytest.approx(float(density.mean()))
    other = metric(posterior, split.train, split.train)
    assert other.value != pytest.approx(float(density.mean()))


def test_functions_may_return_a_number_or_one_for_each_task():
    split = split_pairs(make_links(), share=0.3)[0]

    def judged(result):
        return resolve_metric(lambda *_: result, RANKING, split.train)(Scores(), split.train, split.held_out)

    assert judged(0.5).value == judged(torch.tensor(0.5)).value == 0.5
    assert math.isnan(judged(0.5).standard_error)
    found = judged(np.array([1.0, np.nan, 3.0]))
    assert (found.value, found.standard_error) == (2.0, pytest.approx(1.0))
    assert found.tasks.tolist() == [0, 2]


def test_standard_errors_of_weighted_averages():
    rows = torch.tensor([0, 0, 1, 2, 2, 2])
    values = torch.tensor([1.0, 3.0, 4.0, 0.0, 1.0, 2.0]).double()
    found = score_over_rows("x", rows, values, torch.ones(6).double())
    assert found.value == pytest.approx(float(values.mean()))
    assert found.per_task.tolist() == [2.0, 4.0, 1.0]
    left = torch.tensor([4.0, 4.0, 3.0]) - found.value * torch.tensor([2.0, 1.0, 3.0])  # sums minus what was expected
    assert found.standard_error == pytest.approx(math.sqrt(float(left.square().sum()) * 3 / 2) / 6)
    assert math.isnan(score_over_tasks("x", torch.tensor([3]), torch.tensor([1.0])).standard_error)


def test_averaged_scores():
    class Half(Scores):
        def scores(self, rows=None):
            return 0.5 * super().scores(rows)

    found = AveragedRanker([Scores(), Half()])
    torch.testing.assert_close(found.scores([2, 1]), 0.75 * Scores().scores([2, 1]))
    assert found.scores().shape == found.shape == (M, N)
    with pytest.raises(InputError, match="at least one"):
        AveragedRanker([])


NUMBERS, LINKS = make_numbers(), make_links()
BAD = [
    (lambda: resolve_metric("MAP", RANKING, LINKS), "metric: expected 'AUC'.*got 'MAP'"),
    (lambda: resolve_metric("P@0", RANKING, LINKS), "got 'P@0'"),
    (lambda: resolve_metric(3, RANKING, LINKS), "expected a name or a function"),
    (lambda: resolve_metric("MAP@100", GAUSSIAN, NUMBERS), "different numbers and the likelihood is Gaussian"),
    (lambda: resolve_metric("-MSE", RANKING, NUMBERS), "needs a Gaussian likelihood"),
    (lambda: resolve_metric("log density", GAUSSIAN, LINKS), "needs an ObservedMatrix"),
    (lambda: resolve_metric("-MSE", GAUSSIAN, NUMBERS)(None, NUMBERS, LINKS), "ObservedMatrix held out"),
    (lambda: resolve_metric(lambda *_: math.nan, RANKING, LINKS)(0, LINKS, LINKS), "finite number, got nan"),
    (lambda: resolve_metric(lambda *_: [math.nan], RANKING, LINKS)(0, LINKS, LINKS), "none of 1"),
    (lambda: resolve_metric(lambda *_: [math.inf], RANKING, LINKS)(0, LINKS, LINKS), "finite value, got inf"),
    (lambda: resolve_metric(lambda *_: [[1.0]], RANKING, LINKS)(0, LINKS, LINKS), r"got shape \(1, 1\)"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_fold_without_a_positive_is_refused():
    negative = mvgp.ObservedMatrix([0, 1], [0, 1], [-1.0, -1.0], (M, N))
    with pytest.raises(InputError, match="expected a held-out positive, got none among 2"):
        resolve_metric("AUC", RANKING, negative)(Scores(), LINKS, negative)
