"""The ranking likelihoods and target sets of ours keep their contracts."""

import unittest

import torch

from mvgp.likelihoods import BipartiteRankingLikelihood, GradedOrder, GradedRankingLikelihood, OrderCone, OrderedSimplex
from mvgp.testing import LikelihoodContract, TargetSetContract


def above(level, margin):
    """Every entry of a higher level at least (j - i) margins above one of a lower level."""
    level = torch.as_tensor(level)
    pairs = [(i, j) for i in range(len(level)) for j in range(len(level)) if level[i] > level[j]]
    matrix, least = torch.zeros(len(pairs), len(level)), torch.zeros(len(pairs))
    for place, (i, j) in enumerate(pairs):
        matrix[place, i], matrix[place, j], least[place] = 1, -1, margin * float(level[i] - level[j])
    return matrix, least


class TestBipartite(LikelihoodContract):
    def make_likelihood(self):
        return BipartiteRankingLikelihood(margin=1.0, noise=0.5)


class TestSimplexLikelihood(LikelihoodContract, unittest.TestCase):
    def make_likelihood(self):
        return BipartiteRankingLikelihood(noise=0.5, target=OrderedSimplex(2.0, 0.2))


class TestGraded(LikelihoodContract):
    labels = (0, 1, 2)

    def make_likelihood(self):
        return GradedRankingLikelihood(3, margin=0.5, noise=1.0)


class TestOrderCone(TargetSetContract):
    def make_target_set(self):
        return OrderCone(0.7)

    def inequalities(self, level):
        return above(level, 0.7)


class TestConeWithoutMargin(TargetSetContract, unittest.TestCase):
    def make_target_set(self):
        return OrderCone(0.0)

    def inequalities(self, level):
        return above(level, 0.0)


class TestGradedOrder(TargetSetContract):
    num_levels = 4

    def make_target_set(self):
        return GradedOrder(0.3)

    def inequalities(self, level):
        return above(level, 0.3)


class TestOrderedSimplex(TargetSetContract):
    def make_target_set(self):
        return OrderedSimplex(3.0, 0.1)

    def inequalities(self, level):
        matrix, least = above(level, 0.1)
        size = len(level)
        ones = torch.ones(1, size)
        matrix = torch.cat([matrix, torch.eye(size), ones, -ones])
        return matrix, torch.cat([least, torch.zeros(size), torch.tensor([3.0, -3.0])])


class OneAndBelow:
    """The target set of the docstring of TargetSet."""

    supports_weights, shift_invariant = True, False

    def projection(self, lists, weight=None):
        positive = lists.cell_level[lists.cell] == 1
        return lambda psi: torch.where(positive, torch.ones_like(psi), psi.clamp(max=0.0))


class TestOneAndBelow(TargetSetContract):
    def make_target_set(self):
        return OneAndBelow()

    def inequalities(self, level):
        up = torch.diag((level == 1).double())
        return torch.cat([up, -torch.eye(len(level)).double()]), torch.cat(
            [(level == 1).double(), -(level == 1).double()]
        )
