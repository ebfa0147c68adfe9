"""New observations: a posterior that is given more data, or fewer, equals a fit to the data as they are then."""

import copy
import pickle

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.linalg.updates import UpdatedSolver
from mvgp.posteriors.system import MOST_UPDATES
from mvgp.priors import ConstantMean
from tests import randomness
from tests.oracles import certified_distance, dense_posterior

SHAPE = (9, 13)


def spd(size, number):
    matrix = torch.randn(size, size, dtype=torch.float64, generator=randomness.generator(number))
    return matrix @ matrix.mT / size + 0.2 * torch.eye(size, dtype=torch.float64)


def make_prior(mean=None, shape=SHAPE):
    return mvgp.MatrixGP(*(PrecomputedKernel(spd(size, at)) for at, size in enumerate(shape)), mean=mean)


def gaussian(noise=0.3):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    return likelihood


def cells(count, number=5, shape=SHAPE):
    return torch.randperm(shape[0] * shape[1], generator=randomness.generator(number))[:count]


def observed(which, weighted=False, shape=SHAPE, **options):
    """Values and weights that belong to the cells."""
    every = torch.randn(shape[0] * shape[1], dtype=torch.float64, generator=randomness.generator(6))
    weights = 0.5 + torch.rand(len(every), dtype=torch.float64, generator=randomness.generator(7))
    if weighted:
        options["weights"] = weights[which]
    return mvgp.ObservedMatrix(which // shape[1], which % shape[1], every[which], shape, **options)


def all_cells(shape=SHAPE):
    rows, cols = torch.meshgrid(*(torch.arange(size) for size in shape), indexing="ij")
    return rows.reshape(-1), cols.reshape(-1)


def assert_equal(found, expected, atol=1e-8):
    """Mean, variance, covariance, what pairs carry, and the scale."""
    rows, cols = all_cells(found.shape)
    torch.testing.assert_close(found.mean(rows, cols), expected.mean(rows, cols), atol=atol, rtol=0)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=atol, rtol=0)
    torch.testing.assert_close(found.variance(rows, cols), expected.variance(rows, cols), atol=atol, rtol=0)
    some = slice(0, 40, 3)
    both = [one(rows[some], cols[some]).covariance_matrix for one in (found, expected)]
    torch.testing.assert_close(*both, atol=atol, rtol=0)
    torch.testing.assert_close(found.joint(rows[some], cols[some]).matrix, both[1], atol=atol, rtol=0)
    shares = [one.explain(2, 3) for one in (found, expected)]
    assert shares[0].score == pytest.approx(shares[1].score, abs=atol)
    assert abs(shares[0].residual) < 100 * atol
    assert found.evidence_scale == pytest.approx(expected.evidence_scale, rel=1e-6)
    assert found.noise == expected.noise
    assert repr(found) == repr(expected)


def dense_truth(prior, data, noise):
    """(M, N) mean and (M N,) variances of equations (2) and (3)."""
    kernels = [axis.covariance().to_dense().detach() for axis in (prior.row_axis, prior.col_axis)]
    each = noise if data.weights is None else noise / data.weights
    mean, covariance = dense_posterior(
        *kernels, data.rows, data.cols, data.values, each, prior.mean_matrix().detach().contiguous()
    )
    return mean, covariance.diagonal()


