import numpy as np
import pytest
import torch

from mvgp import metrics
from mvgp.errors import InputError
from tests import randomness


def result(k=30):
    rng = randomness.numpy_generator(0)
    positives = (np.array([0, 0, 1, 3, 3, 3]), np.array([1, 8, 4, 0, 1, 2]))
    return metrics.ranking_scores(rng.normal(size=(4, 40)), positives, k=k)


def test_averages_leave_out_tasks_without_positives():
    found = result()
    ranked = [0, 1, 3]
    assert found.num_ranked == 3
    means = found.summary()
    assert list(means) == ["AUC", "P@10", "R@10", "MAP@10", "nDCG@10", "P@30", "R@30", "MAP@30", "nDCG@30"]
    assert means["AUC"] == pytest.approx(found.auc[ranked].mean().item())
    assert means["MAP@10"] == pytest.approx(found.average_precision[ranked, 9].mean().item())
    torch.testing.assert_close(found.curves()["nDCG"], found.ndcg[ranked].mean(0))


def test_metrics_by_name():
    found = result()
    for name, expected in [
        ("auc", found.auc),
        ("P@3", found.precision[:, 2]),
        ("r@30", found.recall[:, 29]),
        ("AP@5", found.average_precision[:, 4]),
        ("MAP@5", found.average_precision[:, 4]),
        ("nDCG@1", found.ndcg[:, 0]),
    ]:
        torch.testing.assert_close(found.per_task(name), expected, equal_nan=True)
    for name, message in [("F1", "'AUC', or P, R"), ("P@31", "k from 1 to 30"), ("P@0", "k from 1 to 30")]:
        with pytest.raises(InputError, match=message):
            found.per_task(name)


def test_printed_table():
    text = str(result())
    assert text.startswith("3 tasks with 6 held-out positives\nAUC  0.")
    assert "@1    @10    @30" in text
    assert len(text.splitlines()) == 7
    assert repr(result(1)).startswith("RankingScores(3 tasks, AUC 0.")
    assert list(result(1).summary()) == ["AUC", "P@1", "R@1", "MAP@1", "nDCG@1"]
