"""Every operator of ours passes the test case that linear_operator ships, and keeps its structure."""

import unittest
from unittest import mock

import pytest
import torch
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase, RectangularLinearOperatorTestCase
from scipy import sparse

from mvgp.kernels import Graph
from mvgp.linalg import KroneckerLinearOperator, PairIndex, PairLinearOperator, chebyshev
from mvgp.linalg.chebyshev import ChebyshevLinearOperator
from mvgp.linalg.pair_operator import PairProduct, Plan, SpectralKroneckerLinearOperator
from mvgp.linalg.spectra import SpectralLinearOperator
from mvgp.linalg.stacked import Features, GramLinearOperator, StackedLinearOperator
from tests import randomness
from tests.oracles import matrix_function


def whole_basis(op):
    """Probes e_1 ... e_n, and their lengths: as many times sqrt(n), so that the mean of their forms is the whole trace."""
    size = op.size(-1)
    basis = torch.eye(size, dtype=op.dtype).expand(*op.batch_shape, size, size).contiguous()
    return basis, torch.full((*op.batch_shape, 1, size), size**0.5, dtype=op.dtype)


class OperatorTestCase(LinearOperatorTestCase):
    """That of linear_operator, with nothing left to chance where it estimates log determinants.

    It takes them from random signs. With a whole basis instead, the mean of the forms e' log(A) e is the trace itself,
    and its own tolerance holds whatever the seed. Operators that are drawn are in double precision: its tolerances are
    relative for each entry, which may be small by chance, and so may the distance of two eigenvalues.
    """

    drawn = True

    def setUp(self):
        if self.drawn:
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            self.addCleanup(torch.set_default_dtype, before)
        super().setUp()

    def _test_inv_quad_logdet(self, *args, **options):
        with mock.patch.object(LinearOperator, "_probe_vectors_and_norms", whole_basis):
            return super()._test_inv_quad_logdet(*args, **options)


def orthogonal(size, rank=None, seed=0):
    generator = randomness.generator(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=generator)).Q[:, :rank]


def covariance(size, seed=0):
    generator = randomness.generator(seed)
    root = torch.randn(size, size, generator=generator)
    return root @ root.T / size + torch.eye(size)


class TestSpectral(OperatorTestCase, unittest.TestCase):
    seed = randomness.seed(0)
    should_test_sample = True

    def create_linear_op(self):
        return SpectralLinearOperator(torch.rand(6) + 0.5, orthogonal(6))

    def evaluate_linear_op(self, op):
        return op.vectors @ torch.diag_embed(op.spectrum) @ op.vectors.T


class TestSpectralBatch(TestSpectral):
    should_test_sample = False

    def create_linear_op(self):
        return SpectralLinearOperator(2 * torch.rand(3, 2, 6) + 1.5, orthogonal(6))


def small_laplacian(dtype=torch.float32):
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 4)]
    return Graph(edges, 6).shifted_laplacian(dtype, torch.device("cpu"))


class TestChebyshev(OperatorTestCase, unittest.TestCase):
    seed = randomness.seed(0)
    drawn = False
    should_test_sample = True

    def create_linear_op(self):
        values = torch.exp(-chebyshev.nodes(12, torch.float32)) + 0.5
        return ChebyshevLinearOperator(values, small_laplacian(), 0.0)

    def evaluate_linear_op(self, op):
        s = op.matrix.to(op.dtype).tensor.to_dense()
        series = chebyshev.coefficients(op.values)
        terms = [torch.eye(len(s), dtype=s.dtype), s]
        while len(terms) < series.shape[-1]:
            terms.append(2 * s @ terms[-1] - terms[-2])
        return torch.einsum("...k,kij->...ij", series, torch.stack(terms))


class TestChebyshevBatch(TestChebyshev):
    should_test_sample = False

    def create_linear_op(self):
        times = torch.tensor([[0.5, 1.0], [1.5, 0.2], [0.9, 0.7]]).unsqueeze(-1)
        values = torch.exp(-times * chebyshev.nodes(12, torch.float32)) + 0.5
        return ChebyshevLinearOperator(values, small_laplacian(), 0.0)


