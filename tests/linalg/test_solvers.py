import warnings

import gpytorch
import pytest
import torch
from linear_operator.operators import to_linear_operator

import mvgp
from mvgp.errors import ConvergenceError, InputError, MvgpError, NotPositiveSemidefiniteError
from mvgp.kernels import PrecomputedKernel
from mvgp.linalg import PairIndex, PairLinearOperator, SolveReport
from mvgp.linalg.conjugate_gradients import Solution, conjugate_gradients
from mvgp.linalg.cost import Limits
from mvgp.linalg.solvers import CholeskySolver, WoodburyPreconditioner, leading_eigenpairs, make_solver
from mvgp.linalg.spectra import Factor, SpectralLinearOperator, eigenpairs, spectral_bounds
from mvgp.linalg.sums import make_sum_solver
from tests import randomness


def spd(size, condition, seed=0):
    generator = randomness.generator(seed)
    q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return q @ torch.diag(torch.logspace(0, -torch.tensor(condition).log10().item(), size).double()) @ q.T


def rbf(size, seed, scale=0.2):
    x = torch.rand(size, 1, generator=randomness.generator(seed), dtype=torch.float64)
    return torch.exp(-((x - x.T) ** 2) / (2 * scale**2))


def dense_system(row, col, pairs, noise):
    k = row[pairs.rows][:, pairs.rows] * col[pairs.cols][:, pairs.cols]
    return k + torch.diag(noise.expand(len(pairs)))


@pytest.mark.parametrize("condition", [2, 1e3, 1e6])
def test_conjugate_gradients_reach_a_tolerance_that_is_measured(condition):
    a = spd(60, condition)
    b = torch.randn(60, 5, dtype=torch.float64)
    b[:, 3] = 0
    solution = conjugate_gradients(lambda x: a @ x, b, tolerance=1e-10)
    assert solution.solve_report.converged
    assert (solution.value[:, 3] == 0).all()
    residual = (b - a @ solution.value).norm(dim=0) / b.norm(dim=0).clamp_min(1e-300)
    assert residual.max() <= 1e-10
    assert solution.solve_report.residual == pytest.approx(residual.max().item(), rel=0.5)
    assert solution.checked() is solution


def test_conjugate_gradients_go_below_where_linear_cg_stalls():
    """A well-conditioned system takes about ten steps to 1e-8 (linear_operator's ends at 1e-6)."""
    a = spd(200, 1.9)
    solution = conjugate_gradients(lambda x: a @ x, torch.randn(200, 1, dtype=torch.float64), tolerance=1e-8)
    assert solution.solve_report.converged
    assert solution.solve_report.iterations <= 14


def test_a_preconditioner_saves_iterations_and_columns_leave_when_done():
    a = spd(100, 1e4)
    b = torch.randn(100, 3, dtype=torch.float64)
    b[:, 0] = a @ torch.linalg.eigh(a).eigenvectors[:, 7]  # an eigenvector: one step
    widths = []

    def product(x):
        widths.append(x.shape[1])
        return a @ x

    plain = conjugate_gradients(product, b, tolerance=1e-8)
    assert widths[0] == 3
    assert 2 in widths
    inverse = torch.linalg.inv(a + 1e-4 * torch.eye(100))
    quick = conjugate_gradients(lambda x: a @ x, b, tolerance=1e-8, preconditioner=lambda r: inverse @ r)
    assert quick.solve_report.converged
    assert quick.solve_report.iterations < plain.solve_report.iterations / 3


