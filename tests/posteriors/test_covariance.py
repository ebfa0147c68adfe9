"""The posterior covariance as an operator passes linear_operator's own test case."""

import unittest

import torch
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

import mvgp
from mvgp.linalg import PairIndex, PairLinearOperator
from mvgp.posteriors.covariance import ConditionalCovariance, PosteriorCovarianceLinearOperator
from mvgp.posteriors.query import Query
from tests import randomness


def covariance(size, seed):
    root = torch.randn(size, size, generator=randomness.generator(seed))
    return root @ root.T / size + torch.eye(size)


class TestPosteriorCovariance(LinearOperatorTestCase, unittest.TestCase):
    """In single precision, as the test case has it; the gradient treats the solver as constant."""

    seed = randomness.seed(0)
    should_test_sample = True
    queried = ([0, 3, 2, 1, 0, 3], [0, 1, 2, 0, 1, 0])

    def create_linear_op(self):
        kernels = [mvgp.kernels.PrecomputedKernel(covariance(size, size)) for size in (4, 3)]
        prior = mvgp.MatrixGP(*kernels, dtype=torch.float32)
        ops = prior.row_axis.covariance(), prior.col_axis.covariance()
        pairs = PairIndex(torch.tensor([0, 1, 3]), torch.tensor([2, 1, 1]), (4, 3))
        noise = torch.tensor(0.5)
        conditional = ConditionalCovariance(ops, pairs, noise, tolerance=1e-5)
        query = Query(prior, ops, *self.queried)
        of_query = PairLinearOperator(*ops, query.pairs)
        return PosteriorCovarianceLinearOperator(of_query, conditional.cross(query), conditional, query)

    def evaluate_linear_op(self, op):
        cross = op.cross.to_dense()
        return op.prior.to_dense() - cross @ torch.linalg.solve(op.conditional.solver.matrix.to(cross.dtype), cross.mT)