# The plain posterior --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "cholesky", "cg"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("asked", [False, True], ids=["mean alone", "with a factor"])
def test_more_and_fewer_observations_equal_a_refit_and_dense_algebra(method, weighted, asked):
    prior, which = make_prior(ConstantMean(0.7)), cells(60)
    model = mvgp.FullGP(prior, gaussian(), method=method, tolerance=1e-12)
    posterior = model.fit(observed(which[:50], weighted))
    if asked:
        posterior.variance([0], [0], method="cholesky")
    for step in (posterior.condition(observed(which[50:], weighted)), posterior.retract(observed(which[40:50]))):
        data = observed(which if len(step.conditional.pairs) == 60 else which[:40], weighted)
        assert isinstance(step.conditional.solver, UpdatedSolver)
        assert step.conditional.has_dense == (asked or method != "cg")
        assert_equal(step, model.fit(data))
        mean, variance = dense_truth(prior, data, posterior.noise)
        torch.testing.assert_close(step.scores().reshape(-1), mean, atol=1e-8, rtol=0)
        torch.testing.assert_close(step.variance(*all_cells()), variance, atol=1e-8, rtol=0)
        torch.testing.assert_close(step.variances().values.reshape(-1), variance, atol=1e-8, rtol=0)
    back = posterior.condition(observed(which[50:], weighted)).retract(observed(which[50:], weighted))
    assert_equal(back, posterior)


