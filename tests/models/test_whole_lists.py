"""Every model on whole lists, against the same model on the lists spelled out cell by cell, and against dense algebra."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError, SizeError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, OrderedSimplex
from mvgp.priors import PopularityMean
from tests import randomness

SHAPE = (7, 11)
ROWS, COLS = [0, 0, 2, 3, 3, 6], [1, 5, 5, 0, 10, 7]


def graph(size, number):
    return Graph(torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number)), size)


def make_prior(mean=None, shape=SHAPE):
    rows, cols = DiffusionKernel(graph(shape[0], 1)), DiffusionKernel(graph(shape[1], 2), time=2.0, method="chebyshev")
    return mvgp.MatrixGP(rows, cols, mean=mean)


def make_links(weight, lists):
    return mvgp.PositiveUnlabelled(ROWS, COLS, SHAPE, weight, lists=lists)


def spelled_out(links, other):
    """Every cell of the lists: links are 1 with weight 1, the rest is ``other`` with the lists' weight."""
    values = torch.full((links.num_cells,), float(other), dtype=torch.float64)
    weights = torch.full_like(values, links.weight)
    values[links.positions] = weights[links.positions] = 1.0
    weights = None if links.weight == 1 else weights
    return mvgp.ObservedMatrix(links.pattern.rows, links.pattern.cols, values, links.shape, weights=weights)


def gaussian(noise=0.3):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    return likelihood


def all_cells():
    rows, cols = torch.meshgrid(*(torch.arange(size) for size in SHAPE), indexing="ij")
    return rows.reshape(-1), cols.reshape(-1)


def assert_close(first, second, atol):
    torch.testing.assert_close(first, second, atol=atol, rtol=0)


def test_which_rows_have_a_list():
    linked, every = (make_links(0.1, lists) for lists in ("linked", "all"))
    assert linked.pattern.chosen.tolist() == [0, 2, 3, 6]
    assert every.pattern.chosen.tolist() == list(range(7))
    assert every.num_cells == 77
    assert (every.pattern.rows[every.positions].tolist(), every.pattern.cols[every.positions].tolist()) == (ROWS, COLS)
    assert "every row" in repr(every)
    with pytest.raises(InputError, match="lists"):
        mvgp.PositiveUnlabelled(ROWS, COLS, SHAPE, lists="some")


@pytest.mark.parametrize("lists", ["linked", "all"])
@pytest.mark.parametrize("weight", [1.0, 0.05])
@pytest.mark.parametrize("with_mean", [False, True])
def test_the_plain_gp_equals_dense_algebra(lists, weight, with_mean):
    links = make_links(weight, lists)
    prior = make_prior(PopularityMean(links, scale=0.2) if with_mean else None)
    posterior = mvgp.FullGP(prior, gaussian()).fit(links)
    assert posterior.solve_report.converged

    data, (rows, cols) = spelled_out(links, 0), all_cells()
    joint = prior(rows, cols)
    mean, kernel = joint.mean.detach(), joint.covariance_matrix.detach()
    at = data.rows * SHAPE[1] + data.cols
    system = kernel[at][:, at] + torch.diag(
        torch.full_like(data.values, 0.3) / (1 if data.weights is None else data.weights)
    )
    gain = torch.linalg.solve(system, kernel[at]).mT  # (M N, T)
    assert_close(posterior.mean(rows, cols), mean + gain @ (data.values - mean[at]), 1e-7)
    assert_close(posterior.scores().reshape(-1), posterior.mean(rows, cols), 1e-8)
    assert_close(posterior.variance(rows, cols), (kernel - gain @ kernel[at]).diagonal(), 1e-7)


def test_new_rows_of_a_prior_with_inputs():
    inputs = torch.linspace(0, 1, SHAPE[0], dtype=torch.float64)
    prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), DiffusionKernel(graph(SHAPE[1], 2)), row_inputs=inputs)
    links = make_links(0.1, "all")
    ours = mvgp.FullGP(prior, gaussian()).fit(links)
    truth = mvgp.FullGP(prior, gaussian()).fit(spelled_out(links, 0))
    new = {"row_inputs": torch.tensor([[0.21], [0.9]], dtype=torch.float64)}
    assert_close(ours.mean([0, 1], [3, 10], **new), truth.mean([0, 1], [3, 10], **new), 1e-7)


@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_a_method_that_was_asked_for_is_used(method):
    links = make_links(0.05, "all")
    posterior = mvgp.FullGP(make_prior(), gaussian(), method=method).fit(links)
    assert posterior.solve_report.method == method
    assert_close(posterior.scores(), mvgp.FullGP(make_prior(), gaussian()).fit(links).scores(), 1e-7)


