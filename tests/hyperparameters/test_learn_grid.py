"""The closed form on complete matrices equals dense algebra, and finds what a matrix was drawn from."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import learn_grid, log_marginal
from mvgp.hyperparameters.complete_grid import RotatedGrid
from mvgp.kernels import DiffusionKernel, Graph, RegularizedLaplacianKernel
from mvgp.priors import ConstantMean
from tests import randomness
from tests.hyperparameters.problems import COLS, ROWS, M, N, gaussian, observe
from tests.oracles import random_edges

PRIORS = {
    "diffusion": lambda: mvgp.MatrixGP(DiffusionKernel(ROWS, 0.7, 0.3), ScaleKernel(DiffusionKernel(COLS, 1.4, 0.2))),
    "sum": lambda: mvgp.MatrixGP(
        ScaleKernel(DiffusionKernel(ROWS, 2.0, 0.0)) + RegularizedLaplacianKernel(ROWS, 0.5),
        DiffusionKernel(COLS),
        mean=ConstantMean(0.3),
    ),
}


@pytest.mark.parametrize("name", PRIORS)
def test_value_and_gradient_equal_those_of_dense_algebra(name):
    prior, likelihood, data = PRIORS[name](), gaussian(0.4), observe(torch.arange(M * N))
    expected = log_marginal(prior, likelihood, data, method="cholesky").value
    parameters = [
        p
        for p in (*prior.row_axis.parameters(), *prior.col_axis.parameters(), *likelihood.parameters())
        if p.requires_grad
    ]
    by_dense = torch.autograd.grad(expected, parameters)
    found = RotatedGrid(prior, data).log_marginal(likelihood.noise.reshape(()))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    for one, other in zip(torch.autograd.grad(found, parameters), by_dense, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_links_are_ones_among_zeros():
    links = mvgp.PositiveUnlabelled([0, 2, 3], [1, 4, 10], shape=(M, N))
    dense = torch.zeros(M, N, dtype=torch.float64)
    dense[links.rows, links.cols] = 1
    prior, noise = PRIORS["diffusion"](), torch.tensor(0.1, dtype=torch.float64)
    found = RotatedGrid(prior, links).log_marginal(noise)
    torch.testing.assert_close(found, RotatedGrid(prior, mvgp.ObservedMatrix.from_dense(dense)).log_marginal(noise))


def test_what_a_matrix_was_drawn_from_is_found():
    r"""Exactly, for the average draw.

    In the eigenbases of both graphs a draw has independent entries with variances d. If every square is d, the mean of
    its distribution, then each term -(log x + d / x) / 2 of the evidence is largest at x = d: at the true parameters,
    whatever the graphs. A term too many or a factor of two in the evidence or its gradient moves the best by far more.
    """
    rng = randomness.numpy_generator(0)
    rows, cols = Graph(random_edges(rng, 30, 60), 30), Graph(random_edges(rng, 40, 80), 40)
    truth = mvgp.MatrixGP(DiffusionKernel(rows, 3.0, 0.0), ScaleKernel(DiffusionKernel(cols, 1.5, 0.0)))
    (row_values, row_vectors), (col_values, col_vectors) = (
        torch.linalg.eigh(axis.covariance().to_dense().detach()) for axis in (truth.row_axis, truth.col_axis)
    )
    scale = (row_values[:, None] * col_values + 0.01).sqrt()  # (30, 40)
    data = mvgp.ObservedMatrix.from_dense(row_vectors @ scale @ col_vectors.T)
    prior = mvgp.MatrixGP(DiffusionKernel(rows, 1.0, 0.0), ScaleKernel(DiffusionKernel(cols, 1.0, 0.0)))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    found = learn_grid(prior, likelihood, data, tolerance=1e-6)
    assert found.converged
    expected = truth.col_axis.kernel.outputscale.item()
    assert float(found.parameters["row_kernel.time"]) == pytest.approx(3.0, rel=1e-3)
    assert float(found.parameters["col_kernel.base_kernel.time"]) == pytest.approx(1.5, rel=1e-3)
    assert float(found.parameters["col_kernel.outputscale"]) == pytest.approx(expected, rel=1e-3)
    assert float(found.parameters["likelihood.noise_covar.noise"]) == pytest.approx(0.01, rel=1e-3)
    assert found.history == tuple(sorted(found.history))
    assert float(prior.row_axis.kernel.time.detach()) == float(found.parameters["row_kernel.time"])


def test_single_precision_finds_the_same():
    links = mvgp.PositiveUnlabelled([0, 0, 1, 2, 3, 3], [1, 2, 1, 4, 10, 4], shape=(M, N))
    ends = []
    for dtype in (torch.float32, torch.float64):
        prior = mvgp.MatrixGP(
            DiffusionKernel(ROWS, shift=0.0), ScaleKernel(DiffusionKernel(COLS, shift=0.0)), dtype=dtype
        )
        ends.append(learn_grid(prior, gpytorch.likelihoods.GaussianLikelihood(), links, tolerance=1e-2).log_marginal)
    assert ends[0] == pytest.approx(ends[1], abs=1e-2)


@pytest.mark.filterwarnings("error")
def test_refusals():
    likelihood, whole = gaussian(0.4), observe(torch.arange(M * N))
    good = PRIORS["diffusion"]()
    with pytest.raises(InputError, match="RBFKernel"):
        learn_grid(mvgp.MatrixGP(DiffusionKernel(ROWS), RBFKernel(), col_inputs=torch.rand(N, 1)), likelihood, whole)
    two = mvgp.MatrixGP(DiffusionKernel(ROWS) + DiffusionKernel(Graph([(0, 1)], M)), DiffusionKernel(COLS))
    with pytest.raises(InputError, match="different ones"):
        learn_grid(two, likelihood, whole)
    with pytest.raises(InputError, match="40 of 77 cells"):
        learn_grid(good, likelihood, observe(torch.arange(40)))
    with pytest.raises(InputError, match="shape"):
        learn_grid(good, likelihood, observe(torch.arange(20), (4, 5)))
    with pytest.raises(InputError, match="tolerance"):
        learn_grid(good, likelihood, whole, tolerance=0.0)
    with pytest.raises(InputError, match="links"):
        learn_grid(good, likelihood, torch.zeros(M, N))
    with pytest.raises(InputError, match="GaussianLikelihood"):
        learn_grid(good, torch.nn.Identity(), whole)
    with pytest.warns(RuntimeWarning, match="learning ended"):
        learn_grid(good, likelihood, whole, max_steps=1, tolerance=1e-9)
