"""TraceGP on sums of terms: against a conic solver, dense algebra, and the models of one term."""

import warnings

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, InputError
from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.posteriors.trace_sum import TraceSumPosterior
from mvgp.priors import ConstantMean, PopularityMean
from tests import randomness
from tests.oracles import conic_additive, random_edges

M, N = 6, 9
NOISE = 0.25
ROWS = Graph(random_edges(randomness.fixed_numpy_generator(0), M, 8), M)
COLS = Graph(random_edges(randomness.fixed_numpy_generator(1), N, 14), N)
PENALTIES = [mvgp.SpectralElasticNet(0.5, 0.9), mvgp.SpectralElasticNet(1.5, 0.0), mvgp.SpectralElasticNet(2.0, 0.0)]


def make_prior(mean=None, dtype=torch.float64):
    """Low rank, a full-rank term, popularity; the first term has inputs on its columns."""
    inputs = torch.linspace(0, 1, N).double().unsqueeze(1)
    kernel = gpytorch.kernels.RBFKernel()
    kernel.lengthscale = 0.3
    terms = [
        mvgp.MatrixGP(DiffusionKernel(ROWS), kernel, col_inputs=inputs, mean=mean, dtype=dtype),
        mvgp.MatrixGP(DiffusionKernel(ROWS, 0.5), DiffusionKernel(COLS, 0.5), dtype=dtype),
        mvgp.MatrixGP(ConstantKernel(M), DiffusionKernel(COLS, 2.0, 0.1), dtype=dtype),
    ]
    return sum(terms)


def gaussian():
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    return likelihood