@pytest.mark.parametrize("lists", ["linked", "all"])
@pytest.mark.parametrize("target", [None, OrderedSimplex()])
def test_the_ranking_without_a_trace_norm_equals_the_lists_spelled_out(lists, target):
    links = make_links(0.2 if target is None else 1.0, lists)  # the simplex takes no weights
    likelihood = BipartiteRankingLikelihood(margin=1.0, noise=0.4, target=target)
    options = {"tolerance": 1e-9, "max_iterations": 5000}
    ours = mvgp.FullGP(make_prior(), likelihood, **options).fit(links)
    data = spelled_out(links, -1)
    truth = mvgp.FullGP(make_prior(), likelihood, **options).fit(data)
    assert ours.certificate.converged
    assert ours.certificate.primal == pytest.approx(truth.certificate.primal, rel=1e-7)
    # the objective is l2-strongly convex in B: a gap g moves psi by at most sqrt(2 g / l2) times the kernels' norm
    gaps = sum(posterior.certificate.primal - posterior.certificate.dual for posterior in (ours, truth))
    assert_close(ours.scores(), truth.scores(), 4 * (2 * max(gaps, 1e-12) / 0.4) ** 0.5)


def test_the_trace_gp_without_a_trace_norm_is_the_plain_gp():
    links = make_links(0.1, "all")
    penalty = mvgp.SpectralElasticNet(0.3, 0.0)
    ours = mvgp.TraceGP(make_prior(), gaussian(), penalty=penalty, tolerance=1e-10).fit(links)
    assert ours.certificate.converged
    assert_close(ours.scores(), mvgp.FullGP(make_prior(), gaussian()).fit(links).scores(), 1e-4)


@pytest.mark.parametrize("likelihood", [gaussian(), BipartiteRankingLikelihood(margin=1.0, noise=0.3)])
def test_the_factor_gp_of_full_rank_is_the_trace_gp(likelihood):
    links = make_links(0.2, "linked")
    factor = mvgp.FactorGP(make_prior(), likelihood, rank=7, max_iterations=3000).fit(links)
    penalty = mvgp.SpectralElasticNet(0.3, 1.0)
    trace = mvgp.TraceGP(make_prior(), likelihood, penalty=penalty, tolerance=1e-6).fit(links)
    assert factor.objective >= trace.certificate.dual * (1 - 1e-9)
    assert factor.objective <= trace.certificate.primal * (1 + 1e-5)
    assert factor.variance([0, 1], [1, 1]).shape == (2,)


@pytest.mark.parametrize("solver", ["newton", "svc"])
def test_the_support_vector_machine_equals_the_lists_spelled_out(solver):
    pytest.importorskip("sklearn")
    links = make_links(0.2, "all")
    ours = mvgp.PairwiseSVM(make_prior(), cost=2.0, solver=solver).fit(links)
    truth = mvgp.PairwiseSVM(make_prior(), cost=2.0, solver=solver).fit(spelled_out(links, -1))
    assert ours.certificate.converged
    assert_close(ours.scores(), truth.scores(), 1e-9)
    with pytest.raises(SizeError, match="list_limit"):
        mvgp.PairwiseSVM(make_prior(), list_limit=76).fit(links)


@pytest.mark.parametrize(
    "fit",
    [
        lambda prior, links: mvgp.FullGP(prior, gaussian(0.5)).fit(links),
        lambda prior, links: mvgp.FullGP(prior, BipartiteRankingLikelihood(noise=0.1)).fit(links),
        lambda prior, links: mvgp.FactorGP(prior, gaussian(0.05), rank=3).fit(links),
        lambda prior, links: mvgp.PairwiseSVM(prior, solver="newton").fit(links),
        lambda prior, links: mvgp.TraceGP(prior, gaussian(), strength=0.05, trace_share=0.5).fit(links),
    ],
)
def test_planted_blocks_are_found(fit):
    """Two groups of rows like two groups of columns; a hidden link inside a block outranks every cell outside."""
    block = torch.block_diag(torch.ones(4, 4), torch.ones(4, 4)).double() + 0.5 * torch.eye(8).double()
    prior = mvgp.MatrixGP(PrecomputedKernel(block), PrecomputedKernel(block))
    inside = torch.block_diag(torch.ones(4, 4), torch.ones(4, 4)).bool()
    hidden = torch.zeros(8, 8, dtype=torch.bool)
    hidden[[0, 5], [2, 6]] = True
    links = mvgp.PositiveUnlabelled(*(inside & ~hidden).nonzero(as_tuple=True), (8, 8), 0.2)
    scores = fit(prior, links).scores()
    for row, col in ((0, 2), (5, 6)):
        assert scores[row, col] > scores[row][~inside[row]].max()
