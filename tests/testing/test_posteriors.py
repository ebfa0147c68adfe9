"""Every posterior of ours keeps the posterior's contract; the plain one is dense conditioning."""

import unittest

import torch

import mvgp
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.testing import PosteriorContract
from tests.oracles import dense_posterior
from tests.testing import problems


def dense(data, noise):
    prior = problems.prior()
    kernels = [axis.covariance().to_dense().detach() for axis in (prior.row_axis, prior.col_axis)]
    each = noise if data.weights is None else noise / data.weights
    return dense_posterior(*kernels, data.rows, data.cols, data.values, each)


class TestFullGP(PosteriorContract):
    def make_posterior(self):
        return mvgp.FullGP(problems.prior(), problems.noise(0.2)).fit(problems.data())

    def make_dense(self):
        return dense(problems.data(), 0.2)


class TestFullGPWithUnittest(PosteriorContract, unittest.TestCase):
    def make_posterior(self):
        return mvgp.FullGP(problems.prior(torch.float32), problems.noise(0.2)).fit(problems.data())

    def make_dense(self):
        return tuple(part.float() for part in dense(problems.data(), 0.2))


class TestCompleteGrid(PosteriorContract):
    """Every cell observed: the spectral closed form."""

    @staticmethod
    def _complete():
        return mvgp.ObservedMatrix.from_dense(torch.arange(30, dtype=torch.float64).reshape(5, 6).sin())

    def make_posterior(self):
        return mvgp.FullGP(problems.prior(), problems.noise(0.2)).fit(self._complete())

    def make_dense(self):
        return dense(self._complete(), 0.2)


class TestFullRanking(PosteriorContract):
    def make_posterior(self):
        return mvgp.FullGP(problems.prior(), BipartiteRankingLikelihood(noise=0.3)).fit(problems.labels())


class TestTraceGP(PosteriorContract):
    def make_posterior(self):
        return mvgp.TraceGP(problems.prior(), problems.noise(0.2), strength=0.2, trace_share=0.8).fit(problems.data())


class TestWholeLists(PosteriorContract):
    def make_posterior(self):
        ranking = BipartiteRankingLikelihood(margin=1.0, noise=0.2)
        return mvgp.TraceGP(problems.prior(), ranking, strength=0.2, trace_share=0.9).fit(problems.links())


class TestFactorGP(PosteriorContract):
    below_prior = False  # the Laplace approximation of a product of factors is that of another prior

    def make_posterior(self):
        return mvgp.FactorGP(problems.prior(), problems.noise(0.2), rank=2).fit(problems.data())
