"""A solver of a system after pairs came and went, against the dense matrix."""

import pytest
import torch

from mvgp.errors import NotPositiveSemidefiniteError
from mvgp.linalg.conjugate_gradients import conjugate_gradients
from mvgp.linalg.pair_operator import PairLinearOperator
from mvgp.linalg.pairs import PairIndex, cell_slots
from mvgp.linalg.solvers import CholeskySolver, ConjugateGradientSolver
from mvgp.linalg.updates import UpdatedSolver
from tests import randomness

SHAPE, OLD, NEW = (6, 9), 30, 5


def problem():
    """K_M, K_N, cells and noise of 30 pairs, then 5 more."""
    generator = randomness.generator(2)
    roots = [torch.randn(size, size, dtype=torch.float64, generator=generator) for size in SHAPE]
    kernels = [root @ root.mT / len(root) + 0.1 * torch.eye(len(root), dtype=torch.float64) for root in roots]
    cell = torch.randperm(SHAPE[0] * SHAPE[1], generator=generator)[: OLD + NEW]
    noise = 0.2 + torch.rand(len(cell), dtype=torch.float64, generator=generator)
    return kernels, cell, noise, torch.randn(len(cell), 4, dtype=torch.float64, generator=generator)


class Rough:
    """A preconditioner that is far too small: eliminating the new pairs with it leaves nothing positive."""

    def __call__(self, rhs):
        return 100 * rhs


BASES = {
    "cholesky": lambda op, noise: CholeskySolver(op, noise),
    "cg": lambda op, noise: ConjugateGradientSolver(op, noise, None, 1000),
    "cg, a rough preconditioner": lambda op, noise: ConjugateGradientSolver(op, noise, Rough(), 1000),
}


def updated(base, slots):
    """The matrix (T', T') of some of the 35 pairs in the order of ``slots``, its solver, and right-hand sides."""
    kernels, cell, noise, rhs = problem()
    pairs = PairIndex(cell // SHAPE[1], cell % SHAPE[1], SHAPE)
    whole = PairLinearOperator(*kernels, pairs).to_dense()
    op = PairLinearOperator(*kernels, pairs[:OLD])
    matrix = whole + torch.diag(noise)
    solver = UpdatedSolver(BASES[base](op, noise[:OLD]), whole[:OLD, OLD:], matrix[OLD:, OLD:], slots)
    return matrix[slots][:, slots], solver, rhs[slots]


EVERYTHING = torch.arange(OLD + NEW)
SLOTS = {
    "more": torch.cat([EVERYTHING[OLD:], EVERYTHING[:OLD]]),
    "fewer": EVERYTHING[4:OLD],
    "both": EVERYTHING[3:].flip(0),
    "the same": EVERYTHING[:OLD],
}


@pytest.mark.parametrize("kind", SLOTS)
@pytest.mark.parametrize("base", BASES)
def test_solutions_equal_those_of_the_dense_matrix(base, kind):
    matrix, solver, rhs = updated(base, SLOTS[kind])
    expected = torch.linalg.solve(matrix, rhs)
    torch.testing.assert_close(solver.times(rhs), matrix @ rhs)
    for start in (None, torch.ones_like(rhs)):
        solution = solver.solve(rhs, 1e-12, start)
        assert solution.solve_report.converged
        assert solution.solve_report.method == base.split(",")[0]
        torch.testing.assert_close(solution.value, expected, atol=1e-9, rtol=0)
        torch.testing.assert_close(solution.residual, rhs - matrix @ solution.value, atol=1e-9, rtol=0)
    assert solver.is_dense == (base == "cholesky")


@pytest.mark.parametrize("kind", SLOTS)
def test_a_dense_factor_goes_on_as_one(kind):
    matrix, solver, rhs = updated("cholesky", SLOTS[kind])
    inverse = torch.linalg.inv(matrix)
    half = solver.half(rhs, 1e-10)
    torch.testing.assert_close(half.mT @ half, rhs.mT @ inverse @ rhs, atol=1e-9, rtol=0)
    torch.testing.assert_close(solver.inverse(rhs), inverse @ rhs, atol=1e-9, rtol=0)
    torch.testing.assert_close(solver.inverse_diagonal(), inverse.diagonal(), atol=1e-9, rtol=0)
    again = UpdatedSolver(solver, matrix.new_zeros(len(matrix), 1), matrix.new_full((1, 1), 2.0), torch.arange(3, 20))
    kept = torch.linalg.inv(matrix[3:20, 3:20])
    half = again.half(rhs[3:20], 1e-10)
    torch.testing.assert_close(half.mT @ half, rhs[3:20].mT @ kept @ rhs[3:20], atol=1e-9, rtol=0)
    assert (again.depth, again.is_dense) == (2, True)


def test_what_the_old_solution_leaves_saves_a_product():
    _, cell, _, _ = problem()
    matrix, solver, rhs = updated("cg", EVERYTHING)
    old = solver.base.solve(rhs[:OLD], 1e-3)
    start = torch.cat([old.value, torch.zeros(NEW, 4, dtype=torch.float64)])
    plain, saved = solver.solve(rhs, 1e-10, start), solver.solve(rhs, 1e-10, start, old.residual)
    torch.testing.assert_close(saved.value, plain.value, atol=1e-8, rtol=0)
    assert saved.solve_report.iterations == plain.solve_report.iterations - 1
    torch.testing.assert_close(matrix @ saved.value, rhs, atol=1e-7, rtol=0)
    assert len(cell) == OLD + NEW


def test_new_pairs_that_are_not_positive_definite_are_refused():
    _, solver, rhs = updated("cholesky", EVERYTHING)
    wrong = UpdatedSolver(solver.base, solver.border, 1e-9 * solver.corner, EVERYTHING)
    with pytest.raises(NotPositiveSemidefiniteError, match="5 new pairs"):
        wrong.half(rhs, 1e-8)


def test_conjugate_gradients_from_a_start():
    matrix, _, rhs = updated("cg", EVERYTHING)
    exact = torch.linalg.solve(matrix, rhs)
    assert conjugate_gradients(matrix.matmul, rhs, tolerance=1e-9, start=exact).solve_report.iterations == 1
    found = conjugate_gradients(matrix.matmul, rhs, tolerance=1e-11, start=exact + 0.1)
    torch.testing.assert_close(found.value, exact, atol=1e-8, rtol=0)


def test_where_cells_are():
    rows, cols = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])
    asked = torch.tensor([2, 0, 0, 2]), torch.tensor([0, 1, 2, 3])
    assert cell_slots(*asked, rows, cols, 4).tolist() == [2, 0, -1, -1]
    assert cell_slots(*asked, rows[:0], cols[:0], 4).tolist() == [-1] * 4