def make_values(draw=randomness.numpy_generator, count=30):
    rng = draw(3)
    cells = torch.from_numpy(rng.choice(M * N, count, replace=False)).sort().values
    values = torch.from_numpy(rng.normal(size=(M, 2)) @ rng.normal(size=(2, N)) + rng.normal(size=(M, N)))
    return mvgp.ObservedMatrix(cells // N, cells % N, values.flatten()[cells], (M, N))


def make_links():
    return mvgp.PositiveUnlabelled([0, 0, 1, 2, 2, 4, 5], [1, 4, 4, 0, 7, 4, 2], shape=(M, N), weight=0.2)


def kernels(prior):
    return [(term.row_axis.covariance().to_dense(), term.col_axis.covariance().to_dense()) for term in prior.terms]


@pytest.mark.slow
@pytest.mark.parametrize("data", ["cells", "lists"])
@pytest.mark.parametrize("kind", ["gaussian", "ranking"])
def test_means_equal_a_conic_solver(kind, data):
    prior = make_prior().snapshot()
    likelihood = gaussian() if kind == "gaussian" else BipartiteRankingLikelihood(margin=0.5, noise=NOISE)
    if data == "cells":
        observed = make_values(randomness.fixed_numpy_generator)
        if kind == "ranking":
            labels = torch.where(observed.values > 0, 1.0, -1.0)
            observed = mvgp.ObservedMatrix(observed.rows, observed.cols, labels, (M, N))
        rows, cols, values = observed.rows, observed.cols, observed.values
        weights = torch.ones(len(rows), dtype=torch.float64)
    else:
        observed = make_links()
        rows, cols = observed.pattern.rows, observed.pattern.cols
        weights = torch.full((len(rows),), 0.2, dtype=torch.float64)
        values = torch.zeros(len(rows), dtype=torch.float64)
        weights[observed.positions] = values[observed.positions] = 1.0
    posterior = mvgp.TraceGP(prior, likelihood, penalty=PENALTIES, tolerance=1e-7, max_iterations=10_000).fit(observed)
    assert posterior.certificate.converged
    margin = None if kind == "gaussian" else 0.5
    truth, psi, _ = conic_additive(
        kernels(prior), PENALTIES, rows, cols, (values > 0).double() if margin else values, weights, margin=margin
    )
    assert posterior.certificate.primal == pytest.approx(truth, rel=1e-6)
    assert posterior.certificate.dual <= truth * (1 + 1e-8)
    if kind == "gaussian":
        reach = (2 * (posterior.certificate.gap + 1e-8 * truth)) ** 0.5
        assert ((posterior.mean(rows, cols) - psi) * weights.sqrt()).norm() <= 2 * reach


def test_terms_add_up_to_the_mean_and_know_their_rank_and_factors():
    prior, data = make_prior(ConstantMean(0.7)), make_values()
    posterior = mvgp.TraceGP(prior, gaussian(), penalty=PENALTIES, tolerance=1e-6).fit(data)
    assert isinstance(posterior, TraceSumPosterior)
    low, full, popular = posterior.terms
    assert low.rank == posterior.rank == posterior.certificate.rank
    assert (full.rank, popular.rank) == (None, None)
    assert [term.penalty for term in posterior.terms] == PENALTIES
    left, right = low.factors
    assert left.shape == (M, low.rank)
    torch.testing.assert_close(left @ right.T + 0.7, low.scores())
    torch.testing.assert_close(sum(term.scores() for term in posterior.terms), posterior.scores())
    assert posterior.trace_norm == low.trace_norm > 0
    assert posterior.factors[1:] == (None, None)
    torch.testing.assert_close(posterior.factors[0][0], left)
    torch.testing.assert_close(popular.scores()[0], popular.scores()[3])  # the same for all rows
    with pytest.raises(InputError, match="ridge term"):
        _ = full.factors


def test_ridge_terms_alone_are_the_plain_gp():
    """With lam the noise the mean is that of FullGP; the covariance is in any case."""
    prior, data = make_prior(ConstantMean(0.2)), make_values()
    penalty = mvgp.SpectralElasticNet(NOISE, 0.0)
    posterior = mvgp.TraceGP(prior, gaussian(), penalty=penalty, tolerance=1e-9).fit(data)
    plain = mvgp.FullGP(prior, gaussian()).fit(data)
    torch.testing.assert_close(posterior.scores(), plain.scores(), atol=1e-7, rtol=0)
    everywhere = torch.arange(M).repeat_interleave(N), torch.arange(N).repeat(M)
    other = mvgp.TraceGP(prior, gaussian(), penalty=PENALTIES).fit(data)
    for found in (posterior, other):
        torch.testing.assert_close(found.variance(*everywhere), plain.variance(*everywhere), atol=1e-8, rtol=0)
    dense = sum(torch.kron(*pair) for pair in kernels(prior.snapshot()))
    cells = data.rows * N + data.cols
    gain = torch.linalg.solve(dense[cells][:, cells] + NOISE * torch.eye(len(cells)).double(), dense[cells])
    torch.testing.assert_close(posterior.covariance().to_dense(), dense - dense[:, cells] @ gain, atol=1e-8, rtol=0)
    assert posterior.evidence_scale == pytest.approx(plain.evidence_scale, rel=1e-6)


def test_one_term_in_a_sum_is_the_model_of_one_term():
    term, data = make_prior().terms[1], make_values()
    options = {"strength": 0.3, "trace_share": 0.8, "tolerance": 1e-8, "max_iterations": 10_000}
    alone = mvgp.TraceGP(term, gaussian(), **options).fit(data)
    inside = mvgp.TraceGP(mvgp.priors.SumGP(term), gaussian(), **options).fit(data)
    assert inside.terms[0].penalty.lam == pytest.approx(alone.penalty.lam)
    assert inside.certificate.primal == pytest.approx(alone.certificate.primal, rel=2e-8)
    torch.testing.assert_close(inside.scores(), alone.scores(), atol=1e-3, rtol=0)


def test_strengths_are_relative_to_each_term_and_paths_scale_all_of_them():
    prior, data = make_prior(), make_values()
    model = mvgp.TraceGP(prior, gaussian(), strength=[0.5, 0.1, 0.2], trace_share=[1.0, 0.0, 0.0], tolerance=1e-5)
    posterior = model.fit(data)
    theta = torch.zeros(M, N).double()
    theta[data.rows, data.cols] = -data.values
    for (k_rows, k_cols), term, strength in zip(kernels(prior), posterior.terms, [0.5, 0.1, 0.2], strict=True):
        roots = [torch.linalg.eigh(k.detach()) for k in (k_rows, k_cols)]
        g_rows, g_cols = (v * s.clamp_min(0).sqrt() for s, v in roots)
        assert term.penalty.lam == pytest.approx(
            strength * torch.linalg.svdvals(g_rows.T @ theta @ g_cols)[0].item(), rel=1e-6
        )
    points = list(model.path(data, [1.0, 0.5, 0.1]))
    assert [point.strength for point in points] == [1.0, 0.5, 0.1]
    torch.testing.assert_close(points[1].posterior.scores(), posterior.scores(), atol=0.05, rtol=0)
    assert points[1].posterior.certificate.primal == pytest.approx(posterior.certificate.primal, rel=1e-4)
    ratios = [
        [term.penalty.lam / points[0].posterior.terms[0].penalty.lam for term in p.posterior.terms] for p in points
    ]
    for ratio, strength in zip(ratios, (1.0, 0.5, 0.1), strict=True):
        assert ratio == pytest.approx([strength * each for each in ratios[0]])
    assert points[2].posterior.rank >= points[0].posterior.rank
    resumed = list(model.path(data, [1.0, 0.5, 0.1], after=points[1]))
    assert [point.strength for point in resumed] == [0.1]
    again = mvgp.TraceGP(prior, gaussian(), penalty=PENALTIES, tolerance=1e-5)
    first = again.fit(data)
    assert again.fit(data, start=first).certificate.iterations == 0


def test_new_inputs_shares_and_samples():
    inputs = [torch.linspace(0, 1, size).double().unsqueeze(1) for size in (M, N)]
    terms = [
        mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), gpytorch.kernels.MaternKernel(nu=1.5), *inputs),
        mvgp.MatrixGP(ConstantKernel(), gpytorch.kernels.RBFKernel(), *inputs),
    ]
    data = make_values()
    posterior = mvgp.TraceGP(sum(terms), gaussian(), strength=0.1, trace_share=[0.9, 0.0], tolerance=1e-7).fit(data)
    rows, cols = torch.tensor([2, 0]), torch.tensor([1, 0])
    new = torch.tensor([[0.35], [0.9]]).double()
    at_new = posterior.mean([0, 1], cols, row_inputs=new)
    for which in range(2):
        row = posterior.mean([0], [int(cols[which])], row_inputs=new[which : which + 1])
        torch.testing.assert_close(row[0], at_new[which])
    known = posterior.mean([0, 1], cols, row_inputs=inputs[0][rows])
    torch.testing.assert_close(known, posterior.mean(rows, cols))
    assert (posterior.variance([0, 1], cols, row_inputs=new) > 0).all()
    samples = posterior.sample(rows, cols, 3, generator=randomness.generator(0))
    assert samples.shape == (3, 2)
    why = posterior.explain(2, 1)
    assert why.term_shares.shape == (2, len(data))
    assert abs(why.residual) <= 1e-3 * (1 + abs(why.score))
    assert why.score == pytest.approx(float(posterior.mean([2], [1])))


