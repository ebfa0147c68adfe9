"""Copies of posteriors, and of what they answer: deep, shallow and pickled ones give the same numbers."""

import copy
import pickle

import pytest
import torch

import mvgp
from mvgp.posteriors import FullPosterior
from tests.storage import examples

pytestmark = pytest.mark.usefixtures("one_thread")

HOW = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda found: pickle.loads(pickle.dumps(found))}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", examples.POSTERIORS)
def test_posteriors(name, how):
    posterior = examples.POSTERIORS[name](torch.float64)
    before = examples.bits(HOW[how](posterior))  # of a copy of one that was never asked
    assert before == examples.bits(posterior)
    assert examples.bits(HOW[how](posterior)) == before  # and of one with all its caches


def test_a_deep_copy_shares_no_coefficients():
    posterior = examples.POSTERIORS["full"](torch.float64)
    scores, copied = posterior.scores(), copy.deepcopy(posterior)
    assert type(copied) is FullPosterior
    assert copied.coefficients.values.data_ptr() != posterior.coefficients.values.data_ptr()
    copied.coefficients.values.zero_()
    assert torch.equal(posterior.scores(), scores)


def answers(posterior):
    rows, cols = [0, 1, 2], [3, 4, 5]
    yield posterior.top(2, 3, num_samples=20)
    yield posterior.next_tests(1, 2, 3, num_samples=20)
    yield posterior.joint(rows, cols)
    yield posterior.variances([0])
    yield posterior.solve_report
    yield posterior.coefficients
    yield posterior.conditional
    yield posterior.prior


@pytest.mark.parametrize("how", HOW)
def test_what_they_answer(how):
    for found in answers(examples.POSTERIORS["full, cg"](torch.float64)):
        copied = HOW[how](found)
        assert type(copied) is type(found)
        for name, value in vars(found).items():
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                assert torch.equal(getattr(copied, name), value), name


@pytest.mark.parametrize("how", HOW)
def test_lazy_distributions_and_other_rankers(how):
    posterior = examples.POSTERIORS["full, cg"](torch.float64)
    found = posterior([0, 1], [2, 3])
    copied = HOW[how](found)
    assert torch.equal(copied.mean, found.mean)
    assert torch.equal(copied.covariance_matrix, found.covariance_matrix)
    ranker = mvgp.PairwiseSVM(examples.graphs()).fit(examples.labelled())
    assert torch.equal(HOW[how](ranker).scores(), ranker.scores())
