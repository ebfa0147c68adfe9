"""Sums of Kronecker terms against dense algebra."""

import copy
import pickle
import unittest

import gpytorch
import pytest
import torch
from linear_operator.operators import SumLinearOperator

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph
from mvgp.linalg import KroneckerLinearOperator, PairIndex, PairLinearOperator
from mvgp.linalg.pair_operator import CovarianceSumLinearOperator
from mvgp.priors import ConstantMean, MatrixMean, PopularityMean, RowBiasMean, SumGP, SumMean, ZeroMean
from tests import randomness
from tests.linalg.test_operators import OperatorTestCase, covariance
from tests.oracles import assert_moments, random_edges

M, N = 4, 7
ROWS = Graph(random_edges(randomness.numpy_generator(0), M, 5), M)
COLS = Graph(random_edges(randomness.numpy_generator(1), N, 9), N)
INPUTS = torch.rand(N, 2, generator=randomness.generator(2)).double()


def make_terms(means=(None, None, None)):
    graph = DiffusionKernel(COLS, 0.8, 0.5)
    return [
        mvgp.MatrixGP(DiffusionKernel(ROWS, 0.6), graph, mean=means[0]),
        mvgp.MatrixGP(DiffusionKernel(ROWS, 2.0, 0.1), gpytorch.kernels.RBFKernel(), col_inputs=INPUTS, mean=means[1]),
        mvgp.MatrixGP(ConstantKernel(M, 0.3), graph, mean=means[2]),  # shares its kernel with the first term
    ]


def dense(prior):
    return sum(
        torch.kron(term.row_axis.covariance().to_dense(), term.col_axis.covariance().to_dense()) for term in prior.terms
    )


def test_a_sum_is_written_with_plus():
    a, b, c = make_terms()
    assert a.terms == (a,)
    assert (a + b).terms == (a, b)
    for whole in (a + b + c, a + (b + c), sum([a, b, c]), (a + b) + c, SumGP(a, b + c)):
        assert isinstance(whole, SumGP)
        assert whole.terms == (a, b, c)
        assert whole.shape == (M, N)
        assert whole.dtype == torch.float64
    assert sum([a]) is a
    assert sum([a + b]).terms == (a, b)
    for other in (1, "x", torch.eye(2)):
        for prior in (a, a + b):
            with pytest.raises(TypeError):
                prior + other
            with pytest.raises(TypeError):
                other + prior


def test_covariance_diagonal_and_mean_are_sums():
    prior = sum(make_terms((ConstantMean(0.3), None, RowBiasMean(torch.arange(4.0)))))
    rows, cols = torch.tensor([3, 0, 3, 2]), torch.tensor([1, 6, 1, 3])
    joint, cells = prior(rows, cols), torch.tensor([3, 0, 3, 2]) * N + torch.tensor([1, 6, 1, 3])
    op = joint.lazy_covariance_matrix
    assert isinstance(op, SumLinearOperator)
    assert all(isinstance(term, PairLinearOperator) for term in op.linear_ops)
    torch.testing.assert_close(op.to_dense(), dense(prior)[cells][:, cells])
    torch.testing.assert_close(op.diagonal(), dense(prior).diagonal()[cells])
    torch.testing.assert_close(joint.variance, dense(prior).diagonal()[cells])
    rhs = torch.rand(4, 2, generator=randomness.generator(3)).double()
    torch.testing.assert_close(op @ rhs, dense(prior)[cells][:, cells] @ rhs)
    assert joint.mean.tolist() == [3.3, 0.3, 3.3, 2.3]
    whole = prior.covariance()
    assert all(isinstance(term, KroneckerLinearOperator) for term in whole.linear_ops)
    torch.testing.assert_close(whole.to_dense(), dense(prior))
    torch.testing.assert_close(whole.diagonal(), dense(prior).diagonal())
    torch.testing.assert_close(prior.mean_matrix(), 0.3 + torch.arange(4.0).double().unsqueeze(1).expand(M, N))


def test_the_mean_is_the_plain_sum_of_those_that_are_not_zero():
    a, b, c = make_terms((None, ConstantMean(1.0), PopularityMean([1.0] * N, 2.0)))
    assert isinstance((a + a).mean_module, ZeroMean)
    assert (a + b).mean_module is b.mean_module
    mean = (a + b + c).mean_module
    assert isinstance(mean, SumMean)
    known = torch.tensor([0, 1]), torch.tensor([2, 2])
    level = 1 + 2 * torch.log(torch.tensor(2.0).double())
    torch.testing.assert_close(mean(*known), level.expand(2))
    torch.testing.assert_close(mean.block(*known).expand(2, 2), level.expand(2, 2))
    torch.testing.assert_close((b + b).mean_module.at(None, None), torch.tensor(2.0).double())
    with pytest.raises(InputError, match="each of 3 columns, got 7"):
        mean.check_shape((4, 3))