def small_features(kind):
    dense = torch.cat(
        [torch.diag(torch.linspace(1, 2, 6)), 0.4 * torch.randn(6, 4, generator=randomness.generator(1))],
        dim=1,
    )
    dense[2, 7:] = 0
    return Features(sparse.csr_array(dense.numpy()) if kind == "sparse" else dense)


class TestGram(OperatorTestCase, unittest.TestCase):
    seed = randomness.seed(0)
    drawn = False
    kind = "sparse"
    should_test_sample = True

    def create_linear_op(self):
        return GramLinearOperator(torch.tensor(1.3), small_features(self.kind))

    def evaluate_linear_op(self, op):
        dense = op.features.to(op.dtype, op.device).rows(torch.arange(6))
        return op.scale[..., None, None] * (dense @ dense.T)


class TestGramDense(TestGram):
    kind = "dense"


class TestGramBatch(TestGram):
    should_test_sample = False

    def create_linear_op(self):
        return GramLinearOperator(torch.rand(3, 2) + 0.5, small_features(self.kind))


class TestSideBySide(RectangularLinearOperatorTestCase, unittest.TestCase):
    seed = randomness.seed(0)

    def create_linear_op(self):
        generator = randomness.generator(2)
        parts = [torch.randn(5, width, generator=generator) for width in (3, 2, 4)]
        return StackedLinearOperator(*(to_linear_operator(part) for part in parts))

    def evaluate_linear_op(self, op):
        return torch.cat([part.to_dense() for part in op.parts], dim=-1)


class TestStacked(TestSideBySide):
    def create_linear_op(self):
        return super().create_linear_op().mT

    def evaluate_linear_op(self, op):
        return torch.cat([part.to_dense() for part in op.parts], dim=-2)


class TestKronecker(OperatorTestCase, unittest.TestCase):
    seed = randomness.seed(0)
    should_call_lanczos = True
    should_call_lanczos_diagonalization = False
    should_test_sample = True

    def create_linear_op(self):
        return KroneckerLinearOperator(covariance(2, 1), covariance(3, 2))

    def evaluate_linear_op(self, op):
        first, second = (factor.to_dense() for factor in op.linear_ops)
        return torch.einsum("...ij,...kl->...ikjl", first, second).reshape(*op.batch_shape, *op.matrix_shape)


class TestSpectralKronecker(OperatorTestCase, unittest.TestCase):
    seed = randomness.seed(0)
    should_test_sample = True

    def create_linear_op(self):
        return SpectralKroneckerLinearOperator(torch.rand(2, 3) + 0.5, orthogonal(2), orthogonal(3, seed=1))

    def evaluate_linear_op(self, op):
        vectors = torch.kron(op.row_vectors, op.col_vectors)
        return vectors @ torch.diag_embed(op.spectrum.flatten(-2)) @ vectors.T


class TestSpectralKroneckerBatch(TestSpectralKronecker):
    should_test_sample = False

    def create_linear_op(self):
        return SpectralKroneckerLinearOperator(torch.rand(2, 2, 3) + 0.5, orthogonal(2), orthogonal(3, seed=1))


def pair_dense(op):
    row, col = op.row_op.to_dense(), op.col_op.to_dense()
    return row[op.left.rows][:, op.right.rows] * col[op.left.cols][:, op.right.cols]


class TestPairs(OperatorTestCase, unittest.TestCase):
    """Unsorted pairs; rows 1 and 4 and column 0 have none."""

    seed = randomness.seed(0)
    should_test_sample = True
    plan = None
    index = PairIndex(torch.tensor([3, 0, 2, 0, 3, 2]), torch.tensor([1, 3, 2, 1, 2, 3]), (5, 4))

    def create_linear_op(self):
        return PairLinearOperator(covariance(5, 1), covariance(4, 2), self.index, plan=self.plan)

    def evaluate_linear_op(self, op):
        return pair_dense(op)


class TestPairsSparse(TestPairs):
    plan = Plan(0.0, first="sparse", second="sampled")


