import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

import mvgp
from mvgp import metrics
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph
from tests import randomness
from tests.metrics.reference import task_metrics

NAMES = ("precision", "recall", "average_precision", "ndcg")


def random_problem(rng, m, n, *, levels=None, positive=0.1, excluded=0.1):
    scores = rng.normal(size=(m, n)) if levels is None else rng.integers(levels, size=(m, n)).astype(float)
    kind = rng.choice(3, size=(m, n), p=[1 - positive - excluded, positive, excluded])
    return scores, (kind == 1).nonzero(), (kind == 2).nonzero()


def same(a, b):
    assert torch.equal(a.tasks, b.tasks)
    for name in ("auc", *NAMES):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), atol=0, rtol=0, equal_nan=True)


@settings(max_examples=150)
@given(st.data())
def test_equals_the_average_over_all_orders(data):
    """Ties, empty tasks, one item, k beyond the list, everything excluded."""
    m, n = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    scores = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=m, max_size=m))
    kinds = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=n, max_size=n), min_size=m, max_size=m))
    k = data.draw(st.integers(1, 8))
    positives, excluded = ((np.array(kinds) == kind).nonzero() for kind in (1, 2))
    found = metrics.ranking_scores(torch.tensor(scores), positives, exclude=excluded, k=k)
    for task in range(m):
        mine, gone = ({i for i in range(n) if kinds[task][i] == kind} for kind in (1, 2))
        area, curves = task_metrics(scores[task], mine, gone, k)
        torch.testing.assert_close(found.auc[task].item(), area, equal_nan=True)
        assert found.num_positives[task] == len(mine)
        assert found.num_candidates[task] == n - len(gone)
        for which, name in enumerate(NAMES):
            row = getattr(found, name)[task]
            if curves is None:
                assert row.isnan().all()
            else:
                np.testing.assert_allclose(row.numpy(), [line[which] for line in curves], atol=1e-12)


@pytest.mark.parametrize("levels", [None, 5])
def test_equals_scikit_learn(levels):
    scores, positives, _ = random_problem(randomness.numpy_generator(1), 20, 60, levels=levels)
    found = metrics.ranking_scores(scores, positives, k=60)
    truth = np.zeros_like(scores)
    truth[positives] = 1
    for task in range(20):
        assert found.auc[task].item() == pytest.approx(roc_auc_score(truth[task], scores[task]), abs=1e-14)
        for k in (1, 7, 60):
            assert found.ndcg[task, k - 1].item() == pytest.approx(ndcg_score(truth[[task]], scores[[task]], k=k))
        if levels is None:  # scikit-learn treats tied items as one step of the curve instead
            expected = average_precision_score(truth[task], scores[task])
            assert found.average_precision[task, -1].item() == pytest.approx(expected)


def test_excluding_is_the_same_as_leaving_out():
    rng = randomness.numpy_generator(2)
    scores, positives, excluded = random_problem(rng, 1, 30, levels=9)
    kept = np.setdiff1d(np.arange(30), excluded[1])
    smaller = (positives[0], np.searchsorted(kept, positives[1]))
    a = metrics.ranking_scores(scores, positives, exclude=excluded, k=40)
    assert a.num_candidates.tolist() == [len(kept)]
    same(a, metrics.ranking_scores(scores[:, kept], smaller, k=40))


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_do_not_matter(chunk):
    scores, positives, excluded = random_problem(randomness.numpy_generator(3), 17, 40, levels=12, positive=0.03)
    whole = metrics.ranking_scores(scores, positives, exclude=excluded, k=20)
    assert 0 < whole.num_ranked < 17
    same(whole, metrics.ranking_scores(scores, positives, exclude=excluded, k=20, chunk=chunk))


def test_chosen_rows_keep_their_order():
    scores, positives, excluded = random_problem(randomness.numpy_generator(4), 9, 30)
    whole = metrics.ranking_scores(scores, positives, exclude=excluded, k=5)
    rows = [7, 0, 3]
    part = metrics.ranking_scores(scores, positives, exclude=excluded, k=5, rows=rows)
    assert part.tasks.tolist() == rows
    # a row of the draw may have no positives, and then no figures
    torch.testing.assert_close(part.auc, whole.auc[rows], equal_nan=True)
    torch.testing.assert_close(part.ndcg, whole.ndcg[rows], equal_nan=True)


def test_forms_of_scores_and_positives_agree():
    rng = randomness.numpy_generator(5)
    scores, positives, excluded = random_problem(rng, 8, 25, levels=6)
    expected = metrics.ranking_scores(scores, positives, exclude=excluded, k=9)
    before = scores.copy()
    held_out = mvgp.ObservedMatrix(*positives, np.ones(len(positives[0])), (8, 25))
    # training labels: negatives among them stay candidates
    other = np.ones((8, 25), dtype=bool)
    other[positives] = other[excluded] = False
    negatives = tuple(index[::3] for index in other.nonzero())
    rows, cols = (np.concatenate([a, b]) for a, b in zip(excluded, negatives, strict=True))
    labels = np.concatenate([np.ones(len(excluded[0])), -np.ones(len(negatives[0]))])
    training = mvgp.ObservedMatrix(rows, cols, labels, (8, 25))
    same(expected, metrics.ranking_scores(torch.from_numpy(scores), held_out, exclude=training, k=9))
    same(expected, metrics.ranking_scores(scores.astype(np.float32), held_out, exclude=training, k=9))
    same(expected, metrics.ranking_scores(torch.from_numpy(scores).half(), held_out, exclude=training, k=9))
    same(expected, metrics.ranking_scores(scores.astype(int).tolist(), held_out, exclude=training, k=9))
    assert (scores == before).all()