def test_missing_the_tolerance_speaks_up():
    a = spd(80, 1e6)
    b = torch.randn(80, 2, dtype=torch.float64)
    solution = conjugate_gradients(lambda x: a @ x, b, tolerance=1e-10, max_iterations=5)
    assert not solution.solve_report.converged
    with pytest.raises(ConvergenceError, match=r"cg ended with relative residual .* after \d+ iterations"):
        solution.checked()
    with pytest.raises(ConvergenceError, match="cholesky ended"):  # a direct method too
        Solution(b, SolveReport("cholesky", 1e-3, 1e-8)).checked()
    with pytest.warns(RuntimeWarning, match="cholesky ended"):
        Solution(b, SolveReport("cholesky", 1e-3, 1e-8)).checked(strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conjugate_gradients(lambda x: x, b, tolerance=1e-10).checked()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gram", ["grid", "pairs"])
def test_woodbury_inverts_what_its_eigenpairs_span(weighted, gram):
    options = {"gram_entries": 0} if gram == "pairs" else {}
    row, col = rbf(20, 1), rbf(30, 2)
    cells = torch.randperm(600)[:200].sort().values
    pairs = PairIndex(cells // 30, cells % 30, (20, 30))
    noise = torch.full((200,), 0.1).double() if not weighted else torch.rand(200).double() + 0.05
    parts = [
        eigenpairs(op[active][:, active], "k") for op, active in ((row, pairs.active_rows), (col, pairs.active_cols))
    ]
    inverse = WoodburyPreconditioner(*parts, pairs, noise, **options)
    rhs = torch.randn(200, 3, dtype=torch.float64)
    truth = torch.linalg.solve(dense_system(row, col, pairs, noise), rhs)
    assert 10 < inverse.rank < 200
    # what was left out is at most a tenth of the noise, so is the relative error
    assert ((inverse(rhs) - truth).norm(dim=0) <= 0.1 * truth.norm(dim=0)).all()
    complete = WoodburyPreconditioner(*parts, pairs, noise, cutoff=1e-12, **options)
    torch.testing.assert_close(complete(rhs), truth, atol=1e-7, rtol=0)
    empty = WoodburyPreconditioner(*parts, pairs, noise, cutoff=1e12, **options)
    torch.testing.assert_close(empty(rhs), rhs / noise.unsqueeze(1))


@pytest.mark.parametrize("method", ["cholesky", "cg", "auto"])
@pytest.mark.parametrize("weighted", [False, True])
def test_solvers_agree(method, weighted):
    row, col = rbf(25, 1), rbf(40, 2)
    cells = torch.randperm(1000)[:400]
    pairs = PairIndex(cells // 40, cells % 40, (25, 40))
    noise = torch.tensor(0.05).double() if not weighted else torch.rand(400).double() + 0.05
    solver = make_solver(to_linear_operator(row), to_linear_operator(col), pairs, noise, method=method)
    rhs = torch.randn(400, 4, dtype=torch.float64)
    solution = solver.solve(rhs, 1e-10).checked()
    torch.testing.assert_close(
        solution.value, torch.linalg.solve(dense_system(row, col, pairs, noise), rhs), rtol=1e-6, atol=1e-7
    )


def test_large_factors_are_sketched():
    """Above the limit for dense eigenpairs a random Krylov subspace serves the preconditioner."""
    limits = Limits(eigenpairs=10, sketch=12)
    row, col = rbf(25, 1), rbf(40, 2)
    everything = torch.arange(40)
    values, vectors = leading_eigenpairs(Factor(to_linear_operator(col), everything, everything), "k", limits)
    truth, _ = eigenpairs(col, "k")
    torch.testing.assert_close(values[:5], truth[:5], rtol=1e-6, atol=0)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(len(values)).double(), atol=1e-10, rtol=0)
    cells = torch.randperm(1000)[:400]
    pairs = PairIndex(cells // 40, cells % 40, (25, 40))
    noise = torch.tensor(0.05).double()
    solver = make_solver(to_linear_operator(row), to_linear_operator(col), pairs, noise, method="cg", limits=limits)
    rhs = torch.randn(400, 2, dtype=torch.float64)
    solution = solver.solve(rhs, 1e-9).checked()
    assert solution.solve_report.iterations < 40
    torch.testing.assert_close(
        solution.value, torch.linalg.solve(dense_system(row, col, pairs, noise), rhs), rtol=1e-6, atol=1e-6
    )


def test_low_rank_factors_are_compressed():
    row, col = rbf(300, 1, scale=1.0), rbf(200, 2, scale=1.0)
    cells = torch.randperm(60_000)[:4000].sort().values
    pairs = PairIndex(cells // 200, cells % 200, (300, 200))
    solver = make_solver(to_linear_operator(row), to_linear_operator(col), pairs, torch.tensor(0.1).double())
    assert isinstance(solver.op.row_op, SpectralLinearOperator)
    assert solver.op.row_op.vectors.shape[1] < 40
    rhs = torch.randn(4000, 1, dtype=torch.float64)
    value = solver.solve(rhs, 1e-9).checked().value
    truth = dense_system(row, col, pairs, torch.tensor(0.1).double()) @ value
    assert ((truth - rhs).norm() / rhs.norm()) < 1e-8


def test_factors_that_are_no_covariances_are_refused():
    bad = torch.diag(torch.tensor([1.0, -0.5])).double()
    with pytest.raises(NotPositiveSemidefiniteError, match="row kernel.*-0.5"):
        eigenpairs(bad, "row kernel")
    pairs = PairIndex(torch.tensor([0, 1]), torch.tensor([0, 0]), (2, 1))
    one = to_linear_operator(torch.ones(1, 1).double())
    with pytest.raises(NotPositiveSemidefiniteError, match="smallest noise variance is 0.1"):
        make_solver(to_linear_operator(bad), one, pairs, torch.tensor(0.1).double(), method="cholesky")
    with pytest.raises(NotPositiveSemidefiniteError, match="row kernel"):
        make_solver(to_linear_operator(bad), one, pairs, torch.tensor(0.1).double())
    with pytest.raises(InputError, match="every cell observed"):
        make_solver(to_linear_operator(bad), one, pairs[:1], torch.tensor(0.1).double(), method="spectral")


def test_bounds_hold():
    from mvgp.kernels import DiffusionKernel, Graph

    graph = Graph([(0, 1), (1, 2), (2, 3), (3, 4)], 6)
    scaled = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    x = torch.randn(6, 1).double()
    kernels = [
        DiffusionKernel(graph, 0.7, 0.3),
        DiffusionKernel(graph, 0.7, 0.3, method="chebyshev"),
        DiffusionKernel(graph) + DiffusionKernel(graph, method="chebyshev"),
    ]
    ops = [kernel(torch.arange(6)).evaluate_kernel() for kernel in kernels] + [scaled(x).evaluate_kernel()]
    for op in ops:
        low, high = spectral_bounds(op)
        values = torch.linalg.eigvalsh(op.to_dense())
        assert low <= values.min() + 1e-9
        assert values.max() <= high + 1e-9
    assert spectral_bounds(ops[1])[0] == pytest.approx(torch.exp(torch.tensor(-1.4)).item() + 0.3)


def hilbert(size):
    """As ill-conditioned as matrices come."""
    at = torch.arange(size, dtype=torch.float64)
    return 1 / (at.unsqueeze(1) + at + 1)


@pytest.mark.parametrize("method", ["cholesky", "spectral"])
def test_a_direct_method_of_single_precision_is_computed_in_double_precision_where_that_helps(method):
    """Both used to end above the tolerance, and only warned."""
    size = 12
    kernel = (hilbert(size) + 1e-3 * torch.eye(size, dtype=torch.float64)).float()
    every = torch.arange(size * size)
    pairs = PairIndex(every // size, every % size, (size, size))
    one = to_linear_operator(kernel)
    solver = make_solver(one, one, pairs, torch.tensor(1e-6), method=method)
    weights = torch.ones(size * size, 1, dtype=torch.float64)
    matrix = torch.kron(kernel.double(), kernel.double()) + float(torch.tensor(1e-6)) * torch.eye(size * size).double()
    rhs = (matrix @ weights).float()
    solution = solver.solve(rhs, 1e-5)
    assert solution.solve_report.converged, solution.solve_report
    measured = float((rhs.double() - matrix @ solution.value.double()).norm() / rhs.double().norm())
    assert measured <= 2e-5


def test_a_direct_method_that_misses_its_tolerance_is_an_error_of_the_fit():
    """Residual 1.14 against 1e-8 used to be a warning."""
    size = 40
    at = torch.linspace(0, 1, size, dtype=torch.float64)
    kernel = torch.exp(-((at.unsqueeze(1) - at) ** 2) / 50) * 1e8  # of numerical rank 6
    prior = mvgp.MatrixGP(PrecomputedKernel(kernel), PrecomputedKernel(kernel))
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-12))
    likelihood = likelihood.double()
    likelihood.noise = 1e-3
    signs = torch.where((torch.arange(size) % 2).bool(), 1.0, -1.0).double()  # nothing that the prior expects
    data = mvgp.ObservedMatrix(torch.arange(size), torch.arange(size), signs, (size, size))
    model = mvgp.FullGP(prior, likelihood, method="cholesky")
    with pytest.raises(MvgpError, match=r"cholesky ended with relative residual|not positive definite"):
        model.fit(data)


def test_variances_refuse_a_factor_that_is_not_accurate():
    op = PairLinearOperator(
        *(to_linear_operator(torch.eye(3, dtype=torch.float64)),) * 2, PairIndex.complete((3, 3), None)
    )
    solver = CholeskySolver(op, torch.full((9,), 1.0, dtype=torch.float64))
    solver.chol = solver.chol * 1.1  # a factor of another matrix
    with pytest.raises(ConvergenceError, match="cholesky ended"):
        solver.half(torch.ones(9, 1, dtype=torch.float64), 1e-8)


@pytest.mark.parametrize("terms", [1, 2])
def test_a_preconditioner_bears_noise_that_rounding_would_lose(terms):
    """Noise from 1e-21 to 5e-9 on six cells of condition 1.5e4: the difference in Woodbury's identity had no digit left."""
    row = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
    op = to_linear_operator(row), to_linear_operator(7e-6 * torch.eye(3, dtype=torch.float64))
    pairs = PairIndex(torch.arange(6) // 3, torch.arange(6) % 3, (2, 3))
    noise = 2.3e-15 / torch.tensor([2.5e4, 4.1e-6, 2.5e5, 9.8e-4, 4.3e-7, 1.6e6], dtype=torch.float64)
    if terms == 1:
        solver = make_solver(*op, pairs, noise, method="cg", max_iterations=100)
    else:
        solver = make_sum_solver((op, op), pairs, noise, method="cg", max_iterations=100)
    rhs = torch.randn(6, 2, generator=randomness.generator(0), dtype=torch.float64)
    matrix = terms * torch.kron(row, 7e-6 * torch.eye(3, dtype=torch.float64)) + torch.diag(noise)
    solution = solver.solve(rhs, 1e-8)
    assert solution.solve_report.converged
    torch.testing.assert_close(solution.value, torch.linalg.solve(matrix, rhs), rtol=1e-3, atol=0)


def test_single_precision_is_not_judged_by_the_rounding_of_double():
    """A kernel of a fast spectrum has eigenvalues of -1e-8 in single precision; taken to double, it was called indefinite."""
    rotation = spd(4, 10.0)
    vectors = torch.linalg.eigh(rotation).eigenvectors
    spectrum = torch.tensor([1884.6, 4.1e-3, 0.0, -7.5e-6], dtype=torch.float64)
    kernel = ((vectors * spectrum) @ vectors.mT).float()
    kernel = (kernel + kernel.mT) / 2
    pairs = PairIndex(torch.arange(8) // 4, torch.arange(8) % 4, (2, 4))
    noise = torch.tensor(0.05)
    solver = make_solver(to_linear_operator(torch.eye(2)), to_linear_operator(kernel), pairs, noise, method="spectral")
    rhs = torch.randn(8, 1, generator=randomness.generator(0))
    solution = solver.solve(rhs, 1e-7)  # single precision alone does not get there
    matrix = torch.kron(torch.eye(2).double(), kernel.double()) + 0.05 * torch.eye(8).double()
    exact = torch.linalg.solve(matrix, rhs.double())  # of condition 4e4
    torch.testing.assert_close(solution.value.double(), exact, rtol=0, atol=0.02 * float(exact.norm()))