class TestPairsRowsFirst(TestPairs):
    plan = Plan(0.0, rows_first=True, first="sparse", second="sampled")


class TestPairsGrid(TestPairs):
    plan = Plan(0.0, rows_first=True)


class TestPairsLazy(TestPairs):
    plan = Plan(0.0, first="lazy", second="lazy")


class TestPairsBatch(TestPairs):
    should_test_sample = False

    def create_linear_op(self):
        rows = torch.stack([torch.stack([covariance(5, 2 * i + j) for j in range(2)]) for i in range(3)])
        return PairLinearOperator(rows, covariance(4, 2), self.index)

    def evaluate_linear_op(self, op):
        row, col = op.row_op.to_dense(), op.col_op.to_dense()
        rows, cols = op.left.rows, op.left.cols
        return row[..., rows, :][..., rows] * col[..., cols, :][..., cols]


class TestPairsCross(RectangularLinearOperatorTestCase, unittest.TestCase):
    """Different lists on both sides, with repeats, and rectangular factors."""

    seed = randomness.seed(0)
    left = PairIndex(torch.tensor([1, 0, 1, 2]), torch.tensor([0, 2, 0, 1]), (3, 3))
    right = PairIndex(torch.tensor([3, 0, 2, 0, 3]), torch.tensor([1, 3, 1, 1, 1]), (5, 4))

    def create_linear_op(self):
        return PairLinearOperator(torch.randn(3, 5), torch.randn(3, 4), self.left, self.right)

    def evaluate_linear_op(self, op):
        return pair_dense(op)


@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("first", ["dense", "lazy", "sparse"])
@pytest.mark.parametrize("second", ["dense", "lazy", "sampled"])
@pytest.mark.parametrize("kind", ["dense", "graph"])
def test_every_plan_gives_the_same_product(rows_first, first, second, kind):
    rng = randomness.numpy_generator(3)
    rows, cols = torch.from_numpy(rng.integers(0, 70, 300)), torch.from_numpy(rng.integers(0, 130, 300))
    left = PairIndex(rows[:40], cols[:40], (75, 140))
    right = PairIndex(rows, cols, (75, 140))
    if kind == "graph":
        ops = []
        for size in (75, 140):
            s = Graph(rng.integers(0, size, (3 * size, 2)), size).shifted_laplacian(torch.float64, torch.device("cpu"))
            ops.append(ChebyshevLinearOperator(torch.exp(-chebyshev.nodes(20)), s))
    else:
        ops = [covariance(size, size).double() for size in (75, 140)]
    for pair in ((left, right), (right, right)):
        op = PairLinearOperator(*ops, *pair, plan=Plan(0.0, rows_first=rows_first, first=first, second=second))
        rhs = torch.randn(len(pair[1]), 3, dtype=torch.float64)
        torch.testing.assert_close(op._matmul(rhs), pair_dense(op) @ rhs, rtol=1e-11, atol=1e-10)


def test_pairwise_plan():
    index = PairIndex(torch.tensor([0, 3, 3]), torch.tensor([1, 1, 0]), (4, 2))
    op = PairLinearOperator(covariance(4).double(), covariance(2).double(), index, plan=Plan(0.0, pairwise=True))
    torch.testing.assert_close(op._matmul(torch.eye(3).double()), pair_dense(op))


def test_products_are_cut_into_chunks():
    index = TestPairs.index
    op = PairLinearOperator(covariance(5).double(), covariance(4).double(), index)
    product = PairProduct(op.row_op, op.col_op, index, index, grid_bytes=1)
    rhs = torch.randn(6, 5, dtype=torch.float64)
    torch.testing.assert_close(product(rhs, Plan(0.0)), pair_dense(op) @ rhs)


def test_scaling_keeps_the_structure():
    kron = KroneckerLinearOperator(covariance(2), covariance(3))
    assert type(2.5 * kron) is KroneckerLinearOperator
    assert type(SpectralLinearOperator(torch.rand(4), orthogonal(4)) * 3) is SpectralLinearOperator
    spectral = SpectralKroneckerLinearOperator(torch.rand(2, 3), orthogonal(2), orthogonal(3))
    assert type(spectral / 2) is SpectralKroneckerLinearOperator
    cheb = TestChebyshev().create_linear_op()
    assert type(cheb * torch.tensor(2.0)) is ChebyshevLinearOperator