def test_rankings_of_whole_lists_have_explanations_and_top_tables():
    links = make_links()
    prior = make_prior(PopularityMean(links))
    model = mvgp.TraceGP(
        prior,
        BipartiteRankingLikelihood(margin=1.0, noise=NOISE),
        strength=[0.2, 0.2, 0.2],
        trace_share=[0.9, 0.0, 0.0],
    )
    posterior = model.fit(links)
    assert posterior.certificate.converged
    known = posterior.scores()[links.rows, links.cols].mean()
    assert known > posterior.scores()[posterior.prior.terms[0].shape[0] - 1].mean()
    why = posterior.explain(0, 4)
    assert why.term_shares.shape == (3, len(links))
    assert abs(why.residual) <= 0.05 * (1 + abs(why.score))
    assert len(posterior.top(0, k=3, exclude=links)) == 3


def test_single_precision():
    prior, data = make_prior(dtype=torch.float32), make_values()
    posterior = mvgp.TraceGP(prior, gaussian().float(), penalty=PENALTIES).fit(data)
    assert posterior.certificate.converged
    double = mvgp.TraceGP(make_prior(), gaussian(), penalty=PENALTIES).fit(data)
    assert posterior.certificate.primal == pytest.approx(double.certificate.primal, rel=2e-3)


def test_a_missed_tolerance_is_loud():
    prior, data = make_prior(), make_values()
    options = {"penalty": PENALTIES, "tolerance": 1e-10, "max_iterations": 2}
    with pytest.warns(RuntimeWarning, match="relative duality gap .* after 2 iterations of additive"):
        mvgp.TraceGP(prior, gaussian(), **options).fit(data)
    with pytest.raises(ConvergenceError, match="additive"):
        mvgp.TraceGP(prior, gaussian(), strict=True, **options).fit(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mvgp.TraceGP(prior, gaussian(), penalty=PENALTIES).fit(data)


def test_what_a_sum_does_not_allow_is_refused():
    prior, data = make_prior(), make_values()
    flat = mvgp.MatrixGP(DiffusionKernel(ROWS), ConstantKernel(N))  # effects of rows
    lists = mvgp.TraceGP(prior.terms[1] + flat, BipartiteRankingLikelihood(), strength=0.2, trace_share=[0.9, 0.0])
    for call, message in (
        (lambda: mvgp.TraceGP(prior, gaussian(), strength=[0.1, 0.2]), "strength: expected one for each of 3 terms"),
        (lambda: mvgp.TraceGP(prior, gaussian(), strength=[0.1, 0.2, -1.0]), r"strength\[2\]"),
        (lambda: mvgp.TraceGP(prior, gaussian(), trace_share=[0.1, 2.0, 0.0]), r"trace_share\[1\]"),
        (
            lambda: mvgp.TraceGP(prior, gaussian(), penalty=[mvgp.TraceBall(1.0)] * 3),
            r"penalty\[0\]: expected Spectral",
        ),
        (lambda: mvgp.TraceGP(prior, gaussian(), penalty=PENALTIES, strength=0.1), "either penalty, or strength"),
        (lambda: mvgp.TraceGP(prior, gaussian(), solver="dense"), "the solver 'proximal' alone"),
        (lambda: mvgp.TraceGP(prior, gaussian(), col_bias=1.0), "ConstantKernel"),
        (lambda: next(mvgp.TraceGP(prior, gaussian(), penalty=PENALTIES).path(data)), "absolute penalty"),
        (lambda: lists.fit(make_links()), r"the loss does not see terms\[1\]"),
        (lambda: mvgp.TraceGP(prior, gaussian()).fit(mvgp.ObservedMatrix([0], [0], [0.0], (M, N))), "nothing to fit"),
        (lambda: mvgp.TraceGP(prior.terms[0], gaussian(), strength=[0.1]), "strength"),
    ):
        with pytest.raises(InputError, match=message):
            call()