def test_a_preconditioned_system_is_updated():
    """Smooth kernels: the preconditioner of the old system serves the new one, also for rows that are new."""
    shape = (30, 25)
    kernels = gpytorch.kernels.RBFKernel(), gpytorch.kernels.RBFKernel()
    inputs = [torch.linspace(0, 4, size, dtype=torch.float64) for size in shape]
    prior = mvgp.MatrixGP(*kernels, *inputs)
    which = cells(300, shape=shape)
    which = torch.cat([which[which // shape[1] > 2], torch.arange(0, 3 * shape[1], 7)])  # rows 0 to 2 come last
    old, new = which[:-11], which[-11:]
    model = mvgp.FullGP(prior, gaussian(0.01), method="cg", tolerance=1e-12)
    posterior = model.fit(observed(old, shape=shape))
    assert posterior.conditional.solver.preconditioner is not None
    found, expected = posterior.condition(observed(new, shape=shape)), model.fit(observed(which, shape=shape))
    assert_equal(found, expected)
    assert found.solve_report.converged
    assert found.solve_report.method == "cg"
    assert_equal(found.retract(observed(new, shape=shape)), posterior)
    assert_equal(posterior.retract(observed(old[:9], shape=shape)), model.fit(observed(old[9:], shape=shape)))


def test_a_loop_of_single_pairs_makes_a_solver_anew_now_and_then():
    which, model = cells(80 + 2 * MOST_UPDATES), mvgp.FullGP(make_prior(), gaussian())
    posterior, depths = model.fit(observed(which[:80])), []
    for at in range(80, len(which)):
        posterior = posterior.condition(observed(which[at : at + 1]))
        depths.append(getattr(posterior.conditional.solver, "depth", 0))
    assert max(depths) == MOST_UPDATES
    assert 0 in depths
    assert_equal(posterior, model.fit(observed(which)))


def test_a_grid_that_becomes_complete_has_the_closed_form():
    which = torch.arange(SHAPE[0] * SHAPE[1])
    model = mvgp.FullGP(make_prior(), gaussian())
    found = model.fit(observed(which[:-3])).condition(observed(which[-3:]))
    assert found.conditional.is_closed_form
    assert_equal(found, model.fit(observed(which)))
    assert_equal(found.retract(observed(which[-3:])), model.fit(observed(which[:-3])))
    asked = mvgp.FullGP(make_prior(), gaussian(), method="spectral").fit(observed(which))
    assert_equal(asked.retract(observed(which[-3:])), model.fit(observed(which[:-3])))


def test_from_nothing_and_back_to_nothing():
    model, which = mvgp.FullGP(make_prior(), gaussian()), cells(12)
    nothing = model.fit(observed(which[:0]))
    some = nothing.condition(observed(which))
    assert_equal(some, model.fit(observed(which)))
    again = some.retract(observed(which))
    torch.testing.assert_close(again.variance(*all_cells()), nothing.variance(*all_cells()))
    assert float(again.scores().abs().max()) == 0


def test_hyperparameters_are_those_of_the_fit():
    likelihood, which = gaussian(), cells(40)
    prior = make_prior(ConstantMean(0.2))
    model = mvgp.FullGP(prior, likelihood)
    posterior, expected = model.fit(observed(which[:30])), model.fit(observed(which))
    likelihood.noise = 2.0
    with torch.no_grad():
        prior.mean_module.constant.fill_(9.0)
    assert_equal(posterior.condition(observed(which[30:])), expected)


@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_single_precision(method):
    which = cells(60)
    prior = make_prior().to(torch.float32)
    model = mvgp.FullGP(prior, gaussian(), method=method)
    posterior = model.fit(observed(which[:50]))
    posterior.variance([0], [0])
    for found, expected in (
        (posterior.condition(observed(which[50:])), model.fit(observed(which))),
        (posterior.retract(observed(which[:10])), model.fit(observed(which[10:50]))),
    ):
        assert found.scores().dtype == torch.float32
        torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-3, rtol=0)
        torch.testing.assert_close(found.variance(*all_cells()), expected.variance(*all_cells()), atol=1e-3, rtol=0)


def test_the_scale_stays():
    model, which = mvgp.FullGP(make_prior(), gaussian()), cells(40)
    posterior = model.fit(observed(which[:30])).rescaled(4.0)
    assert_equal(posterior.condition(observed(which[30:])), model.fit(observed(which)).rescaled(4.0))


def test_replicates_of_a_known_pair_are_merged_on_request():
    model, which = mvgp.FullGP(make_prior(), gaussian()), cells(40)
    old = observed(which[:30])
    rows, cols = which[25:35] // SHAPE[1], which[25:35] % SHAPE[1]
    values = torch.arange(10, dtype=torch.float64)
    posterior = model.fit(old)
    with pytest.raises(InputError, match="is observed already"):
        posterior.condition(mvgp.ObservedMatrix(rows, cols, values, SHAPE))
    found = posterior.condition(mvgp.ObservedMatrix(rows, cols, values, SHAPE, replicates="merge"))
    parts = [torch.cat(pair) for pair in ((old.rows, rows), (old.cols, cols), (old.values, values))]
    assert_equal(found, model.fit(mvgp.ObservedMatrix(*parts, SHAPE, replicates="merge")))


def test_a_posterior_that_was_copied_can_be_conditioned():
    model, which = mvgp.FullGP(make_prior(), gaussian()), cells(40)
    posterior, expected = model.fit(observed(which[:30])), model.fit(observed(which))
    posterior = posterior.condition(observed(which[30:35]))
    for made in (copy.deepcopy(posterior), pickle.loads(pickle.dumps(posterior))):
        assert_equal(made.condition(observed(which[35:])), expected)


def test_what_cannot_be_done_is_said(tmp_path):
    model, which = mvgp.FullGP(make_prior(), gaussian()), cells(40)
    posterior = model.fit(observed(which[:30]))
    links = mvgp.PositiveUnlabelled([0], [0], SHAPE)
    with pytest.raises(InputError, match="expected a ObservedMatrix as this posterior was fitted to"):
        posterior.condition(links)
    with pytest.raises(InputError, match=r"shape \(9, 13\)"):
        posterior.condition(mvgp.ObservedMatrix([0], [0], [1.0], (9, 14)))
    with pytest.raises(InputError, match="expected observed pairs"):
        posterior.retract(observed(which[29:31]))
    with pytest.raises(InputError, match=r"a pair \(rows, cols\)"):
        posterior.retract(3)
    posterior.save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file")
    for ask in (lambda: loaded.condition(observed(which[30:])), lambda: loaded.retract(([0], [0]))):
        with pytest.raises(InputError, match="does not hold the data"):
            ask()
    named = mvgp.ObservedMatrix([0], [0], [1.0], SHAPE, row_names=[f"r{i}" for i in range(9)])
    with pytest.raises(InputError, match="row_names"):
        posterior.condition(named)


# Fantasies --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cholesky", "cg"])
@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_fantasies_equal_a_posterior_for_each(method, count, weighted):
    prior, which = make_prior(ConstantMean(-0.4)), cells(45)
    model = mvgp.FullGP(prior, gaussian(), method=method, tolerance=1e-12)
    data = observed(which[:40])
    rows, cols = which[40:] // SHAPE[1], which[40:] % SHAPE[1]
    values = torch.randn(count, 5, dtype=torch.float64, generator=randomness.generator(8))
    weights = torch.tensor([1.0, 2.0, 3.0, 0.5, 0.7]) if weighted else None
    found = model.fit(data).fantasise(rows, cols, values, weights=weights)
    assert len(found) == count
    assert str(count) in repr(found)
    everything = all_cells()
    for number in range(count):
        more = mvgp.ObservedMatrix(rows, cols, values[number], SHAPE, weights=weights)
        expected = model.fit(data.joined(more))
        torch.testing.assert_close(found.mean(*everything)[number], expected.mean(*everything), atol=1e-8, rtol=0)
        torch.testing.assert_close(found.variance(*everything), expected.variance(*everything), atol=1e-8, rtol=0)
        assert_equal(found[number], expected)
        assert_equal(found[number].retract((rows, cols)), model.fit(data))
    assert found.scores([1, 2]).shape == (count, 2, SHAPE[1])
    joint = found([0, 1, 2], [0, 4, 4])
    assert joint.mean.shape == (count, 3)
    assert joint.covariance_matrix.shape == (count, 3, 3)
    torch.testing.assert_close(joint.variance[0], found.variance([0, 1, 2], [0, 4, 4]), atol=1e-8, rtol=0)
    assert found.sample([0, 1], [0, 4], 6).shape == (6, count, 2)
    assert joint.rsample(torch.Size([4])).shape == (4, count, 3)
    with pytest.raises(IndexError):
        found[count]


def test_fantasies_that_cannot_be():
    which = cells(30)
    labels = mvgp.ObservedMatrix([0, 0, 1, 1], [0, 1, 0, 2], [1.0, -1.0, 1.0, -1.0], SHAPE)
    with pytest.raises(InputError, match="FullGP with a GaussianLikelihood"):
        mvgp.TraceGP(make_prior(), gaussian()).fit(observed(which)).fantasise([0], [0], [[1.0]])
    with pytest.raises(InputError, match="BipartiteRankingLikelihood"):
        mvgp.FullGP(make_prior(), BipartiteRankingLikelihood()).fit(labels).fantasise([3], [0], [[1.0]])
    posterior = mvgp.FullGP(make_prior(), gaussian()).fit(labels)
    with pytest.raises(InputError, match="expected 1 for each fantasy"):
        posterior.fantasise([3], [0], [[1.0, 2.0]])
    with pytest.raises(InputError, match=r"\(S, k\)"):
        posterior.fantasise([3], [0], [1.0])


# The other models ---------------------------------------------------------------------------------------


LABELS = mvgp.ObservedMatrix(
    [0, 0, 0, 1, 1, 3, 3, 5, 5], [1, 2, 6, 2, 5, 0, 6, 3, 9], [1.0, -1.0, -1, 1, -1, 1, -1, 1, -1], SHAPE
)
MORE_LABELS = mvgp.ObservedMatrix([0, 2, 2], [9, 4, 7], [1.0, 1.0, -1.0], SHAPE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "penalty", [mvgp.SpectralElasticNet(0.5, 0.6), mvgp.SpectralElasticNet(0.5, 0.0), mvgp.TraceBall(2.0, 0.1)]
)
@pytest.mark.parametrize("likelihood", [gaussian(), BipartiteRankingLikelihood(noise=0.3)])
def test_the_trace_gp_starts_from_the_old_mean_and_is_certified(penalty, likelihood):
    options = {"penalty": penalty, "tolerance": 1e-9, "max_iterations": 20_000}
    model = mvgp.TraceGP(make_prior(), likelihood, **options)
    posterior = model.fit(LABELS)
    posterior.variance([0], [0])
    found, expected = posterior.condition(MORE_LABELS), model.fit(LABELS.joined(MORE_LABELS))
    for one, other in ((found, expected), (found.retract(MORE_LABELS), posterior)):
        assert one.certificate.converged
        assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-8)
        limit = certified_distance(make_prior(), one, other)
        torch.testing.assert_close(one.scores(), other.scores(), atol=limit + 1e-9, rtol=0)
        torch.testing.assert_close(one.variance(*all_cells()), other.variance(*all_cells()), atol=1e-8, rtol=0)
        assert one.penalty == penalty


@pytest.mark.slow
def test_it_starts_from_the_old_mean_and_strength_stays_absolute():
    which = cells(90)
    model = mvgp.TraceGP(make_prior(), gaussian(), strength=0.05, trace_share=0.9, tolerance=1e-7)
    posterior = model.fit(observed(which[:88]))
    rows, cols = which[88:] // SHAPE[1], which[88:] % SHAPE[1]
    # values that the mean has there already leave it the optimum
    same = posterior.condition(mvgp.ObservedMatrix(rows, cols, posterior.mean(rows, cols), SHAPE))
    assert same.certificate.converged
    assert same.certificate.iterations == 0 < posterior.certificate.iterations
    found = posterior.condition(observed(which[88:]))
    assert found.penalty == posterior.penalty
    path = list(model.path(observed(which[:88]), [1.0, 0.05]))[-1].posterior.condition(observed(which[88:]))
    assert path.certificate.primal == pytest.approx(found.certificate.primal, rel=1e-6)


@pytest.mark.slow
def test_biases_are_estimated_again():
    which = cells(60)
    options = {"row_bias": 0.5, "col_bias": 0.5, "penalty": mvgp.SpectralElasticNet(0.5, 0.6), "tolerance": 1e-10}
    model = mvgp.TraceGP(make_prior(), gaussian(), **options)
    found, expected = model.fit(observed(which[:50])).condition(observed(which[50:])), model.fit(observed(which))
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-3, rtol=0)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-9)


