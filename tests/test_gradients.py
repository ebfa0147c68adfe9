"""A tensor that requires a gradient goes in: the gradient comes out right, or the argument is refused by its name."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import (
    MatrixMarginalLogLikelihood,
    choose,
    choose_kernels,
    learn,
    learn_grid,
    learn_trace,
    leave_one_out,
    log_marginal,
    nested_cross_validation,
    trace_bound,
)
from mvgp.hyperparameters.complete_grid import RotatedGrid
from mvgp.hyperparameters.probes import Reference, log_determinant
from mvgp.kernels import (
    DiffusionKernel,
    FeatureKernel,
    Graph,
    GraphMaternKernel,
    PrecomputedKernel,
    RegularizedLaplacianKernel,
)
from mvgp.likelihoods import (
    AxisNoiseGaussianLikelihood,
    BipartiteRankingLikelihood,
    GradedRankingLikelihood,
    LevelProjection,
    OrderCone,
    OrderedSimplex,
    RankedLabels,
    RankingLists,
    project_levels,
    project_order,
    project_ordered_simplex,
)
from mvgp.likelihoods import distribution as chain_probability
from mvgp.linalg import root
from mvgp.metrics import auc, coverage, ranking_scores
from mvgp.models import PairwiseSVM
from mvgp.posteriors.ranks import beats, expected_hits
from mvgp.priors import BiasedMean, ConstantMean, GivenMean, PopularityMean, RowBiasMean, ZeroMean
from tests import randomness

M, N, T = 4, 6, 11
F64 = torch.float64
GRAPH, RING = Graph([(0, 1), (1, 2), (2, 3)], M), Graph([(i, (i + 1) % N) for i in range(N)], N)
GENERATOR = randomness.generator(3)


def draw(*size, positive=False):
    found = torch.randn(*size, generator=GENERATOR, dtype=F64)
    return found.abs() + 0.5 if positive else found


CELLS = torch.randperm(M * N, generator=GENERATOR)[:T].sort().values
ROWS, COLS = CELLS // N, CELLS % N
VALUES, WEIGHTS, COMPLETE = draw(T), draw(T, positive=True), draw(M, N)
ROW_INPUTS, COL_INPUTS, NEW = draw(M, 2), draw(N, 2), draw(3, 2)
LABELS = torch.tensor([1.0, -1, 1, -1, -1, 1, -1, 1, 1, -1, -1], dtype=F64)
TASK = torch.tensor([0] * 6 + [1] * 5)
SCORES = draw(T)


def rbf(scale=1.3):
    found = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    found.outputscale = scale
    return found


def gaussian(noise=0.4):
    found = gpytorch.likelihoods.GaussianLikelihood().double()
    found.noise = torch.tensor(noise, dtype=F64)
    return found


def prior_at(col_inputs=COL_INPUTS, mean=None):
    return mvgp.MatrixGP(DiffusionKernel(GRAPH, 0.8, 0.3), rbf(), col_inputs=col_inputs, mean=mean)


def graph_prior():
    return mvgp.MatrixGP(DiffusionKernel(GRAPH, 0.8, 0.3), DiffusionKernel(RING, 0.5, 0.2))


def data_of(values=VALUES, weights=None, shape=(M, N)):
    return mvgp.ObservedMatrix(ROWS, COLS, values, shape, weights=weights)


def full_data(values=COMPLETE):
    return mvgp.ObservedMatrix.from_dense(values)


def fitted(**_):
    return mvgp.FullGP(prior_at(), gaussian()).fit(data_of())


# ---------------------------------------------------------------------------------------------------------------------
# Where the gradient is carried: a function of one tensor, and the tensor


def marginal(method, what):
    """The log marginal likelihood as a function of one tensor; probes stay the same from call to call."""
    options = {"method": method, "tolerance": 1e-12}
    if method == "probes":
        options |= {"probe_tolerance": 1e-11}
    kept = {}

    def value(x):
        prior = prior_at(x if what == "inputs" else COL_INPUTS, ConstantMean(0.2))
        mll = kept.setdefault("mll", MatrixMarginalLogLikelihood(gaussian(), prior, **options))
        mll.model = prior
        weights = x if what == "weights" else WEIGHTS
        rows, cols, target = ROWS, COLS, x if what == "values" else VALUES
        if method == "spectral":
            data = full_data(x if what == "values" else COMPLETE)
            rows, cols, target, weights = data.rows, data.cols, data.values, None
        return mll(prior(rows, cols), target, weights=weights) * len(target)

    return value


def log_marginal_of(x):
    return log_marginal(prior_at(), gaussian(), data_of(x)).value


def log_marginal_by_weights(x):
    return log_marginal(prior_at(), gaussian(), data_of(weights=x)).value


def log_marginal_by_inputs(x):
    return log_marginal(prior_at(x), gaussian(), data_of()).value


def log_marginal_of_mask(x):
    return log_marginal(prior_at(), gaussian(), mvgp.ObservedMatrix.from_mask(x, COMPLETE > 0)).value


REFERENCE = Reference.build(prior_at()(ROWS, COLS).lazy_covariance_matrix, 0.4 / WEIGHTS)


def log_det_by_noise(x):
    covariance = prior_at()(ROWS, COLS).lazy_covariance_matrix
    return log_determinant(covariance, x, REFERENCE, tolerance=1e-11).value


def log_det_by_inputs(x):
    covariance = prior_at(x)(ROWS, COLS).lazy_covariance_matrix
    return log_determinant(covariance, 0.4 / WEIGHTS, REFERENCE, tolerance=1e-11).value


def weighted_sum(found):
    """() of numbers of any shape, none of them alike."""
    return (found * torch.linspace(1, 2, found.numel(), dtype=F64).reshape(found.shape)).sum()


def variance_by_inputs(x):
    prior = mvgp.MatrixGP(DiffusionKernel(GRAPH), gpytorch.kernels.LinearKernel(), col_inputs=x)
    return weighted_sum(prior(ROWS, COLS).variance)


def sample_by_inputs(x):
    with torch.random.fork_rng():
        randomness.seed_torch(1)
        return weighted_sum(prior_at(x)(ROWS, COLS).rsample(torch.Size([2])))


def covariance_sample_by_inputs(x):
    with torch.random.fork_rng():
        randomness.seed_torch(1)
        return weighted_sum(prior_at(x).covariance().zero_mean_mvn_samples(2))


def posterior_sample(x):
    with torch.random.fork_rng():
        randomness.seed_torch(1)
        return weighted_sum(fitted()([0, 1], [0, 2], col_inputs=x).rsample(torch.Size([2])))


def log_marginal_by_row_noise(x):
    likelihood = AxisNoiseGaussianLikelihood(M, noise=0.4)
    del likelihood.raw_row_deviation
    likelihood._parameters["raw_row_deviation"] = x
    return log_marginal(prior_at(), likelihood, data_of()).value


def biased_mean(x):
    prior = prior_at(mean=BiasedMean(ZeroMean(), x, torch.zeros(N, dtype=F64)))
    return log_marginal(prior, gaussian(), data_of()).value


def expected(likelihood, x):
    with torch.random.fork_rng():
        randomness.seed_torch(1)
        dist = gpytorch.distributions.MultivariateNormal(SCORES, torch.eye(T, dtype=F64))
        return weighted_sum(likelihood.expected_log_prob(LABELS, dist, task=TASK, weight=x, complete_lists=True))


def ranking():
    return BipartiteRankingLikelihood(margin=1.0, noise=0.3)


CARRIED = {
    **{
        f"mll {method}, {what}": (marginal(method, what), at)
        for method in ("cholesky", "probes")
        for what, at in {"values": VALUES, "weights": WEIGHTS, "inputs": COL_INPUTS}.items()
    },
    "mll spectral, values": (marginal("spectral", "values"), COMPLETE),
    "mll spectral, inputs": (marginal("spectral", "inputs"), COL_INPUTS),
    "log_marginal, values": (log_marginal_of, VALUES),
    "log_marginal, weights": (log_marginal_by_weights, WEIGHTS),
    "log_marginal, inputs": (log_marginal_by_inputs, COL_INPUTS),
    "log_marginal, from_dense": (lambda x: log_marginal(prior_at(), gaussian(), full_data(x)).value, COMPLETE),
    "log_marginal, from_mask": (log_marginal_of_mask, COMPLETE),
    "log_marginal, with_values": (lambda x: log_marginal_of(data_of().with_values(x).values), VALUES),
    "log_marginal, BiasedMean": (biased_mean, draw(M)),
    "to_dense": (lambda x: weighted_sum(data_of(x).to_dense().nan_to_num()), VALUES),
    "log_determinant, noise": (log_det_by_noise, 0.4 / WEIGHTS),
    "log_determinant, inputs": (log_det_by_inputs, COL_INPUTS),
    "prior, covariance of pairs": (lambda x: weighted_sum(prior_at(x)(ROWS, COLS).covariance_matrix), COL_INPUTS),
    "prior, lazy product": (
        lambda x: weighted_sum(prior_at(x)(ROWS, COLS).lazy_covariance_matrix @ SCORES),
        COL_INPUTS,
    ),
    "prior, variance": (variance_by_inputs, COL_INPUTS),
    "prior.covariance": (lambda x: weighted_sum(prior_at(x).covariance().to_dense()), COL_INPUTS),
    "prior, rsample": (sample_by_inputs, COL_INPUTS),
    "prior.covariance, samples": (covariance_sample_by_inputs, COL_INPUTS),
    "posterior, mean": (lambda x: weighted_sum(fitted()([0, 1], [0, 2], col_inputs=x).mean), NEW),
    "posterior, variance": (lambda x: weighted_sum(fitted()([0, 1], [0, 2], col_inputs=x).variance), NEW),
    "posterior, covariance": (lambda x: weighted_sum(fitted()([0, 1], [0, 2], col_inputs=x).covariance_matrix), NEW),
    "posterior, rsample": (posterior_sample, NEW),
    "posterior.mean": (lambda x: weighted_sum(fitted().mean([0, 1], [0, 2], col_inputs=x)), NEW),
    "posterior.variance": (lambda x: weighted_sum(fitted().variance([0, 1], [0, 2], col_inputs=x)), NEW),
    "posterior.interval": (lambda x: weighted_sum(fitted().interval([0, 1], [0, 2], col_inputs=x)[0]), NEW),
    "posterior.scores": (lambda x: weighted_sum(fitted().scores([1], col_inputs=x)), NEW),
    "log_marginal, noise of rows": (log_marginal_by_row_noise, draw(M)),
    "log_marginal, warped": (lambda x: log_marginal_of(VALUES.sign() * VALUES.abs() ** x.exp()), draw(1)),
    "log_marginal, deep kernel": (lambda x: log_marginal_by_inputs(torch.tanh(COL_INPUTS @ x)), draw(2, 2)),
    "loss, scores": (lambda x: ranking().loss(x, LABELS, TASK, WEIGHTS), SCORES),
    "loss, weight": (lambda x: ranking().loss(SCORES, LABELS, TASK, x), WEIGHTS),
    "retarget, scores": (lambda x: weighted_sum(ranking().retarget(x, LABELS, TASK, WEIGHTS)), SCORES),
    "log_prob, scores": (lambda x: ranking().log_prob(x, LABELS, TASK, WEIGHTS), SCORES),
    "log_prob, weight": (lambda x: ranking().log_prob(SCORES, LABELS, TASK, x), WEIGHTS),
    "graded log_prob, weight": (
        lambda x: GradedRankingLikelihood(3).log_prob(SCORES, torch.arange(T) % 3, TASK, x),
        WEIGHTS,
    ),
    "expected_log_prob, weight": (lambda x: expected(ranking(), x), WEIGHTS),
    "RankedLabels, scale": (lambda x: RankedLabels(SCORES, TASK, 2, x, 2).log_prob(LABELS), WEIGHTS),
    "project_order, scores": (lambda x: weighted_sum(project_order(x, LABELS > 0, TASK, 0.5, WEIGHTS)), SCORES),
    "project_levels, scores": (lambda x: weighted_sum(project_levels(x, torch.arange(T) % 3, TASK, 0.5)), SCORES),
    "project_ordered_simplex, scores": (
        lambda x: weighted_sum(project_ordered_simplex(x, LABELS > 0, TASK)),
        torch.linspace(0.3, 0.0, T, dtype=F64) + 0.1 * LABELS,  # not drawn: at a corner of the set there is no gradient
    ),
}


# The grid of a chain moves with the weights, and the gradient is that of the integral on a fixed one: the two differ by
# the error of the rule, of the order of FINENESS^-5, up to 3e-3 of the gradient with 5 places for each standard deviation
# (seed shifts 0 to 3) where the probability is tiny. With 20 places it is 4^5 = 1024 times smaller.
ROUGH = {"graded log_prob, weight": 1e-4}


def differences(function, at, step=1e-5):
    """The gradient by central differences with gradients switched on, as they are for a user."""
    found = torch.empty(at.numel(), dtype=F64)
    for place in range(at.numel()):
        away = torch.zeros_like(at).flatten()
        away[place] = step
        ends = [function((at + sign * away.reshape(at.shape)).requires_grad_()).detach() for sign in (1, -1)]
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found.reshape(at.shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", CARRIED)
def test_a_gradient_is_right(name, monkeypatch):
    monkeypatch.setattr(chain_probability, "FINENESS", 20)
    function, at = CARRIED[name]
    leaf = at.clone().requires_grad_()
    function(leaf)  # a reference that is kept is made here
    value = function(leaf * 1.0)  # not a leaf any more, as the outcome of a network is not
    (found,) = torch.autograd.grad(value, leaf)
    exact = differences(function, at)
    assert found.abs().max() > 1e-3
    fine = ROUGH.get(name, 1e-6)
    torch.testing.assert_close(found, exact, rtol=fine, atol=fine * float(exact.abs().max()))


# ---------------------------------------------------------------------------------------------------------------------
# Where it is refused: a function of one tensor, the tensor, and the name of the argument


def recipes():
    likelihood = gaussian()
    return {
        "FullGP": lambda prior: mvgp.FullGP(prior, likelihood),
        "TraceGP": lambda prior: mvgp.TraceGP(prior, likelihood, strength=0.5),
        "FactorGP": lambda prior: mvgp.FactorGP(prior, likelihood, rank=1),
        "PairwiseSVM": lambda prior: PairwiseSVM(prior),
    }


def trace_model():
    return mvgp.TraceGP(prior_at(), gaussian())


def bound_of_labels(x):
    likelihood = ranking()
    penalty = mvgp.SpectralElasticNet.from_noise(0.3, 0.5)
    posterior = mvgp.TraceGP(prior_at(), likelihood, penalty=penalty).fit(data_of(LABELS))
    return trace_bound(prior_at(), likelihood, data_of(x), posterior)


KERNELS = {
    "DiffusionKernel.time": lambda x: DiffusionKernel(GRAPH, time=x),
    "DiffusionKernel.shift": lambda x: DiffusionKernel(GRAPH, shift=x),
    "GraphMaternKernel.nu": lambda x: GraphMaternKernel(GRAPH, nu=x),
    "GraphMaternKernel.reach": lambda x: GraphMaternKernel(GRAPH, reach=x),
    "RegularizedLaplacianKernel.scale": lambda x: RegularizedLaplacianKernel(GRAPH, scale=x),
    "FeatureKernel.variance": lambda x: FeatureKernel(torch.eye(M), variance=x),
    "BipartiteRankingLikelihood.noise": lambda x: BipartiteRankingLikelihood(noise=x),
}
ONE = torch.tensor(0.5, dtype=F64)
POSITIVE = draw(M, M)
SPREAD = POSITIVE @ POSITIVE.mT
FITTED = fitted()


def assigned(name, x):
    made = KERNELS[name](0.7)
    setattr(made, name.split(".")[1], x)


REFUSED = {
    **{
        f"{kind}.fit, {what}": (lambda x, make=make, what=what: make(prior_at()).fit(data_of(**{what: x})), at, "data")
        for kind, make in recipes().items()
        for what, at in (("values", LABELS), ("weights", WEIGHTS))
    },
    **{
        f"{kind}.fit, inputs": (lambda x, make=make: make(prior_at(x)).fit(data_of(LABELS)), COL_INPUTS, "col_inputs")
        for kind, make in recipes().items()
    },
    "TraceGP.path": (lambda x: next(iter(trace_model().path(data_of(x)))), VALUES, "data"),
    "posterior.variances": (lambda x: FITTED.variances([0], col_inputs=x), NEW, "col_inputs"),
    "posterior.top, inputs": (lambda x: FITTED.top(0, col_inputs=x), NEW, "col_inputs"),
    "posterior, rows": (lambda x: FITTED.mean(x, [0]), torch.zeros(1, dtype=F64), "rows"),
    "posterior.top": (lambda x: FITTED.top(x), torch.zeros((), dtype=F64), "row"),
    "posterior.scores": (lambda x: FITTED.scores(x), torch.zeros(1, dtype=F64), "rows"),
    "prior, rows": (lambda x: prior_at()(x, [0]), torch.zeros(1, dtype=F64), "rows"),
    "ObservedMatrix, rows": (
        lambda x: mvgp.ObservedMatrix(x, [0], [1.0], (M, N)),
        torch.zeros(1, dtype=F64),
        "rows",
    ),
    "learn, values": (lambda x: learn(prior_at(), gaussian(), data_of(x)), VALUES, "data"),
    "learn, weights": (lambda x: learn(prior_at(), gaussian(), data_of(weights=x)), WEIGHTS, "data"),
    "learn, inputs": (lambda x: learn(prior_at(x), gaussian(), data_of()), COL_INPUTS, "col_inputs"),
    "learn_trace, values": (lambda x: learn_trace(trace_model(), data_of(x)), VALUES, "data"),
    "learn_trace, inputs": (
        lambda x: learn_trace(mvgp.TraceGP(prior_at(x), gaussian()), data_of()),
        COL_INPUTS,
        "col_inputs",
    ),
    "learn_grid": (lambda x: learn_grid(graph_prior(), gaussian(), full_data(x)), COMPLETE, "data"),
    "RotatedGrid": (lambda x: RotatedGrid(graph_prior(), full_data(x)), COMPLETE, "data"),
    "leave_one_out": (lambda x: leave_one_out(FITTED, data_of(x)), VALUES, "data"),
    "trace_bound, labels": (bound_of_labels, LABELS, "data.values"),
    "choose": (lambda x: choose(trace_model(), data_of(x)), VALUES, "data"),
    "choose, inputs": (lambda x: choose(mvgp.TraceGP(prior_at(x), gaussian()), data_of()), COL_INPUTS, "col_inputs"),
    "choose_kernels": (
        lambda x: choose_kernels(trace_model(), data_of(x), {"row_axis.kernel.time": [1.0]}),
        VALUES,
        "data",
    ),
    "nested": (lambda x: nested_cross_validation(trace_model(), data_of(x)), VALUES, "data"),
    "retarget, weight": (lambda x: ranking().retarget(SCORES, LABELS, TASK, x), WEIGHTS, "weight"),
    "retargeting, weight": (lambda x: ranking().retargeting(LABELS, TASK, x), WEIGHTS, "weight"),
    "retarget, labels": (lambda x: ranking().retarget(SCORES, x, TASK), LABELS, "labels"),
    "loss, labels": (lambda x: ranking().loss(SCORES, x, TASK), LABELS, "labels"),
    "log_prob, labels": (lambda x: ranking().log_prob(SCORES, x, TASK), LABELS, "labels"),
    "log_prob, task": (lambda x: ranking().log_prob(SCORES, LABELS, x), TASK.double(), "task"),
    "log_prob, counts": (
        lambda x: ranking().log_prob(SCORES, LABELS, TASK, counts=x),
        torch.tensor([3.0, 2.0]),
        "counts",
    ),
    "graded log_prob, labels": (
        lambda x: GradedRankingLikelihood(3).log_prob(SCORES, x, TASK),
        (torch.arange(T) % 3).double(),
        "labels",
    ),
    "LevelProjection, weight": (
        lambda x: LevelProjection(RankingLists.from_labels(LABELS, TASK), 0.5, x),
        WEIGHTS,
        "weight",
    ),
    "project_order, weight": (lambda x: project_order(SCORES, LABELS > 0, TASK, 0.5, x), WEIGHTS, "weight"),
    "project_order, margin": (lambda x: project_order(SCORES, LABELS > 0, TASK, x), ONE, "margin"),
    "project_levels, level": (lambda x: project_levels(SCORES, x, TASK), torch.zeros(T, dtype=F64), "level"),
    "OrderCone": (OrderCone, ONE, "margin"),
    "OrderedSimplex": (OrderedSimplex, ONE, "total"),
    "Graph, weights": (lambda x: Graph([(0, 1), (1, 2)], 3, x), torch.ones(2, dtype=F64), "weights"),
    "Graph, edges": (lambda x: Graph(x, 3), torch.tensor([[0.0, 1.0]]), "edges"),
    "Graph.from_adjacency": (Graph.from_adjacency, SPREAD.abs(), "adjacency"),
    "PrecomputedKernel": (PrecomputedKernel, SPREAD, "matrix"),
    "FeatureKernel": (FeatureKernel, draw(M, 2), "features"),
    "ConstantMean": (ConstantMean, ONE, "constant"),
    "RowBiasMean": (RowBiasMean, draw(M), "bias"),
    "GivenMean": (GivenMean, COMPLETE, "matrix"),
    "PopularityMean": (PopularityMean, draw(N, positive=True), "counts"),
    **{name: (made, ONE, name.split(".")[1]) for name, made in KERNELS.items()},
    **{f"{name} = ": (lambda x, name=name: assigned(name, x), ONE, name.split(".")[1]) for name in KERNELS},
    "PositiveUnlabelled": (lambda x: mvgp.PositiveUnlabelled([0], [0], (2, 2), weight=x), ONE, "weight"),
    "SpectralElasticNet": (lambda x: mvgp.SpectralElasticNet(x, 0.5), ONE, "lam"),
    "SpectralElasticNet, alpha": (lambda x: mvgp.SpectralElasticNet(0.5, x), ONE, "alpha"),
    "SpectralElasticNet.from_noise": (lambda x: mvgp.SpectralElasticNet.from_noise(x, 1.0), ONE, "noise"),
    "TraceBall": (mvgp.TraceBall, ONE, "radius"),
    "TraceGP, strength": (lambda x: mvgp.TraceGP(prior_at(), gaussian(), strength=x), ONE, "strength"),
    "TraceGP, row_bias": (lambda x: mvgp.TraceGP(prior_at(), gaussian(), row_bias=x), ONE, "row_bias"),
    "auc": (lambda x: auc(x, ([0], [1])), COMPLETE, "scores"),
    "ranking_scores": (lambda x: ranking_scores(x, ([0], [1]), k=2), COMPLETE, "scores"),
    "coverage": (lambda x: coverage((x, WEIGHTS), VALUES), VALUES, "predicted"),
    "coverage, held out": (lambda x: coverage([VALUES, WEIGHTS], x), VALUES, "held_out"),
    "coverage, posterior": (lambda x: coverage(FITTED, data_of(x)), VALUES, "held_out"),
    "beats": (lambda x: beats(x, 0, 1), COMPLETE, "samples"),
    "expected_hits": (lambda x: expected_hits(x, [0]), torch.full((3,), 0.5, dtype=F64), "probabilities"),
    "a list of tensors": (lambda x: data_of(list(x)), VALUES, "values"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_gradient_that_would_be_lost_is_refused_by_name(name):
    function, at, argument = REFUSED[name]
    with pytest.raises(InputError, match=rf"^{argument}(\[\d\])?: .*(gradient|grad)"):
        function(at.clone().requires_grad_())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REFUSED if name != "a list of tensors"])
def test_without_gradients_nothing_is_lost_and_nothing_refused(name):
    function, at, _ = REFUSED[name]
    said = ""
    with torch.no_grad():
        try:
            function(at.clone().requires_grad_())
        except (RuntimeError, ValueError) as error:  # some of the calls make no sense for other reasons
            said = str(error)
    assert "requires a gradient" not in said


# ---------------------------------------------------------------------------------------------------------------------
# Posteriors are constants


def posteriors():
    trace = mvgp.SpectralElasticNet(0.3, 0.8)
    return {
        "full": lambda prior: mvgp.FullGP(prior, gaussian()).fit(data_of()),
        "cg": lambda prior: mvgp.FullGP(prior, gaussian(), method="cg").fit(data_of(weights=WEIGHTS)),
        "spectral": lambda prior: mvgp.FullGP(prior, gaussian()).fit(full_data()),
        "trace": lambda prior: mvgp.TraceGP(prior, gaussian(), penalty=trace).fit(data_of()),
        "biases": lambda prior: mvgp.TraceGP(prior, gaussian(), penalty=trace, row_bias=0.5).fit(data_of()),
        "ranking": lambda prior: mvgp.FullGP(prior, ranking()).fit(data_of(LABELS)),
        "factor": lambda prior: mvgp.FactorGP(prior, gaussian(), rank=2).fit(data_of()),
        "rescaled": lambda prior: mvgp.FullGP(prior, gaussian()).fit(data_of()).rescaled(2.0),
    }


def answers(posterior, **inputs):
    """Every tensor that comes out of the posterior at some cells, lazy ones evaluated last."""
    at = posterior([0, 1], [1, 2], **inputs)
    yield from (at.mean, at.loc, at.rsample(), at.sample(), at.variance, at.covariance_matrix)
    yield at.lazy_covariance_matrix @ torch.ones(2, dtype=F64)
    yield at.lazy_covariance_matrix.diagonal()
    yield posterior.mean([0, 1], [1, 2], **inputs)
    yield posterior.variance([0, 1], [1, 2], **inputs)
    yield from posterior.interval([0, 1], [1, 2], **inputs)
    yield posterior.sample([0, 1], [1, 2], 2, **inputs)
    if not inputs:
        yield posterior.joint([0, 1], [1, 2]).matrix
        yield posterior.joint([0, 1], [1, 2]).sample(2)
        yield posterior.scores()
        yield posterior.covariance().to_dense()
        yield posterior.covariance().diagonal()


@pytest.mark.parametrize("kind", posteriors())
@pytest.mark.parametrize("stored", [False, True])
def test_no_answer_of_a_posterior_carries_a_gradient(kind, stored, tmp_path):
    prior = prior_at(mean=None if kind == "ranking" else ConstantMean(0.3))
    posterior = posteriors()[kind](prior)
    if stored:
        posterior.save(tmp_path / "posterior")
        posterior = mvgp.load(tmp_path / "posterior")
    assert all(p.requires_grad for p in prior.parameters())  # the recipe itself goes on learning
    assert not any(p.requires_grad for p in posterior.prior.parameters())
    for given in ({}, {"col_inputs": NEW}):
        if kind == "factor" and given:
            continue  # its covariance knows no new inputs
        for answer in answers(posterior, **given):
            assert not answer.requires_grad


def test_a_support_vector_machine_is_constant():
    found = PairwiseSVM(prior_at()).fit(data_of(LABELS))
    assert not found.scores().requires_grad
    assert not found.mean([0], [0], col_inputs=NEW).requires_grad


def test_a_posterior_made_by_hand_is_constant():
    prior, fitted_one = prior_at(), FITTED
    ops = prior.row_axis.covariance(), prior.col_axis.covariance()
    assert ops[1].requires_grad
    made = mvgp.posteriors.GaussianPosterior(prior, ops, fitted_one.coefficients, fitted_one.conditional)
    for answer in (made([0], [0], col_inputs=NEW).variance, made.scores(), made.variance([0], [0])):
        assert not answer.requires_grad
    assert all(p.requires_grad for p in prior.parameters())


def test_a_fit_under_no_grad_takes_inputs_of_a_network():
    network = torch.nn.Linear(2, 2).double()
    inputs = network(COL_INPUTS)
    prior = prior_at(inputs)
    with torch.no_grad():
        posterior = mvgp.FullGP(prior, gaussian()).fit(data_of(VALUES.clone().requires_grad_()))
    wanted = mvgp.FullGP(prior_at(inputs.detach()), gaussian()).fit(data_of())
    torch.testing.assert_close(posterior.scores(), wanted.scores())
    assert not posterior([0], [0], col_inputs=NEW).variance.requires_grad


# ---------------------------------------------------------------------------------------------------------------------
# Second derivatives: right, or refused


@pytest.mark.parametrize("method", ["spectral", "probes"])
def test_second_derivatives_of_other_methods_are_refused(method):
    leaf = (COMPLETE if method == "spectral" else VALUES).clone().requires_grad_()
    value = marginal(method, "values")(leaf)
    with pytest.raises(InputError, match="create_graph"):
        torch.autograd.grad(value, leaf, create_graph=True)


def test_second_derivatives_of_a_dense_factor_are_right():
    hessian = torch.autograd.functional.hessian(log_marginal_of, VALUES)
    with torch.no_grad():
        k = prior_at()(ROWS, COLS).covariance_matrix + 0.4 * torch.eye(T, dtype=F64)
    torch.testing.assert_close(hessian, -torch.linalg.inv(k), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, OrderedSimplex()])
def test_second_derivatives_of_the_ranking_loss_are_right(target):
    likelihood = BipartiteRankingLikelihood(target=target)
    weight = WEIGHTS if target is None else None
    hessian = torch.autograd.functional.hessian(lambda x: likelihood.loss(x, LABELS, TASK, weight), SCORES)

    def slope(x, place):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(likelihood.loss(x, LABELS, TASK, weight), x)[0][place]

    for place in range(T):
        torch.testing.assert_close(
            hessian[place], differences(lambda x, p=place: slope(x, p), SCORES), atol=1e-6, rtol=0
        )


def test_second_derivatives_by_the_weights_of_the_loss_are_refused():
    leaf = WEIGHTS.clone().requires_grad_()
    with pytest.raises(InputError, match="second derivatives by the weights"):
        torch.autograd.grad(ranking().loss(SCORES, LABELS, TASK, leaf), leaf, create_graph=True)


# ---------------------------------------------------------------------------------------------------------------------
# Some more


@pytest.mark.slow
@pytest.mark.parametrize("what", ["values", "weights", "inputs"])
def test_the_evidence_bound_has_the_gradient_of_its_maximum(what):
    likelihood, mu = gaussian(), 0.4
    penalty = mvgp.SpectralElasticNet.from_noise(0.4, mu)
    at = {"values": VALUES, "weights": WEIGHTS, "inputs": COL_INPUTS}[what]

    def parts(x):
        prior = prior_at(x if what == "inputs" else COL_INPUTS)
        data = data_of(x if what == "values" else VALUES, x if what == "weights" else WEIGHTS)
        with torch.no_grad():
            posterior = mvgp.TraceGP(prior, likelihood, penalty=penalty, tolerance=1e-12).fit(data)
        return trace_bound(prior, likelihood, data, posterior)

    def maximum(x):
        found = parts(x)
        return found.value - mu * found.trace_norm

    leaf = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(parts(leaf).value, leaf)
    torch.testing.assert_close(found, differences(maximum, at, step=1e-4), rtol=1e-4, atol=1e-4)


def test_noise_of_each_row_can_be_learned_through_weights():
    logs = torch.zeros(M, dtype=F64, requires_grad=True)

    def value(logs):
        return log_marginal(prior_at(), gaussian(), data_of(weights=logs.exp()[ROWS])).value

    (found,) = torch.autograd.grad(value(logs), logs)
    torch.testing.assert_close(found, differences(value, logs.detach()), rtol=1e-6, atol=1e-6)


def test_data_can_be_detached():
    data = data_of(VALUES.clone().requires_grad_(), WEIGHTS.clone().requires_grad_())
    assert data.requires_grad
    assert data.values.requires_grad
    plain = data.detach()
    assert not plain.requires_grad
    assert torch.equal(plain.values, data.values)
    assert torch.equal(plain.weights, data.weights)
    assert not data_of().requires_grad
    mvgp.FullGP(prior_at(), gaussian()).fit(plain)


def test_a_root_has_a_derivative_where_eigenvalues_meet():
    def value(scale):
        return weighted_sum(root(to_linear_operator(scale * torch.eye(3, dtype=F64))).to_dense())

    leaf = torch.tensor(2.0, dtype=F64, requires_grad=True)
    (found,) = torch.autograd.grad(value(leaf), leaf)
    assert math.isfinite(float(found))
    torch.testing.assert_close(found, differences(value, leaf.detach()), rtol=1e-6, atol=1e-8)


def test_numpy_still_goes_in():
    assert not mvgp.ObservedMatrix.from_dense(np.ones((2, 2))).requires_grad