def test_row_major_order_with_unequal_sizes():
    a, b = covariance(2).double(), covariance(5).double()
    v = torch.randn(2, 5, dtype=torch.float64)
    out = KroneckerLinearOperator(a, b) @ v.flatten().unsqueeze(1)
    torch.testing.assert_close(out.reshape(2, 5), a @ v @ b.T)


def test_kronecker_logdet_does_not_clamp():
    a, b = 1e-6 * torch.eye(3).double(), 1e-5 * torch.eye(4).double()
    found = KroneckerLinearOperator(a, b).logdet()
    torch.testing.assert_close(found, torch.kron(a, b).logdet())


def test_spectral_kronecker_diagonal_needs_no_large_matrix():
    """(M, N) = (600, 700): a dense diagonal would need 1.4 TB."""
    u, v = orthogonal(600, 5).double(), orthogonal(700, 4).double()
    spectrum = torch.rand(5, 4, dtype=torch.float64)
    diagonal = SpectralKroneckerLinearOperator(spectrum, u, v).diagonal()
    torch.testing.assert_close(diagonal.reshape(600, 700), u**2 @ spectrum @ (v**2).T)


@pytest.mark.parametrize("function", [lambda x: torch.exp(-3 * x), lambda x: 1 / (1 + 4 * (x + 1))])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-8, 1e-12])
def test_chebyshev_reaches_its_tolerance_with_no_more_terms_than_needed(function, tolerance):
    rng = randomness.numpy_generator(0)
    s = Graph(rng.integers(0, 49, (120, 2)), 50).shifted_laplacian(torch.float64, torch.device("cpu"))
    count = chebyshev.count_for(function, tolerance)
    op = ChebyshevLinearOperator(function(chebyshev.nodes(count)), s, tolerance)
    dense = s.tensor.to_dense()
    truth = matrix_function(dense, function)
    largest = torch.linalg.matrix_norm(truth, 2)
    assert torch.linalg.matrix_norm(op.to_dense() - truth, 2) <= 4 * tolerance * largest
    root = op.root().to_dense()
    assert torch.linalg.matrix_norm(root @ root - truth, 2) <= 8 * tolerance * largest
    looser = chebyshev.count_for(function, 100 * tolerance)
    assert looser < count


def test_chebyshev_gradient():
    s = small_laplacian(torch.float64)
    rhs = torch.randn(6, 3, dtype=torch.float64)

    def product(time, vector):
        return ChebyshevLinearOperator(torch.exp(-time * chebyshev.nodes(14)), s) @ vector

    time = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(product, (time, rhs.requires_grad_()))
    assert torch.autograd.gradcheck(
        lambda t: ChebyshevLinearOperator(torch.exp(-t * chebyshev.nodes(14)), s).diagonal(), (time,)
    )


def test_pair_gradient_flows_to_both_factors():
    index = TestPairs.index
    rhs = torch.randn(6, 2, dtype=torch.float64)
    s = small_laplacian(torch.float64)

    def product(scale, time):
        row = covariance(5).double() * scale
        col = ChebyshevLinearOperator(torch.exp(-time * chebyshev.nodes(14)), s)
        return PairLinearOperator(row, col, PairIndex(index.rows, index.cols, (5, 6))) @ rhs

    ones = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(product, (ones, torch.tensor(0.8, dtype=torch.float64, requires_grad=True)))


@pytest.mark.parametrize("case", [TestChebyshev, TestGram])
def test_double_converts_the_constant_part_too(case):
    op = case().create_linear_op()
    wide = op.double()
    product = wide @ torch.eye(op.shape[-1], dtype=torch.float64)
    assert product.dtype == torch.float64
    torch.testing.assert_close(product.float(), op.to_dense(), rtol=1e-5, atol=1e-5)
