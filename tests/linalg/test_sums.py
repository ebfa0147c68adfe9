"""Sums of Kronecker terms: shared eigenvectors, solvers on single cells and on whole rows, against dense algebra."""

import itertools
import unittest

import pytest
import torch
from linear_operator import to_linear_operator
from linear_operator.operators import ConstantDiagLinearOperator, DiagLinearOperator
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase
from scipy import sparse

import mvgp
from mvgp.errors import InputError, NotPositiveSemidefiniteError
from mvgp.kernels import DiffusionKernel, Graph, GraphMaternKernel
from mvgp.linalg import complete_sums
from mvgp.linalg.complete_sums import RowsSumSystem, SharedRowsSystem, make_rows_system
from mvgp.linalg.cost import Limits
from mvgp.linalg.pair_operator import CovarianceSumLinearOperator, PairLinearOperator
from mvgp.linalg.pairs import PairIndex
from mvgp.linalg.spectra import SpectralLinearOperator, as_terms, spectral_bounds
from mvgp.linalg.stacked import Features, GramLinearOperator
from mvgp.linalg.sums import (
    StackedPreconditioner,
    grid_covariance,
    make_sum_solver,
    pair_covariance,
    pair_terms,
    shared_basis,
    shared_grid,
    sum_bounds,
)
from mvgp.posteriors.covariance import ConditionalCovariance, PosteriorCovarianceLinearOperator
from mvgp.posteriors.sums import sum_query
from tests import randomness

SIZES = (5, 7)


def draw(*size, number=0):
    return torch.randn(*size, generator=randomness.generator(number), dtype=torch.float64)


def dense(size, number):
    root = draw(size, size, number=number)
    return to_linear_operator(root @ root.mT / size + 0.1 * torch.eye(size, dtype=torch.float64))


def graph(size, number):
    return Graph(torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number)), size)


def constant(size, scale=1.0):
    unit = torch.full((size, 1), size**-0.5, dtype=torch.float64)
    return SpectralLinearOperator(torch.tensor([size * scale], dtype=torch.float64), unit)


def identity(size, scale):
    return ConstantDiagLinearOperator(torch.tensor([scale], dtype=torch.float64), size)


def of_graph(size, number, method):
    own = graph(size, number)
    kernels = DiffusionKernel(own, method=method), GraphMaternKernel(own, method=method, shift=0.1)
    return [kernel.operator().detach() for kernel in kernels]


SHARED = {
    "one graph, eigenvectors": lambda n: of_graph(n, 1, "eigen"),
    "one graph, Chebyshev": lambda n: of_graph(n, 1, "chebyshev"),
    "one graph and the identity": lambda n: [of_graph(n, 1, "chebyshev")[0], identity(n, 0.3)],
    "a graph, scaled and shifted": lambda n: [
        of_graph(n, 1, "eigen")[0],
        of_graph(n, 1, "eigen")[1] * 2.0 + identity(n, 1.0),
    ],
    "identities": lambda n: [identity(n, 0.3), identity(n, 2.0)],
    "one dense matrix": lambda n: [dense(n, 3), dense(n, 3) * 0.5],
    "constants": lambda n: [constant(n), constant(n, 3.0)],
    "a constant and the identity": lambda n: [constant(n), identity(n, 2.0)],
    "features": lambda n: [GramLinearOperator(torch.tensor(s).double(), FEATURES) for s in (1.0, 2.0)],
}
FEATURES = Features(draw(SIZES[0], 3, number=5))
APART = {
    "two graphs": lambda n: [of_graph(n, 1, "eigen")[0], of_graph(n, 2, "eigen")[0]],
    "two dense matrices": lambda n: [dense(n, 3), dense(n, 4)],
    "a graph and a constant": lambda n: [of_graph(n, 1, "chebyshev")[0], constant(n)],
    "an uneven diagonal": lambda n: [dense(n, 3), DiagLinearOperator(torch.arange(1.0, n + 1).double())],
}


@pytest.mark.parametrize("name", SHARED)
def test_eigenvectors_in_common(name):
    ops = SHARED[name](SIZES[0])
    basis = shared_basis(ops, 10)
    vectors = basis.vectors
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(SIZES[0], dtype=torch.float64), atol=1e-10, rtol=0)
    for op, values in zip(ops, basis.values, strict=True):
        torch.testing.assert_close((vectors * values) @ vectors.mT, op.to_dense(), atol=1e-9, rtol=0)
    assert shared_basis(ops, SIZES[0] - 1) is None