def test_the_ranking_of_the_plain_gp():
    model = mvgp.FullGP(make_prior(), BipartiteRankingLikelihood(noise=0.3), tolerance=1e-10, max_iterations=20_000)
    posterior = model.fit(LABELS)
    found, expected = posterior.condition(MORE_LABELS), model.fit(LABELS.joined(MORE_LABELS))
    for one, other in ((found, expected), (found.retract(MORE_LABELS), posterior)):
        assert one.certificate.converged
        assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-9)
        torch.testing.assert_close(one.scores(), other.scores(), atol=1e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [gaussian(), BipartiteRankingLikelihood(noise=0.3)])
def test_the_factor_gp_goes_on_from_its_factors(likelihood):
    """At full rank every maximum is the global one, the trace norm's."""
    model = mvgp.FactorGP(make_prior(), likelihood, rank=9, max_iterations=5000)
    posterior = model.fit(LABELS)
    found, expected = posterior.condition(MORE_LABELS), model.fit(LABELS.joined(MORE_LABELS))
    for one, other in ((found, expected), (found.retract(MORE_LABELS), posterior)):
        assert len(one.restarts) == 1
        assert one.objective == pytest.approx(other.objective, rel=1e-5)
        assert one.explain(0, 2).score == pytest.approx(float(one.mean(0, 2)), abs=1e-9)


