"""The system over all cells of some rows, against its dense matrix."""

import pytest
import torch
from linear_operator.operators import to_linear_operator

from mvgp.errors import SizeError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.linalg.complete_rows import CompleteRowsSystem, shifted_solve
from mvgp.linalg.cost import Limits
from tests import randomness

KINDS = ["chebyshev", "eigenpairs", "dense", "sum"]
NO_EIGENPAIRS = Limits(rows_eigenpairs=9)  # of the longer axis


def operator(kind, size, number):
    generator = randomness.generator(number)
    graph = Graph(torch.randint(0, size, (2 * size, 2), generator=generator), size)
    if kind == "dense":
        root = torch.randn(size, size, generator=generator, dtype=torch.float64)
        return to_linear_operator(root @ root.mT / size)
    if kind == "eigenpairs":
        return DiffusionKernel(graph, method="eigen").operator().detach()
    smooth = DiffusionKernel(graph, method="chebyshev").operator().detach()
    if kind == "chebyshev":
        return smooth
    return smooth + DiffusionKernel(graph, time=2.0, shift=0.0, method="chebyshev").operator().detach()


def dense_twin(row_op, col_op, chosen, noise, special, special_noise):
    each = torch.full((len(chosen) * col_op.shape[-1],), noise, dtype=torch.float64)
    if special is not None:
        each[special] = special_noise
    return torch.kron(row_op.to_dense()[chosen][:, chosen], col_op.to_dense()) + torch.diag(each)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(9, 14), (14, 9)])
@pytest.mark.parametrize("some_rows", [False, True])
@pytest.mark.parametrize("special", [None, [1, 5, 20, 33]])
def test_products_and_solutions_equal_the_dense_ones(kind, shape, some_rows, special):
    row_op, col_op = operator(kind, shape[0], 1), operator(kind, shape[1], 2)
    chosen = torch.tensor([0, 3, 4, 7, 8]) if some_rows else torch.arange(shape[0])
    special = None if special is None else torch.tensor(special)
    limits = NO_EIGENPAIRS if kind == "sum" else Limits()
    system = CompleteRowsSystem(row_op, col_op, chosen, 0.7, special, 0.05, limits)
    matrix = dense_twin(row_op, col_op, chosen, 0.7, special, 0.05)
    rhs = torch.randn(len(chosen), shape[1], generator=randomness.generator(3), dtype=torch.float64)

    assert torch.allclose(system.times(rhs).reshape(-1), matrix @ rhs.reshape(-1), rtol=0, atol=1e-9)
    kernel = dense_twin(row_op, col_op, chosen, 0.0, None, 0.0)
    assert torch.allclose(system.diagonal().reshape(-1), kernel.diagonal(), rtol=0, atol=1e-9)
    solution = system.solve(rhs, 1e-10)
    assert solution.solve_report.converged
    truth = torch.linalg.solve(matrix, rhs.reshape(-1))
    # a relative residual of 1e-10 and a smallest eigenvalue of at least 0.05
    assert (solution.value.reshape(-1) - truth).norm() <= 1e-10 * rhs.norm() / 0.05 + 1e-12


def test_a_right_hand_side_of_zero():
    system = CompleteRowsSystem(operator("dense", 4, 1), operator("dense", 6, 2), torch.arange(4), 0.1)
    solution = system.solve(torch.zeros(4, 6, dtype=torch.float64), 1e-8)
    assert (solution.value == 0).all()
    assert solution.solve_report.converged


def test_single_precision_reports_what_it_reaches():
    row_op, col_op = (operator("chebyshev", size, size).to(torch.float32) for size in (8, 12))
    system = CompleteRowsSystem(row_op, col_op, torch.arange(8), 1.0)
    rhs = torch.randn(8, 12, generator=randomness.generator(4))
    solution = system.solve(rhs, 1e-5)
    assert solution.value.dtype == torch.float32
    assert solution.solve_report.converged
    measured = (rhs - system.times(solution.value)).norm() / rhs.norm()
    assert float(measured) <= 1e-5


@pytest.mark.parametrize("noise", [1e-3, 1.0, 1e3])
def test_every_column_has_a_system_of_its_own(noise):
    op = operator("chebyshev", 20, 5)
    scales = torch.cat([torch.zeros(1, dtype=torch.float64), torch.logspace(-2, 1, 6, dtype=torch.float64)])
    rhs = torch.randn(20, 7, generator=randomness.generator(6), dtype=torch.float64)
    x = shifted_solve(op, scales, noise, rhs, 1e-10)
    back = scales * (op.to_dense() @ x) + noise * x
    assert ((back - rhs).norm(dim=0) <= 1e-8 * rhs.norm(dim=0)).all()


def test_too_many_rows_are_refused_with_the_way_out():
    row_op, col_op, limits = operator("dense", 9, 1), operator("dense", 12, 2), Limits(rows_eigenpairs=8)
    system = CompleteRowsSystem(row_op, col_op, torch.arange(9), 0.1, limits=limits)
    with pytest.raises(SizeError, match="TraceGP"):
        system.solve(torch.ones(9, 12, dtype=torch.float64), 1e-8)