@pytest.mark.parametrize("name", APART)
def test_no_eigenvectors_in_common(name):
    assert shared_basis(APART[name](SIZES[0]), 10) is None


def terms_of(rows, cols):
    return tuple(zip(rows, cols, strict=True))


def dense_sum(terms):
    return sum(torch.kron(row.to_dense(), col.to_dense()) for row, col in terms)


def test_operators_of_a_sum():
    terms = terms_of(APART["two dense matrices"](5), APART["two graphs"](7))
    truth = dense_sum(terms)
    torch.testing.assert_close(grid_covariance(terms).to_dense(), truth, atol=1e-10, rtol=0)
    some, other = PairIndex(torch.tensor([4, 0]), torch.tensor([1, 6]), SIZES), PairIndex.complete(SIZES)
    at = some.rows * 7 + some.cols
    torch.testing.assert_close(pair_covariance(terms, some, other).to_dense(), truth[at], atol=1e-10, rtol=0)
    low, high = sum_bounds(terms)
    spectrum = torch.linalg.eigvalsh(truth)
    assert low <= spectrum[0] + 1e-9
    assert high >= spectrum[-1] - 1e-9
    assert as_terms(terms[0]) == (terms[0],)
    with pytest.raises(InputError, match="PairLinearOperator"):
        pair_terms(grid_covariance(terms))


@pytest.mark.parametrize("method", ["cholesky", "cg", "auto"])
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("cols", ["one graph, Chebyshev", "two dense matrices"])
def test_solutions_on_cells(method, equal, complete, cols):
    terms = terms_of(SHARED["one dense matrix"](5), {**SHARED, **APART}[cols](7))
    pairs = PairIndex.complete(SIZES)
    pairs = pairs if complete else pairs[torch.arange(0, 35, 2)]
    noise = torch.tensor(0.05).double() if equal else 0.01 + torch.arange(len(pairs)).double() / 10
    limits = Limits(cholesky=3)  # so that it is conjugate gradients unless there is a closed form
    solver = make_sum_solver(terms, pairs, noise, method=method, limits=limits)
    closed = complete and equal and cols.startswith("one") and method == "auto"
    assert solver.method == ("spectral" if closed else "cg" if method == "auto" else method)
    rhs = draw(len(pairs), 2, number=8)
    at = pairs.rows * 7 + pairs.cols
    truth = torch.linalg.solve(dense_sum(terms)[at][:, at] + torch.diag(noise.expand(len(pairs))), rhs)
    torch.testing.assert_close(solver.solve(rhs, 1e-11).value, truth, atol=1e-8, rtol=0)


def test_spectral_solutions_are_refused_where_there_are_none():
    terms = terms_of(SHARED["one dense matrix"](5), APART["two graphs"](7))
    noise = torch.tensor(0.1).double()
    with pytest.raises(InputError, match="share their eigenvectors"):
        make_sum_solver(terms, PairIndex.complete(SIZES), noise, method="spectral")
    with pytest.raises(InputError, match="every cell"):
        make_sum_solver(terms, PairIndex.complete(SIZES)[torch.arange(3)], noise, method="spectral")