@pytest.mark.parametrize("solver", ["newton", "svc"])
def test_the_support_vector_machine(solver):
    pytest.importorskip("sklearn")
    model = mvgp.PairwiseSVM(make_prior(), cost=50.0, solver=solver, tolerance=1e-9 if solver == "newton" else 1e-4)
    ranker = model.fit(LABELS)
    found, expected = ranker.condition(MORE_LABELS), model.fit(LABELS.joined(MORE_LABELS))
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-4)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.retract(MORE_LABELS).scores(), ranker.scores(), atol=1e-3, rtol=0)
    with pytest.raises(InputError, match="use condition"):
        ranker.fantasise([0], [0], [[1.0]])


# Whole lists --------------------------------------------------------------------------------------------


LINKS = mvgp.PositiveUnlabelled([0, 0, 2, 3, 3, 6], [1, 5, 5, 0, 10, 7], SHAPE, 0.1)


def graph_prior():
    edges = [torch.randint(0, size, (2 * size, 2), generator=randomness.generator(at)) for at, size in enumerate(SHAPE)]
    return mvgp.MatrixGP(*(DiffusionKernel(Graph(e, size)) for e, size in zip(edges, SHAPE, strict=True)))


@pytest.mark.parametrize("lists", ["linked", "all"])
@pytest.mark.parametrize("rows", [[2, 3], [2, 4]], ids=["known rows", "a new row"])
@pytest.mark.parametrize("method", ["auto", "cholesky", "cg"])
def test_new_links_of_the_plain_gp(lists, rows, method):
    old = mvgp.PositiveUnlabelled(LINKS.rows, LINKS.cols, SHAPE, 0.1, lists=lists)
    more = mvgp.PositiveUnlabelled(rows, [3, 4], SHAPE, 0.1, lists=lists)
    model = mvgp.FullGP(graph_prior(), gaussian(), method=method, tolerance=1e-12)
    posterior = model.fit(old)
    posterior.variance([0], [0])
    found = posterior.condition(more)
    assert_equal(found, model.fit(old.joined(more)))
    assert_equal(found.retract(more), posterior)
    if method == "auto" and (lists == "all" or rows == [2, 3]):
        assert found._fit.system._eigenpairs[1] is posterior._fit.system._eigenpairs[1]


