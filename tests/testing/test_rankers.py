"""Everything of ours that ranks keeps the ranker's contract."""

import torch

import mvgp
from mvgp.hyperparameters.records import AveragedRanker
from mvgp.kernels import Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.baselines import (
    EASE,
    EDLAE,
    GFCF,
    IALS,
    GraphIALS,
    Katz,
    NeighbourVoting,
    Popularity,
    Propagation,
    PureSVD,
    RowGP,
    RP3beta,
)
from mvgp.prioritise.tables import LinkSet
from mvgp.testing import RankerContract
from tests.testing import problems

GRAPHS = Graph([(0, 1), (1, 2), (3, 4)], 5), Graph([(0, 1), (2, 3), (4, 5)], 6)


class TestPairwiseSVM(RankerContract):
    def make_ranker(self):
        return mvgp.PairwiseSVM(problems.prior(), cost=1.0).fit(problems.labels())


class TestAveragedRanker(RankerContract):
    def make_ranker(self):
        ranking = BipartiteRankingLikelihood(margin=1.0, noise=0.1)
        models = [mvgp.TraceGP(problems.prior(), ranking, strength=s, trace_share=0.9) for s in (0.2, 0.4)]
        return AveragedRanker([model.fit(problems.links()) for model in models])


class TestPopularity(RankerContract):
    def make_ranker(self):
        return Popularity().fit(problems.links())


class TestSinglePrecision(RankerContract):
    def make_ranker(self):
        return EASE(0.5, dtype=torch.float32).fit(problems.links())


class TestEASE(RankerContract):
    def make_ranker(self):
        return EASE(0.5).fit(problems.links())


class TestPureSVD(RankerContract):
    def make_ranker(self):
        return PureSVD(2).fit(problems.links())


class TestKatz(RankerContract):
    def make_ranker(self):
        return Katz(*GRAPHS).fit(problems.links())


class TestPropagation(RankerContract):
    def make_ranker(self):
        return Propagation(*GRAPHS).fit(problems.links())


class TestNeighbourVoting(RankerContract):
    def make_ranker(self):
        return NeighbourVoting(GRAPHS[0]).fit(problems.links())


class TestEDLAE(RankerContract):
    def make_ranker(self):
        return EDLAE(0.5, 0.3).fit(problems.links())


class TestRowGP(RankerContract):
    def make_ranker(self):
        return RowGP(GRAPHS[0]).fit(problems.links())


class TestRP3beta(RankerContract):
    def make_ranker(self):
        return RP3beta().fit(problems.links())


class TestGFCF(RankerContract):
    def make_ranker(self):
        return GFCF(2).fit(problems.links())


class TestIALS(RankerContract):
    def make_ranker(self):
        return IALS(2).fit(problems.links())


class TestGraphIALS(RankerContract):
    def make_ranker(self):
        return GraphIALS(*GRAPHS, 2).fit(problems.links())


class TestAuto(RankerContract):
    """Links too few to choose by: equal weights of all terms."""

    def make_ranker(self):
        links = problems.links()
        return Auto(LinkSet("abcde", "uvwxyz", links.rows, links.cols, *GRAPHS)).fit(links)
