import pickle

import gpytorch
import numpy as np
import pytest
import torch
from linear_operator.operators import LinearOperator

import mvgp
from mvgp.errors import InputError, SizeError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.linalg import KroneckerLinearOperator, PairLinearOperator, root
from mvgp.linalg.chebyshev import ChebyshevLinearOperator
from mvgp.priors import ConstantMean, GivenMean, MatrixMean, PopularityMean, RowBiasMean
from tests import randomness
from tests.oracles import assert_moments, random_edges

M, N = 5, 8
ROWS = Graph(random_edges(randomness.numpy_generator(0), M, 6), M)
COLS = Graph(random_edges(randomness.numpy_generator(1), N, 12), N)


def make(**options):
    return mvgp.MatrixGP(
        DiffusionKernel(ROWS, 0.6), DiffusionKernel(COLS, 0.8, 0.5, method="chebyshev", tolerance=1e-13), **options
    )


def dense(prior):
    with torch.no_grad():
        return torch.kron(prior.row_axis.covariance().to_dense(), prior.col_axis.covariance().to_dense())


def test_pairs_and_the_whole_grid_have_the_kronecker_covariance():
    prior = make(mean=RowBiasMean(torch.arange(5.0)))
    rows, cols = torch.tensor([4, 0, 4, 2]), torch.tensor([1, 7, 1, 3])
    joint = prior(rows, cols)
    assert isinstance(joint, gpytorch.distributions.MultivariateNormal)
    assert isinstance(joint.lazy_covariance_matrix, PairLinearOperator)
    cells = rows * N + cols
    torch.testing.assert_close(joint.covariance_matrix, dense(prior)[cells][:, cells])
    torch.testing.assert_close(joint.variance, dense(prior).diagonal()[cells])
    assert joint.mean.tolist() == [4.0, 0.0, 4.0, 2.0]
    whole = prior.covariance()
    assert isinstance(whole, KroneckerLinearOperator)
    assert isinstance(whole.linear_ops[1], ChebyshevLinearOperator)
    torch.testing.assert_close(whole.to_dense(), dense(prior))
    torch.testing.assert_close(whole.diagonal(), dense(prior).diagonal())
    torch.testing.assert_close(prior.mean_matrix(), torch.arange(5.0).double().unsqueeze(1).expand(5, 8))


