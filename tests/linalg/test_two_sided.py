"""Functions of two sparse matrices at once, against dense algebra."""

import pytest
import torch

from mvgp.kernels import DiffusionKernel, Graph, RegularizedLaplacianKernel
from mvgp.linalg.chebyshev import inverse_series
from tests import randomness


def operators(kind, shape):
    made = []
    for number, size in enumerate(shape):
        ends = torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number))
        made.append(kind(Graph(ends, size)).operator().detach())
    return made


KINDS = {
    "paper": lambda graph: DiffusionKernel(graph, method="chebyshev"),
    "no shift": lambda graph: DiffusionKernel(graph, time=3.0, shift=0.0, method="chebyshev"),
    "regularised": lambda graph: RegularizedLaplacianKernel(graph, scale=2.0, method="chebyshev"),
}


@pytest.mark.parametrize(("kind", "noise"), [("paper", 0.3), ("paper", 2.0), ("no shift", 2.0), ("regularised", 0.3)])
@pytest.mark.parametrize("shape", [(40, 70), (35, 33)])
def test_the_inverse_is_the_dense_one(kind, shape, noise):
    left, right = operators(KINDS[kind], shape)
    series = inverse_series(left, right, noise, 1e-9)
    rhs = torch.randn(shape, generator=randomness.generator(5), dtype=torch.float64)
    (a, u), (b, v) = (torch.linalg.eigh(op.to_dense()) for op in (left, right))
    truth = u @ ((u.mT @ rhs @ v) / (a.unsqueeze(1) * b + noise)) @ v.mT
    # the kernels' own series are good to 1e-10; that of the inverse was asked for 1e-9 of its largest sum
    assert (series(rhs) - truth).norm() <= 1e-7 * truth.norm()
    assert series.left_series.shape[1] <= 8


def test_single_precision_stays_single():
    left, right = (op.to(torch.float32) for op in operators(KINDS["paper"], (20, 30)))
    series = inverse_series(left, right, 1.0, 1e-6)
    rhs = torch.randn(20, 30, generator=randomness.generator(6))
    found = series(rhs)
    assert found.dtype == torch.float32
    back = left.to_dense() @ found @ right.to_dense() + found
    assert (back - rhs).norm() <= 1e-4 * rhs.norm()


def test_what_varies_too_fast_is_left_to_others():
    left, right = operators(lambda graph: DiffusionKernel(graph, time=8.0, shift=0.0, method="chebyshev"), (20, 30))
    assert inverse_series(left, right, 1e-9, 1e-10) is None