@pytest.mark.slow
def test_samples_are_exact():
    prior = sum(make_terms((ConstantMean(2.0), None, ConstantMean(-1.0)))).snapshot()
    generator, truth, mean = randomness.generator(0), dense(prior), torch.ones(M * N).double()
    samples = torch.stack([prior.sample(generator).flatten() for _ in range(4000)])
    assert_moments(samples, mean, truth)
    cells = torch.tensor([3, 17, 27])
    joint = prior(cells // N, cells % N).sample(torch.Size([20_000]))
    assert_moments(joint, mean[cells], truth[cells][:, cells])
    assert_moments(prior.covariance().zero_mean_mvn_samples(20_000), 0 * mean, truth)


def test_gradients_flow_to_every_term():
    prior = sum(make_terms((ConstantMean(0.3), None, ConstantMean(0.1))))
    rows, cols = torch.tensor([0, 1, 3]), torch.tensor([2, 2, 0])
    joint = prior(rows, cols)
    (joint.lazy_covariance_matrix.matmul(torch.ones(3, 1).double()).sum() + joint.mean.sum()).backward()
    found = {name: p.grad.clone() for name, p in prior.named_parameters() if p.grad is not None}
    assert len(found) == 10
    prior.zero_grad()
    cells = rows * N + cols
    (dense(prior)[cells][:, cells].sum() + prior.mean_matrix()[rows, cols].sum()).backward()
    for name, p in prior.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(found[name], p.grad)


def test_state_precision_copies_and_pickle():
    prior = sum(make_terms((None, ConstantMean(1.0), None)))
    assert {"summands.0.row_axis.kernel.raw_time", "summands.1.mean_module.raw_constant"} <= set(prior.state_dict())
    assert len(list(prior.parameters())) == len({id(p) for p in prior.parameters()})
    other = sum(make_terms((None, ConstantMean(0.0), None)))
    prior.terms[0].row_kernel.time = 3.0
    other.load_state_dict(prior.state_dict())
    torch.testing.assert_close(dense(other), dense(prior))
    again = pickle.loads(pickle.dumps(prior))
    torch.testing.assert_close(dense(again), dense(prior))
    kept = prior.snapshot()
    assert not any(p.requires_grad for p in kept.parameters())
    assert kept.terms[0].col_kernel is kept.terms[2].col_kernel  # what is shared stays shared
    prior.terms[0].row_kernel.time = 0.1
    torch.testing.assert_close(dense(kept), dense(again).detach())
    single = copy.deepcopy(kept).to(torch.float32)
    assert single.dtype == torch.float32
    assert single.covariance().dtype == torch.float32
    assert single.mean_module.zero.dtype == torch.float32


def test_inputs_with_gradients_are_refused_where_a_posterior_would_lose_them():
    inputs = INPUTS.clone().requires_grad_()
    term = mvgp.MatrixGP(DiffusionKernel(ROWS), gpytorch.kernels.RBFKernel(), col_inputs=inputs)
    prior = make_terms()[0] + term
    with pytest.raises(InputError, match=r"terms\[1\]\.col_inputs"):
        prior.refuse_gradients()
    assert not any(b.requires_grad for b in prior.snapshot().buffers())
    (gradient,) = torch.autograd.grad(prior([0, 0], [0, 1]).lazy_covariance_matrix.to_dense().sum(), inputs)
    assert gradient.any()


def test_bad_input_is_refused():
    a = make_terms()[0]
    other = mvgp.MatrixGP(DiffusionKernel(ROWS), DiffusionKernel(ROWS))
    single = mvgp.MatrixGP(DiffusionKernel(ROWS), DiffusionKernel(COLS), dtype=torch.float32)
    for call, message in (
        (lambda: a + other, r"terms\[1\]: expected shape \(4, 7\) as in the first term, got \(4, 4\)"),
        (lambda: a + single, r"terms\[1\]: expected torch.float64"),
        (lambda: SumGP(), "at least one prior"),
        (lambda: SumGP(a, ROWS), r"terms\[1\]: expected mvgp.MatrixGP"),
        (lambda: SumMean(), "at least one"),
        (lambda: SumMean(ROWS), r"means\[0\]"),
        (lambda: (a + a)([0, 4], [0, 0]), r"rows\[1\]: expected a position in \[0, 4\)"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert issubclass(SumMean, MatrixMean)


class TestOperator(OperatorTestCase, unittest.TestCase):
    """The contract of linear_operator."""

    seed = randomness.seed(0)
    should_test_sample = True

    def create_linear_op(self):
        pairs = PairIndex(torch.tensor([0, 1, 1, 2, 2]), torch.tensor([1, 0, 1, 0, 2]), (3, 3))
        kernels = [covariance(3, seed).to(torch.get_default_dtype()).requires_grad_() for seed in range(4)]
        return CovarianceSumLinearOperator(
            PairLinearOperator(*kernels[:2], pairs), PairLinearOperator(*kernels[2:], pairs)
        )

    def evaluate_linear_op(self, op):
        return sum(term.to_dense() for term in op.linear_ops)
