"""Small posteriors of every kind, and how to compare two of them bit for bit."""

from __future__ import annotations

import gpytorch
import torch
from scipy import sparse

import mvgp
from mvgp.errors import SizeError
from mvgp.kernels import ConstantKernel, DiffusionKernel, FeatureKernel, Graph, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, LogisticLikelihood
from mvgp.linalg import PairIndex
from mvgp.posteriors.covariance import NoCovariance, WholeListCovariance
from mvgp.priors import ConstantMean, GivenMean, RowBiasMean
from tests import randomness
from tests.oracles import random_edges

M, N = 7, 11
RNG = randomness.numpy_generator(0)
ROWS, COLS = Graph(random_edges(RNG, M, 9), M), Graph(random_edges(RNG, N, 20), N, RNG.random(25))
X = torch.from_numpy(RNG.normal(size=(N, 2)))
CELLS = torch.from_numpy(RNG.permutation(M * N)[:40])


def gaussian(noise=0.3):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def precomputed(size):
    a = torch.from_numpy(randomness.numpy_generator(size).normal(size=(size, size - 2)))  # singular
    return PrecomputedKernel(a @ a.T)


def observed(cells=CELLS, weighted=False):
    generator = randomness.generator(1)
    values = torch.randn(len(cells), generator=generator, dtype=torch.float64)
    weights = torch.rand(len(cells), generator=generator, dtype=torch.float64) + 0.5 if weighted else None
    return mvgp.ObservedMatrix(cells // N, cells % N, values, (M, N), weights=weights)


def labelled():
    data = observed()
    return mvgp.ObservedMatrix(data.rows, data.cols, torch.where(data.values > 0.5, 1.0, -1.0), (M, N))


def links(lists="linked"):
    return mvgp.PositiveUnlabelled([0, 1, 2, 3, 3], [0, 1, 3, 4, 9], shape=(M, N), weight=0.05, lists=lists)


def prior(dtype=torch.float64, mean=None):
    rows = gpytorch.kernels.ScaleKernel(DiffusionKernel(ROWS))
    return mvgp.MatrixGP(rows, gpytorch.kernels.RBFKernel(), col_inputs=X, mean=mean, dtype=dtype)


def graphs(dtype=torch.float64, mean=None):
    return mvgp.MatrixGP(DiffusionKernel(ROWS, shift=0.5), DiffusionKernel(COLS, 0.4, 0.2), mean=mean, dtype=dtype)


def features(dtype=torch.float64):
    shared = DiffusionKernel(ROWS) + FeatureKernel(torch.ones(M), 0.3)
    linked = sparse.csr_array(randomness.numpy_generator(3).random((N, 5)) > 0.6)
    return mvgp.MatrixGP(shared, DiffusionKernel(COLS) + FeatureKernel(linked, 0.4), dtype=dtype)


def added(dtype=torch.float64):
    """A sum of three terms: inputs, nodes, a main effect."""
    popular = mvgp.MatrixGP(ConstantKernel(M, 0.5), DiffusionKernel(COLS), dtype=dtype)
    return prior(dtype, ConstantMean(0.7)) + graphs(dtype, RowBiasMean(torch.linspace(-1, 1, M))) + popular


def trace(prior, likelihood, data, **options):
    return mvgp.TraceGP(prior, likelihood, **{"strength": 0.2, "trace_share": 0.8, **options}).fit(data)


POSTERIORS = {
    "full": lambda dtype: mvgp.FullGP(prior(dtype), gaussian()).fit(observed()),
    "full, weighted": lambda dtype: mvgp.FullGP(prior(dtype, ConstantMean(0.7)), gaussian()).fit(
        observed(weighted=True)
    ),
    "full, whole grid": lambda dtype: mvgp.FullGP(graphs(dtype), gaussian()).fit(observed(torch.arange(M * N))),
    "full, cg": lambda dtype: mvgp.FullGP(graphs(dtype), gaussian(), method="cg", max_iterations=500).fit(observed()),
    "full, ranking": lambda dtype: mvgp.FullGP(prior(dtype), BipartiteRankingLikelihood(noise=0.1)).fit(labelled()),
    "trace": lambda dtype: trace(prior(dtype, RowBiasMean(torch.linspace(-1, 1, M))), gaussian(), observed()),
    "trace, weighted": lambda dtype: trace(prior(dtype), gaussian(), observed(weighted=True), trace_share=1.0),
    "trace, ranking": lambda dtype: trace(prior(dtype), BipartiteRankingLikelihood(noise=0.1), labelled()),
    "trace, no trace norm": lambda dtype: trace(graphs(dtype), gaussian(), observed(), trace_share=0.0),
    "trace, whole lists": lambda dtype: trace(graphs(dtype), BipartiteRankingLikelihood(noise=0.1), links()),
    "trace, biases": lambda dtype: trace(
        graphs(dtype, GivenMean(torch.outer(torch.arange(M), torch.arange(N)) / 50)),
        gaussian(),
        observed(),
        row_bias=0.5,
        col_bias=1.0,
    ),
    "trace, ball": lambda dtype: mvgp.TraceGP(
        graphs(dtype), gaussian(), penalty=mvgp.TraceBall(2.0, 0.3), tolerance=1e-2
    ).fit(observed()),
    "trace, features": lambda dtype: trace(features(dtype), gaussian(), observed()),
    "trace, zero": lambda dtype: trace(graphs(dtype), gaussian(), observed(), strength=2.0, trace_share=1.0),
    "sum": lambda dtype: mvgp.FullGP(added(dtype), gaussian()).fit(observed(weighted=True)),
    "sum, whole grid": lambda dtype: mvgp.FullGP(graphs(dtype) + graphs(dtype), gaussian()).fit(
        observed(torch.arange(M * N))
    ),
    "sum, ranking": lambda dtype: mvgp.FullGP(added(dtype), BipartiteRankingLikelihood(noise=0.1)).fit(labelled()),
    "sum, whole lists": lambda dtype: mvgp.FullGP(added(dtype), gaussian()).fit(links("all")),
    "sum, trace": lambda dtype: mvgp.TraceGP(
        added(dtype), gaussian(), strength=[0.2, 0.5, 0.5], trace_share=[0.8, 0.0, 0.0]
    ).fit(observed()),
    "sum, trace, whole lists": lambda dtype: mvgp.TraceGP(
        added(dtype), gaussian(), strength=[0.2, 0.5, 0.5], trace_share=[0.8, 0.0, 0.0]
    ).fit(links()),
    "sum, bernoulli": lambda dtype: mvgp.TraceGP(
        added(dtype), LogisticLikelihood(), strength=0.3, trace_share=[0.8, 0.0, 0.0], tolerance=1e-3
    ).fit(labelled()),
    "full, whole lists": lambda dtype: mvgp.FullGP(graphs(dtype), gaussian()).fit(links("all")),
    "factor": lambda dtype: mvgp.FactorGP(graphs(dtype), gaussian(), rank=2, restarts=1).fit(observed()),
    "factor, whole lists": lambda dtype: mvgp.FactorGP(graphs(dtype), gaussian(), rank=2, restarts=1).fit(links()),
}


def listed(dtype=torch.float64):
    """With the covariance that whole lists have when they are too large for a list of observations."""
    posterior = POSTERIORS["trace, whole lists"](dtype)
    noise = torch.tensor(0.1, dtype=dtype)
    posterior.conditional = WholeListCovariance(posterior._ops, links(), noise, tolerance=1e-6)
    return posterior


def all_listed(dtype=torch.float64):
    """The same where every row has a list."""
    posterior = POSTERIORS["sum, whole lists"](dtype)
    noise = torch.tensor(0.3, dtype=dtype)
    posterior.conditional = WholeListCovariance(posterior._terms, links("all"), noise, tolerance=1e-6)
    return posterior


def silent(dtype=torch.float64):
    """Without a covariance."""
    posterior = POSTERIORS["trace, whole lists"](dtype)
    pairs = PairIndex(torch.tensor([0, 3]), torch.tensor([2, 1]), posterior.shape)
    posterior.conditional = NoCovariance(pairs, "too large for it", SizeError)
    return posterior


def numbers(posterior):
    """Everything it predicts, by name."""
    rows, cols = torch.tensor([0, 6, 3, 3]), torch.tensor([10, 0, 4, 5])
    generator = randomness.generator(5)
    found = {
        "mean": posterior.mean(rows, cols),
        "variance": posterior.variance(rows, cols),
        "scores": posterior.scores(),
        "sample": posterior.sample(rows, cols, 3, generator=generator),
        "covariance": posterior(rows, cols).covariance_matrix,
        "noise": posterior.conditional.noise,
        "top": posterior.top(2, 3, num_samples=50).top_probability,
    }
    inputs = posterior.prior.terms[0].col_axis.inputs
    if len(posterior.prior.terms) == 1 and inputs.shape[1] == 2:
        new = {"col_inputs": torch.tensor([[0.1, 0.2], [-1.0, 0.5]], dtype=torch.float64)}
        found["new mean"] = posterior.mean([1, 2], [0, 1], **new)
        found["new variance"] = posterior.variance([1, 2], [0, 1], **new)
    if getattr(posterior, "mean_factors", None) is not None or isinstance(posterior, mvgp.posteriors.FactorPosterior):
        found["left"], found["right"] = posterior.factors
    return found


def facts(posterior):
    """What it says about itself, as text."""
    names = ("solve_report", "certificate", "penalty", "objective", "restarts", "rank")
    found = {name: repr(getattr(posterior, name)) for name in names if hasattr(posterior, name)}
    if getattr(posterior, "mean_factors", None) is not None:
        found["trace_norm"] = posterior.trace_norm.hex()
    return {"kind": type(posterior).__name__, "repr": repr(posterior), "dtype": str(posterior.prior.dtype), **found}


def bits(posterior):
    """All of it as text, equal just when every bit is."""
    found = {name: values.double().numpy().tobytes().hex() for name, values in numbers(posterior).items()}
    return {**found, **facts(posterior)}
