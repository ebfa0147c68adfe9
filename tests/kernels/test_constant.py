import unittest

import gpytorch
import pytest
import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph
from mvgp.linalg import root
from mvgp.linalg.spectra import SpectralLinearOperator, spectral_bounds
from tests import randomness


class TestConstant(BaseKernelTestCase, unittest.TestCase):
    """gpytorch's own kernel tests."""

    def create_kernel_no_ard(self, **kwargs):
        return ConstantKernel(dtype=torch.get_default_dtype(), **kwargs)


def test_it_equals_the_kernel_of_gpytorch_and_knows_its_spectrum():
    theirs = gpytorch.kernels.ConstantKernel().double()
    theirs.constant = torch.tensor(0.7).double()
    ours, x = ConstantKernel(variance=0.7), torch.rand(5, 3, generator=randomness.generator(0)).double()
    op = ours(x).evaluate_kernel()
    assert isinstance(op, SpectralLinearOperator)
    torch.testing.assert_close(op.to_dense(), theirs(x).to_dense())
    torch.testing.assert_close(ours(x, x[:2]).to_dense(), theirs(x, x[:2]).to_dense())
    torch.testing.assert_close(ours(x, diag=True), theirs(x, diag=True))
    assert spectral_bounds(op) == (0.0, pytest.approx(3.5))
    half = root(op.detach())
    assert half.shape == (5, 1)
    torch.testing.assert_close(half.to_dense() @ half.to_dense().T, op.to_dense().detach())
    op.to_dense().sum().backward()
    assert ours.raw_variance.grad is not None


def test_on_an_axis_with_and_without_inputs_and_inside_sums():
    graph = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
    columns = torch.rand(4, 2, generator=randomness.generator(1))
    alone = mvgp.MatrixGP(ConstantKernel(3, 2.0), gpytorch.kernels.RBFKernel(), col_inputs=columns)
    assert alone.shape == (3, 4)
    torch.testing.assert_close(alone.row_axis.covariance().to_dense(), torch.full((3, 3), 2.0).double())
    inside = mvgp.MatrixGP(graph + ConstantKernel(), ConstantKernel(), col_inputs=columns)
    assert inside.shape == (3, 4)
    truth = graph(torch.arange(3)).to_dense() + 1.0
    torch.testing.assert_close(inside.row_axis.covariance().to_dense(), truth)
    new = inside.col_axis.cross(columns[:2].double())
    assert tuple(new.shape) == (2, 4)
    torch.testing.assert_close(new.to_dense(), torch.ones(2, 4).double())
    with pytest.raises(InputError, match="row_inputs: ConstantKernel needs inputs"):
        mvgp.MatrixGP(ConstantKernel(), graph)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ConstantKernel(0), "num_items"),
        (lambda: ConstantKernel(2.5), "num_items"),
        (lambda: ConstantKernel(3, -1.0), "variance"),
        (
            lambda: ConstantKernel(3).forward(torch.ones(3, 1), torch.ones(3, 1), last_dim_is_batch=True),
            "no further arguments",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