@pytest.mark.slow
def test_new_links_of_the_other_models():
    more = mvgp.PositiveUnlabelled([2, 4], [3, 4], SHAPE, 0.1)
    both, penalty = LINKS.joined(more), mvgp.SpectralElasticNet(0.3, 0.6)
    options = {"penalty": penalty, "tolerance": 1e-8, "max_iterations": 20_000}
    for likelihood in (gaussian(), BipartiteRankingLikelihood(noise=0.3)):
        trace = mvgp.TraceGP(graph_prior(), likelihood, **options)
        found, expected = trace.fit(LINKS).condition(more), trace.fit(both)
        assert found.certificate.converged
        assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-7)
        factor = mvgp.FactorGP(graph_prior(), likelihood, rank=9, max_iterations=5000)
        assert factor.fit(LINKS).condition(more).objective == pytest.approx(factor.fit(both).objective, rel=1e-5)
    ranking = mvgp.FullGP(graph_prior(), BipartiteRankingLikelihood(noise=0.3), tolerance=1e-9, max_iterations=20_000)
    found, expected = ranking.fit(LINKS).condition(more), ranking.fit(both)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-8)
    machine = mvgp.PairwiseSVM(graph_prior(), solver="newton", tolerance=1e-9)
    torch.testing.assert_close(
        machine.fit(LINKS).condition(more).scores(), machine.fit(both).scores(), atol=1e-3, rtol=0
    )


def test_links_that_do_not_fit_are_named():
    posterior = mvgp.FullGP(graph_prior(), gaussian()).fit(LINKS)
    with pytest.raises(InputError, match=r"more.weight: expected 0.1 as in the data, got 0.05"):
        posterior.condition(mvgp.PositiveUnlabelled([0], [0], SHAPE))
    with pytest.raises(InputError, match="lists"):
        posterior.condition(mvgp.PositiveUnlabelled([0], [0], SHAPE, 0.1, lists="all"))
    with pytest.raises(InputError, match=r"link \(0, 5\) is known already"):
        posterior.condition(mvgp.PositiveUnlabelled([0, 1], [5, 2], SHAPE, 0.1))
    with pytest.raises(InputError, match="expected known links"):
        posterior.retract(([1], [1]))
    with pytest.raises(InputError, match="some links to be left"):
        posterior.retract(LINKS)
    with pytest.raises(InputError, match="on PositiveUnlabelled"):
        posterior.fantasise([1], [1], [[1.0]])