@pytest.mark.slow
def test_samples_are_exact():
    prior = make(mean=ConstantMean(2.0))
    generator = randomness.generator(0)
    samples = torch.stack([prior.sample(generator).flatten() for _ in range(4000)])
    truth, mean = dense(prior).detach(), torch.full((M * N,), 2.0).double()
    assert_moments(samples.detach(), mean, truth)
    cells = torch.tensor([3, 17, 39])
    joint = prior(cells // N, cells % N).sample(torch.Size([20_000]))
    assert_moments(joint, mean[cells], truth[cells][:, cells])
    whole = prior.covariance().zero_mean_mvn_samples(20_000)
    assert_moments(whole.detach(), 0 * mean, truth)


def test_large_samples_go_through_the_roots_of_the_factors():
    n = 2000
    ring = Graph(np.stack([np.arange(n), (np.arange(n) + 1) % n], 1), n)
    prior = mvgp.MatrixGP(DiffusionKernel(ring), DiffusionKernel(ROWS), dtype=torch.float32)
    sample = prior.sample()
    assert sample.shape == (n, M)
    assert sample.dtype == torch.float32
    variance = prior.row_axis.covariance().diagonal()[0] * prior.col_axis.covariance().diagonal()
    torch.testing.assert_close(sample.var(0), variance.detach(), atol=0.5, rtol=0)


def test_covariances_are_differentiable_in_the_hyperparameters():
    prior = make(mean=ConstantMean(0.3))
    rows, cols = torch.tensor([0, 1, 4]), torch.tensor([2, 2, 0])
    joint = prior(rows, cols)
    loss = joint.lazy_covariance_matrix.matmul(torch.ones(3, 1).double()).sum() + joint.mean.sum()
    loss.backward()
    found = {name: p.grad.clone() for name, p in prior.named_parameters() if p.grad is not None}
    assert len(found) == 5
    prior.zero_grad()
    k_rows, k_cols = prior.row_axis.covariance().to_dense(), prior.col_axis.covariance().to_dense()
    truth = (k_rows[rows][:, rows] * k_cols[cols][:, cols]).sum() + prior.mean_matrix()[rows, cols].sum()
    truth.backward()
    for name, p in prior.named_parameters():
        if name in found:
            torch.testing.assert_close(found[name], p.grad)


def test_precision_state_and_pickle():
    prior = make(mean=RowBiasMean(M))
    names = set(prior.state_dict())
    assert {"row_axis.kernel.raw_time", "col_axis.kernel.raw_shift", "mean_module.raw_bias"} <= names
    assert not any("inputs" in name or "zero" in name for name in names)
    other = make(mean=RowBiasMean(M))
    prior.row_kernel.time = 3.0
    other.load_state_dict(prior.state_dict())
    torch.testing.assert_close(dense(other), dense(prior))
    copy = pickle.loads(pickle.dumps(prior))
    torch.testing.assert_close(dense(copy), dense(prior))
    single = copy.to(torch.float32)
    assert single.dtype == torch.float32
    assert single.covariance().dtype == torch.float32
    op = pickle.loads(pickle.dumps(prior.covariance().detach()))
    assert isinstance(op, LinearOperator)
    torch.testing.assert_close(op.to_dense(), dense(prior))


def test_stock_kernels_are_brought_to_double_precision():
    kernel = gpytorch.kernels.RBFKernel()
    prior = mvgp.MatrixGP(kernel, DiffusionKernel(COLS), row_inputs=torch.rand(M, 2))
    assert kernel.raw_lengthscale.dtype == torch.float64
    assert prior.row_axis.inputs.dtype == torch.float64
    assert prior.shape == (M, N)


def test_a_mean_of_ones_own_takes_a_few_lines():
    class Slope(MatrixMean):
        def col_part(self, cols):
            return 0.5 * cols.double()

    prior = make(mean=Slope())
    assert prior(torch.tensor([0, 1]), torch.tensor([2, 4])).mean.tolist() == [1.0, 2.0]
    assert prior.mean_matrix()[3].tolist() == [0.5 * n for n in range(N)]


BAD = [
    (lambda: mvgp.MatrixGP(ROWS, DiffusionKernel(COLS)), "row_kernel: expected a gpytorch kernel, got Graph"),
    (lambda: mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), DiffusionKernel(COLS)), "row_inputs: RBFKernel needs inputs"),
    (lambda: make(mean=gpytorch.means.ZeroMean()), "mvgp.priors, got ZeroMean"),
    (lambda: make(mean=RowBiasMean(4)), "each of 5 rows, got 4"),
    (lambda: RowBiasMean(torch.tensor([1.0, float("nan")])), "finite"),
    (lambda: make(mean=PopularityMean([1, 2])), "each of 8 columns, got 2"),
    (lambda: make(mean=GivenMean(torch.zeros(2, 2))), "matrix of shape"),
    (lambda: PopularityMean([1.0, -1.0]), "not negative"),
    (lambda: PopularityMean([1.0], scale=float("nan")), "scale"),
    (lambda: mvgp.MatrixGP(DiffusionKernel(ROWS) + DiffusionKernel(COLS), DiffusionKernel(COLS)), r"\[5, 8\]"),
    (lambda: mvgp.MatrixGP(DiffusionKernel(ROWS, batch_shape=torch.Size([2])), DiffusionKernel(COLS)), "batch"),
    (
        lambda: mvgp.MatrixGP(DiffusionKernel(ROWS), gpytorch.kernels.RBFKernel(), col_inputs=[[1.0], [float("inf")]]),
        r"col_inputs\[1, 0\]: expected a finite number",
    ),
    (lambda: mvgp.MatrixGP(DiffusionKernel(ROWS), gpytorch.kernels.RBFKernel(), col_inputs=[]), r"\(n, d\)"),
    (lambda: make()(torch.tensor([0, 5]), torch.tensor([0, 0])), r"rows\[1\]: expected a position in \[0, 5\), got 5"),
    (lambda: make()([0, 1], [0]), "differ in length"),
    (
        lambda: mvgp.MatrixGP(gpytorch.kernels.RBFKernelGrad(), DiffusionKernel(COLS), torch.rand(3, 1)).covariance(),
        "several outputs per input",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_roots_without_structure_have_a_limit():
    prior = mvgp.MatrixGP(PrecomputedKernel(np.eye(4)), DiffusionKernel(COLS))
    with pytest.raises(SizeError, match="size 4"):
        root(prior.covariance(), max_size=3)


def test_popularity_orders_what_nothing_else_tells_apart():
    """A row without links and without neighbours ranks the columns by their number of links; s learns its sign."""
    links = mvgp.PositiveUnlabelled([0, 1, 2, 0, 1, 0], [3, 3, 3, 1, 1, 4], shape=(4, 6))
    kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 4))
    prior = mvgp.MatrixGP(kernel, DiffusionKernel(Graph([], 6)), mean=PopularityMean(links))
    posterior = mvgp.TraceGP(prior, BipartiteRankingLikelihood(), strength=0.3, trace_share=0.9).fit(links)
    counts = torch.tensor([0, 2, 0, 3, 1, 0], dtype=torch.float64)
    torch.testing.assert_close(posterior.scores([3])[0].detach(), 0.01 * counts.log1p())
    assert posterior.scores([0])[0].argmax() in (1, 3, 4)
    prior(torch.tensor([0, 1]), torch.tensor([3, 4])).mean.sum().backward()
    torch.testing.assert_close(prior.mean_module.raw_scale.grad, counts[[3, 4]].log1p().sum())