@pytest.mark.parametrize("rest_cutoff", [0.0, 1.5, 1e9])
def test_the_stacked_preconditioner_is_an_inverse(rest_cutoff):
    """Of F F^T + R + D, whose diagonal is that of the system; with all directions it is the system itself."""
    terms = terms_of([dense(5, 1), dense(5, 2)], [dense(7, 3), dense(7, 4)])
    pairs = PairIndex.complete(SIZES)[torch.arange(0, 35, 3)]
    covariance = pair_covariance(terms, pairs)
    factors = [
        tuple((v.flip(0), w.flip(1)) for v, w in (torch.linalg.eigh(f.dense) for f in (p.product.row, p.product.col)))
        for p in pair_terms(covariance)
    ]
    noise = 0.1 + torch.rand(len(pairs), generator=randomness.generator(2)).double()
    made = StackedPreconditioner(factors, covariance.diagonal(), pairs, noise, cutoff=0.0, rest_cutoff=rest_cutoff)
    assert made.rank == {0.0: 70, 1e9: 0}.get(rest_cutoff, made.rank)
    inverse = made(torch.eye(len(pairs), dtype=torch.float64))
    factor = made.up(torch.eye(made.rank, dtype=torch.float64)) if made.rank else torch.zeros(len(pairs), 1).double()
    whole = factor @ factor.mT + torch.diag(made.noise.squeeze(1))
    torch.testing.assert_close(inverse @ whole, torch.eye(len(pairs), dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(whole.diagonal(), covariance.diagonal() + noise, atol=1e-9, rtol=0)
    if rest_cutoff == 0:
        torch.testing.assert_close(whole, covariance.to_dense() + torch.diag(noise), atol=1e-9, rtol=0)


def test_a_preconditioner_that_is_not_positive_definite_says_so():
    terms = terms_of([dense(5, 1), dense(5, 2)], [dense(7, 3), dense(7, 4)])
    pairs = PairIndex.complete(SIZES)
    bad = [((torch.tensor([1.0]), torch.full((n, 1), torch.nan)),) * 2 for n in SIZES]
    factors = [(bad[0][0], bad[1][0])]
    diagonal = pair_covariance(terms, pairs).diagonal().float()
    with pytest.raises(NotPositiveSemidefiniteError, match="preconditioner"):
        StackedPreconditioner(factors, diagonal, pairs, torch.full((35,), 0.1), rest_cutoff=0.0)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_features_bound_their_spectrum(is_sparse):
    matrix = draw(6, 4, number=3) * (draw(6, 4, number=4) > 0)
    features = Features(sparse.csr_array(matrix.numpy()) if is_sparse else matrix)
    op = GramLinearOperator(torch.tensor(0.7).double(), features)
    assert spectral_bounds(op)[1] >= float(torch.linalg.eigvalsh(op.to_dense())[-1]) - 1e-12


# Whole rows ---------------------------------------------------------------------------------------


def system_terms(kind):
    size = (6, 9)
    if kind == "shared, Chebyshev":
        return terms_of(of_graph(6, 1, "chebyshev"), of_graph(9, 2, "chebyshev"))
    if kind == "shared, tall":
        return terms_of(of_graph(12, 1, "chebyshev"), of_graph(4, 2, "eigen"))
    if kind == "shared, dense":
        return terms_of([dense(6, 1), dense(6, 1) * 2.0], [dense(9, 2), identity(9, 0.5)])
    if kind == "main effects":
        rows = [of_graph(6, 1, "chebyshev")[0], constant(6, 2.0), dense(6, 3)]
        return terms_of(rows, [of_graph(9, 2, "chebyshev")[0], dense(9, 4), constant(9, 3.0)])
    if kind == "the same rows twice":
        rows = [of_graph(6, 1, "eigen")[0], of_graph(6, 1, "eigen")[0], constant(6)]
        return terms_of(rows, [dense(9, 1), dense(9, 2), identity(9, 0.4)])
    assert kind == "general"
    return tuple((dense(size[0], q), dense(size[1], 10 + q)) for q in range(3))


KINDS = ["shared, Chebyshev", "shared, tall", "shared, dense", "main effects", "the same rows twice", "general"]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("all_rows", [True, False])
@pytest.mark.parametrize("noise", [0.7, 1e-3])  # by the diagonal, and by the closed form of some terms
@pytest.mark.parametrize("kind", KINDS)
def test_solutions_on_whole_rows(kind, noise, all_rows, special):
    terms = system_terms(kind)
    height, width = terms[0][0].shape[-1], terms[0][1].shape[-1]
    chosen = torch.arange(height) if all_rows else torch.tensor([0, 2, 3])
    cells = torch.tensor([1, width, 2 * width + 3]) if special else None
    system = make_rows_system(terms, chosen, noise, cells, noise / 5 if special else None)
    if kind.startswith("shared") and all_rows:
        assert isinstance(system, SharedRowsSystem)
    if not kind.startswith("shared"):
        assert isinstance(system, RowsSumSystem)
    at = (chosen.unsqueeze(1) * width + torch.arange(width)).reshape(-1)
    diagonal = torch.full((len(at),), noise, dtype=torch.float64)
    if special:
        diagonal[cells] = noise / 5
    matrix = dense_sum(terms)[at][:, at]
    x = draw(*system.shape, number=6)
    torch.testing.assert_close(system.product(x).reshape(-1), matrix @ x.reshape(-1), atol=1e-9, rtol=0)
    torch.testing.assert_close(system.diagonal().reshape(-1), matrix.diagonal(), atol=1e-9, rtol=0)
    whole = matrix + torch.diag(diagonal)
    torch.testing.assert_close(system.times(x).reshape(-1), whole @ x.reshape(-1), atol=1e-9, rtol=0)
    rhs = (whole @ x.reshape(-1)).view(system.shape)
    solution = system.solve(rhs, 1e-11)
    assert solution.solve_report.converged
    residual = (whole @ solution.value.reshape(-1) - rhs.reshape(-1)).norm() / rhs.norm()
    assert residual <= 1e-10
    assert system.solve(torch.zeros_like(rhs), 1e-11).value.abs().max() == 0


def test_main_effects_do_not_slow_down():
    """However large a main effect is, it is deflated."""
    used = []
    for scale in (1e-3, 1e3):
        rows = [dense(12, 1), constant(12, scale), identity(12, 0.2)]
        cols = [dense(15, 2), dense(15, 4), constant(15, scale)]
        system = make_rows_system(terms_of(rows, cols), torch.arange(12), 1.0)
        used.append(system.solve(draw(12, 15, number=3), 1e-9).solve_report.iterations)
    assert used[1] <= used[0] + 3


def test_large_systems_run_in_single_precision_first(monkeypatch):
    monkeypatch.setattr(complete_sums, "SINGLE_FROM", 1)
    terms = system_terms("main effects")
    system = make_rows_system(terms, torch.arange(6), 0.3)
    solution = system.solve(draw(6, 9, number=2), 1e-11)
    assert solution.solve_report.residual <= 1e-11
    matrix = dense_sum(terms) + 0.3 * torch.eye(54, dtype=torch.float64)
    truth = torch.linalg.solve(matrix, draw(6, 9, number=2).reshape(-1)).view(6, 9)
    torch.testing.assert_close(solution.value, truth, atol=1e-8, rtol=0)


# linear_operator's own tests ----------------------------------------------------------------------


def covariance(size, number):
    root = torch.randn(size, size, generator=randomness.generator(number))
    return root @ root.mT / size + 0.5 * torch.eye(size)


class TestSumOfPairs(LinearOperatorTestCase, unittest.TestCase):
    """In single precision, as the test case has it."""

    seed = randomness.seed(0)
    should_test_sample = True
    pairs = PairIndex(torch.tensor([0, 3, 2, 1, 0]), torch.tensor([0, 1, 2, 0, 1]), (4, 3))

    def create_linear_op(self):
        parts = [
            PairLinearOperator(
                covariance(4, q).requires_grad_(True), covariance(3, 9 + q).requires_grad_(True), self.pairs
            )
            for q in range(2)
        ]
        return CovarianceSumLinearOperator(*parts)

    def evaluate_linear_op(self, op):
        rows, cols = self.pairs.rows, self.pairs.cols
        return sum(
            part.row_op.to_dense()[rows][:, rows] * part.col_op.to_dense()[cols][:, cols] for part in op.linear_ops
        )


class TestPosteriorOfASum(LinearOperatorTestCase, unittest.TestCase):
    """The posterior covariance of a sum of terms."""

    seed = randomness.seed(0)
    should_test_sample = True
    queried = ([0, 3, 2, 1, 0, 3], [0, 1, 2, 0, 1, 0])

    def create_linear_op(self):
        kernels = [[mvgp.kernels.PrecomputedKernel(covariance(n, n + q)) for n in (4, 3)] for q in range(2)]
        prior = sum(mvgp.MatrixGP(*pair, dtype=torch.float32) for pair in kernels)
        terms = tuple((term.row_axis.covariance(), term.col_axis.covariance()) for term in prior.terms)
        pairs = PairIndex(torch.tensor([0, 1, 3]), torch.tensor([2, 1, 1]), (4, 3))
        conditional = ConditionalCovariance(terms, pairs, torch.tensor(0.5), tolerance=1e-5)
        query = sum_query(prior, terms, *self.queried)
        return PosteriorCovarianceLinearOperator(query.covariance(), conditional.cross(query), conditional, query)

    def evaluate_linear_op(self, op):
        cross = op.cross.to_dense()
        return op.prior.to_dense() - cross @ torch.linalg.solve(op.conditional.solver.matrix.to(cross.dtype), cross.mT)


def test_shared_grids_need_both_axes():
    pairs = [(SHARED["one dense matrix"], True), (APART["two dense matrices"], False)]
    for (rows, first), (cols, second) in itertools.product(pairs, pairs):
        assert (shared_grid(terms_of(rows(5), cols(7)), 10) is not None) == (first and second)
