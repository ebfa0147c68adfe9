"""Kernels on product graphs: their error bounds, and dense matrix functions of the Kronecker sum."""

import pytest
import torch

from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.priors import ConstantMean, ProductGraphGP
from mvgp.priors.product_graph import diffusion_mixture
from tests import randomness
from tests.oracles import dense_laplacian, matrix_function, random_edges

M, N = 5, 8
EDGES = [random_edges(randomness.numpy_generator(seed), size, 2 * size) for seed, size in ((0, M), (1, N))]
ROWS, COLS = Graph(EDGES[0], M), Graph(EDGES[1], N)


def kronecker_sum():
    rows, cols = dense_laplacian(EDGES[0], M), dense_laplacian(EDGES[1], N)
    return torch.kron(rows, torch.eye(N).double()) + torch.kron(torch.eye(M).double(), cols)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-8])
@pytest.mark.parametrize(
    ("offset", "power"), [(1.0, 1.0), (0.05, 1.0), (3.0, 1.5), (0.5, 2.5), (100.0, 1.0), (1.0, 0.5)]
)
def test_the_error_bound_holds_and_is_within_the_tolerance(offset, power, tolerance):
    times, weights, error = diffusion_mixture(offset, power, tolerance=tolerance)
    assert error <= tolerance
    assert (times > 0).all()
    assert (weights > 0).all()
    x = torch.from_numpy(randomness.numpy_generator(7).random(20_000)) ** 4 * 4
    mixture = torch.exp(-x.unsqueeze(1) * torch.from_numpy(times)) @ torch.from_numpy(weights)
    assert (mixture - (1 + x / offset) ** -power).abs().max() <= error + 1e-14
    assert len(times) <= 3 - 2.5 * torch.log10(torch.tensor(tolerance))  # few terms do


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_covariances_are_within_the_error_of_the_exact_ones(tolerance):
    laplacian = kronecker_sum()
    for prior, function in (
        (
            ProductGraphGP(ROWS, COLS, offset=0.3, power=2.0, variance=1.7, tolerance=tolerance),
            lambda x: 1.7 / (1 + x / 0.3) ** 2,
        ),
        (ProductGraphGP.regularised(ROWS, COLS, 2.5, tolerance=tolerance), lambda x: 1 / (1 + 2.5 * x)),
        (ProductGraphGP.matern(ROWS, COLS, 1.7, 1.2, tolerance=tolerance), lambda x: (1 + 1.44 * x / 3.4) ** -1.7),
    ):
        truth = matrix_function(laplacian, function)
        off = prior.covariance().to_dense() - truth
        assert torch.linalg.matrix_norm(off, 2) <= prior.error * (1 + 1e-9) + 1e-12
        assert prior.error <= tolerance * prior.variance
        values = [
            torch.linalg.eigvalsh(dense_laplacian(edges, size)) for edges, size in zip(EDGES, (M, N), strict=True)
        ]
        exact = prior.spectrum(*values).flatten().sort().values
        torch.testing.assert_close(exact, torch.linalg.eigvalsh(truth))
        assert not any(p.requires_grad for p in prior.parameters())


def test_it_is_a_sum_of_priors_with_a_mean():
    prior = ProductGraphGP(ROWS, COLS, mean=ConstantMean(0.4), dtype=torch.float32)
    assert prior.dtype == torch.float32
    assert prior.mean_matrix()[0, 0].item() == pytest.approx(0.4)
    assert prior.snapshot().error == prior.error
    assert (prior + prior.terms[0]).shape == (M, N)
    assert prior.sample(randomness.generator(0)).shape == (M, N)


def test_what_cannot_be_is_refused():
    for call, message in (
        (lambda: ProductGraphGP(ROWS, 3), "col_graph"),
        (lambda: ProductGraphGP(ROWS, COLS, offset=0.0), "offset"),
        (lambda: ProductGraphGP(ROWS, COLS, power=-1.0), "power"),
        (lambda: ProductGraphGP(ROWS, COLS, variance=0.0), "variance"),
        (lambda: ProductGraphGP.matern(ROWS, COLS, nu=0.0), "nu"),
        (lambda: ProductGraphGP.regularised(ROWS, COLS, scale=-1.0), "scale"),
        (lambda: diffusion_mixture(1.0, 1.0, tolerance=1e-6, max_terms=2), "2 terms come within"),
    ):
        with pytest.raises(InputError, match=message):
            call()