def test_a_posterior_equals_its_scores():
    m, n = 7, 11
    ring = Graph(np.stack([np.arange(m), (np.arange(m) + 1) % m], 1), m)
    prior = mvgp.MatrixGP(DiffusionKernel(ring), gpytorch.kernels.RBFKernel(), col_inputs=torch.linspace(0, 3, n))
    rng = randomness.numpy_generator(6)
    _, positives, seen = random_problem(rng, m, n, positive=0.2, excluded=0.3)
    data = mvgp.ObservedMatrix(*seen, rng.choice([-1.0, 1.0], len(seen[0])), (m, n))
    posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
    dense = metrics.ranking_scores(posterior.scores(), positives, exclude=data, k=6)
    lazy = metrics.ranking_scores(posterior, positives, exclude=data, k=6, chunk=2)
    for name in ("auc", *NAMES):
        torch.testing.assert_close(getattr(dense, name), getattr(lazy, name), equal_nan=True)


def test_what_a_ranker_keeps_is_not_written_to():
    class Stored:
        shape = (2, 3)
        kept = torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]])

        def scores(self, rows=None):
            return self.kept

    found = metrics.ranking_scores(Stored(), ([0, 1], [0, 1]), exclude=([0], [2]), k=2)
    assert found.auc.tolist() == [1.0, 0.5]
    assert Stored.kept.tolist() == [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]]


def test_only_positives_left():
    found = metrics.ranking_scores([[1.0, 2.0, 3.0]], ([0, 0], [0, 2]), exclude=([0], [1]), k=4)
    assert found.auc.isnan().all()
    assert found.precision.tolist() == [[1.0, 1.0, 2 / 3, 0.5]]
    assert found.recall.tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert np.isnan(found.summary()["AUC"])


def test_no_positives_at_all():
    found = metrics.ranking_scores(np.zeros((2, 3)), ([], []), k=2)
    assert found.num_ranked == 0
    assert all(np.isnan(value) for value in found.summary().values())


def test_one_metric_at_a_time():
    scores, positives, excluded = random_problem(randomness.numpy_generator(7), 6, 30, levels=8)
    found = metrics.ranking_scores(scores, positives, exclude=excluded, k=10)
    torch.testing.assert_close(metrics.auc(scores, positives, exclude=excluded), found.auc, equal_nan=True)
    for name in NAMES:
        function = getattr(metrics, f"{name}_at")
        for k in (1, 10):
            value = function(scores, positives, k, exclude=excluded)
            torch.testing.assert_close(value, getattr(found, name)[:, k - 1], equal_nan=True)


def test_bad_input():
    scores = np.zeros((2, 3))
    good = ([0], [1])
    for bad, message in [
        (np.array([[0, np.nan, 0], [0, 0, 0]]), r"scores\[0, 1\].*finite.*nan"),
        (np.array([[0, -np.inf, 0], [0, 0, 0]]), "use exclude="),
        (np.zeros(3), r"\(M, N\).*\(3,\)"),
        (np.zeros((0, 3)), r"\(M, N\)"),
        (np.zeros((2, 3), dtype=complex), "real numbers"),
        ("text", "scores"),
    ]:
        with pytest.raises(InputError, match=message):
            metrics.ranking_scores(bad, good)
    for bad, message in [
        (([0], [3]), r"positives cols\[0\].*\[0, 3\)"),
        (([0, 1], [1]), "differ in length"),
        (([0, 0], [1, 1]), r"duplicate pair \(0, 1\)"),
        (mvgp.ObservedMatrix([0], [0], [1.0], (3, 3)), r"expected shape \(2, 3\)"),
        (np.ones((2, 3)), "scipy sparse matrix or a pair"),
    ]:
        with pytest.raises(InputError, match=message):
            metrics.ranking_scores(scores, bad)
    with pytest.raises(InputError, match=r"exclude.*\(0, 1\) in both"):
        metrics.ranking_scores(scores, good, exclude=([1, 0], [1, 1]))
    for options, message in [
        ({"k": 0}, "k: expected"),
        ({"k": 2.5}, "k: expected"),
        ({"chunk": 0}, "chunk: expected"),
        ({"rows": [1, 1]}, "distinct tasks, got 1"),
        ({"rows": [2]}, r"rows\[0\]"),
    ]:
        with pytest.raises(InputError, match=message):
            metrics.ranking_scores(scores, good, **options)


class WrongShape:
    shape = (2, 3)

    def scores(self, rows=None):
        return torch.zeros(1, 1)


def test_a_ranker_with_the_wrong_shape():
    with pytest.raises(InputError, match=r"scores\(rows\): expected \(1, 3\), got \(1, 1\)"):
        metrics.ranking_scores(WrongShape(), ([0], [1]))
