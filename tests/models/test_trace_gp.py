import pickle

import gpytorch
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, InputError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.models.trace_sum import path_strengths
from mvgp.priors import ConstantMean, GivenMean
from tests import randomness

M, N = 12, 17


def ring(size):
    return Graph(np.stack([np.arange(size), (np.arange(size) + 1) % size], 1), size)


def gaussian(noise):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def make_prior(**options):
    x = torch.linspace(0, 2, N).double()
    return mvgp.MatrixGP(DiffusionKernel(ring(M)), gpytorch.kernels.RBFKernel(), col_inputs=x, **options)


def make_data(seed=0, share=0.5, offset=0.0):
    generator = randomness.generator(seed)
    truth = torch.randn(M, 2, generator=generator).double() @ torch.randn(2, N, generator=generator).double()
    noisy = truth + offset + 0.1 * torch.randn(M, N, generator=generator).double()
    mask = torch.rand(M, N, generator=generator) < share
    mask[3] = False
    return mvgp.ObservedMatrix.from_mask(noisy, mask)


EVERYTHING = torch.arange(M * N) // N, torch.arange(M * N) % N


def test_mean_factors_and_representer_agree():
    prior, data = make_prior(mean=ConstantMean(0.2)), make_data()
    posterior = mvgp.TraceGP(prior, gaussian(0.1), strength=0.05, trace_share=0.9).fit(data)
    assert posterior.certificate.converged
    assert 0 < posterior.rank < M
    left, right = posterior.factors
    assert left.shape == (M, posterior.rank)
    assert right.shape == (N, posterior.rank)
    torch.testing.assert_close(posterior.scores(), left @ right.T + 0.2, atol=1e-8, rtol=0)
    torch.testing.assert_close(posterior.mean(*EVERYTHING).reshape(M, N), posterior.scores(), atol=1e-8, rtol=0)


def test_no_trace_norm_is_the_plain_gp():
    prior, data = make_prior(), make_data()
    model = mvgp.TraceGP(prior, gaussian(0.1), penalty=mvgp.SpectralElasticNet(0.1, 0.0))
    posterior, full = model.fit(data), mvgp.FullGP(prior, gaussian(0.1)).fit(data)
    torch.testing.assert_close(posterior.scores(), full.scores(), atol=1e-7, rtol=0)
    assert posterior.certificate.relative_gap < 1e-8
    with pytest.raises(InputError, match="not of low rank"):
        _ = posterior.factors
    nearly = mvgp.TraceGP(prior, gaussian(0.1), penalty=mvgp.SpectralElasticNet(0.1, 1e-6), tolerance=1e-8).fit(data)
    torch.testing.assert_close(nearly.scores(), full.scores(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_covariance_is_that_of_the_plain_gp(share):
    prior, data = make_prior(), make_data()
    trace = mvgp.TraceGP(prior, gaussian(0.3), strength=0.1, trace_share=share).fit(data)
    full = mvgp.FullGP(prior, gaussian(0.3)).fit(data)
    torch.testing.assert_close(trace.variance(*EVERYTHING), full.variance(*EVERYTHING))
    rows, cols = torch.tensor([0, 3, 5]), torch.tensor([2, 2, 9])
    torch.testing.assert_close(trace(rows, cols).covariance_matrix, full(rows, cols).covariance_matrix)
    assert trace.sample(rows, cols, 5).shape == (5, 3)


def test_the_ball_at_the_optimums_radius_is_the_penalty():
    prior, data = make_prior(), make_data()
    net = mvgp.SpectralElasticNet(1.0, 0.7)
    # a gap g leaves the mean within sqrt(2 g / l2) of the optimum: 1e-4 here, a tenth of the limit below
    penalised = mvgp.TraceGP(prior, gaussian(0.1), penalty=net, tolerance=1e-10, max_iterations=20000).fit(data)
    ball = mvgp.TraceBall(penalised.trace_norm, net.ridge)
    constrained = mvgp.TraceGP(prior, gaussian(0.1), penalty=ball, tolerance=1e-10, max_iterations=20000).fit(data)
    torch.testing.assert_close(constrained.scores(), penalised.scores(), atol=1e-3, rtol=0)
    assert constrained.trace_norm <= ball.radius * (1 + 1e-6)


def test_strengths_are_relative_to_lam_max():
    prior, data = make_prior(), make_data()
    at_top = mvgp.TraceGP(prior, gaussian(0.1), strength=1.0001, trace_share=1.0).fit(data)
    assert at_top.rank == 0
    assert (at_top.scores() == 0).all()
    assert mvgp.TraceGP(prior, gaussian(0.1), strength=0.98, trace_share=1.0).fit(data).rank == 1


def test_factor_gp_at_sufficient_rank_reaches_the_trace_norm():
    prior, data = make_prior(), make_data()
    noise = 1.5
    trace = mvgp.TraceGP(
        prior, gaussian(noise), penalty=mvgp.SpectralElasticNet(noise, 1.0), tolerance=1e-7, max_iterations=20000
    ).fit(data)
    factor = mvgp.FactorGP(prior, gaussian(noise), rank=trace.rank + 2, restarts=3).fit(data)
    assert factor.objective == pytest.approx(trace.certificate.primal, rel=1e-4)
    assert len(factor.restarts) == 3
    torch.testing.assert_close(factor.scores(), trace.scores(), atol=2e-2, rtol=0)
    poor = mvgp.FactorGP(prior, gaussian(noise), rank=1).fit(data)
    assert poor.objective > trace.certificate.primal
    assert poor.factors[0].shape == (M, 1)


def test_the_laplace_covariance_is_the_linearised_posterior():
    prior, data = make_prior(), make_data()
    posterior = mvgp.FactorGP(prior, gaussian(0.2), rank=2).fit(data)
    variance = posterior.variance(*EVERYTHING)
    assert (variance > 0).all()
    joint = posterior(torch.tensor([0, 5]), torch.tensor([1, 8]))
    torch.testing.assert_close(joint.covariance_matrix.diagonal(), variance[torch.tensor([1, 5 * N + 8])])
    # against the Hessian of the linearised problem, by automatic differentiation
    laplace = posterior.conditional
    x, z = laplace.x, laplace.z
    g, h = laplace.row_root.to_dense(), laplace.col_root.to_dense()
    split = x.numel()

    def psi(flat):
        return ((g @ flat[:split].reshape(x.shape)) @ (h @ flat[split:].reshape(z.shape)).T)[data.rows, data.cols]

    def cell(flat):
        return ((g @ flat[:split].reshape(x.shape)) @ (h @ flat[split:].reshape(z.shape)).T)[5, 8]

    at = torch.cat([x.flatten(), z.flatten()])
    jacobian = torch.autograd.functional.jacobian(psi, at)
    gradient = torch.autograd.functional.jacobian(cell, at)
    truth = gradient @ torch.linalg.solve(torch.eye(len(at)) + jacobian.T @ jacobian / 0.2, gradient)
    torch.testing.assert_close(variance[5 * N + 8], truth)
    assert posterior.sample([0], [0], 3).shape == (3, 1)
    with pytest.raises(InputError, match="own rows and columns only"):
        posterior.variance([0], [0], col_inputs=[0.5])


def test_biases_are_found_jointly():
    prior = make_prior()
    data = make_data(offset=torch.arange(M).double().unsqueeze(1) * 3.0)
    plain = mvgp.TraceGP(prior, gaussian(0.1), strength=0.3, trace_share=1.0).fit(data)
    biased = mvgp.TraceGP(prior, gaussian(0.1), strength=0.3, trace_share=1.0, row_bias=0.0).fit(data)
    observed = torch.stack([data.rows, data.cols])
    for posterior in (plain, biased):
        left = data.values - posterior.mean(*observed)
        posterior.error = left.square().mean().item()
    assert biased.error < 0.5 * plain.error
    residual = data.values - biased.mean(*observed)
    sums = torch.zeros(M).double().index_add_(0, data.rows, residual)
    assert sums.abs().max() < 1e-6  # the row bias of the paper: residuals of every row sum to zero
    popular = mvgp.TraceGP(prior, gaussian(0.1), strength=0.5, row_bias=0.0, col_bias=1.0).fit(data)
    assert popular.certificate.converged
    torch.testing.assert_close(popular.mean(*EVERYTHING).reshape(M, N), popular.scores())


def test_a_given_mean_is_subtracted_and_added_back():
    data = make_data()
    offset = torch.randn(M, N).double()
    shifted = data.with_values(data.values + offset[data.rows, data.cols])
    # by strong convexity the two are within sqrt(2 gap / l2), 1e-4 here, of the same point
    options = {"strength": 0.1, "trace_share": 0.8, "tolerance": 1e-11}
    plain = mvgp.TraceGP(make_prior(), gaussian(0.1), **options).fit(data)
    given = mvgp.TraceGP(make_prior(mean=GivenMean(offset)), gaussian(0.1), **options).fit(shifted)
    torch.testing.assert_close(given.scores(), plain.scores() + offset, atol=1e-4, rtol=0)
    with pytest.raises(InputError, match=r"expected a matrix of shape \(12, 17\), got \(2, 2\)"):
        make_prior(mean=GivenMean(torch.zeros(2, 2)))


@pytest.mark.slow
def test_a_path_is_warm_started_and_can_be_continued():
    prior, data = make_prior(), make_data()
    model = mvgp.TraceGP(prior, gaussian(0.1), trace_share=0.9)
    whole = list(model.path(data, strengths=8, lowest=0.01))
    assert [p.strength for p in whole] == pytest.approx(path_strengths(8, 0.01))
    ranks = [p.posterior.rank for p in whole]
    assert ranks[0] <= 2
    assert ranks[-1] > 3
    assert all(p.posterior.certificate.converged for p in whole)
    cold = mvgp.TraceGP(prior, gaussian(0.1), strength=whole[-1].strength, trace_share=0.9).fit(data)
    primal = whole[-1].posterior.certificate.primal
    assert primal == pytest.approx(cold.certificate.primal, rel=2e-4)
    # interrupted after three points, and continued
    first = []
    for point in model.path(data, strengths=8, lowest=0.01):
        first.append(point)
        if len(first) == 3:
            break
    rest = list(model.path(data, strengths=8, lowest=0.01, after=first[-1]))
    assert len(rest) == 5
    assert rest[-1].posterior.certificate.primal == pytest.approx(primal, rel=2e-4)
    short = list(model.path(data, strengths=8, lowest=0.01, max_rank=2))
    assert len(short) < 8
    assert short[-1].posterior.rank > 2


def test_new_columns_through_the_representer():
    prior, data = make_prior(), make_data()
    posterior = mvgp.TraceGP(prior, gaussian(0.1), strength=0.05).fit(data)
    again = posterior.mean([0, 4], [0, 1], col_inputs=prior.col_axis.inputs[[2, 9]])
    torch.testing.assert_close(again, posterior.mean([0, 4], [2, 9]), atol=1e-8, rtol=0)
    close = posterior.mean([4], [0], col_inputs=prior.col_axis.inputs[[9]] + 1e-3)
    assert abs(close - posterior.mean([4], [9])) < 0.05


@pytest.mark.parametrize("solver", ["dense", "hybrid"])
def test_solvers_can_be_swapped(solver):
    prior, data = make_prior(), make_data()
    options = {"strength": 0.1, "trace_share": 0.8, "tolerance": 1e-6}
    one = mvgp.TraceGP(prior, gaussian(0.1), **options).fit(data)
    two = mvgp.TraceGP(prior, gaussian(0.1), solver=solver, **options).fit(data)
    assert two.certificate.solver == solver
    assert one.certificate.primal == pytest.approx(two.certificate.primal, rel=2e-6)
    torch.testing.assert_close(one.scores(), two.scores(), atol=2e-2, rtol=0)


@pytest.mark.slow
def test_planted_rank_is_found_and_beats_the_plain_gp():
    """Rank 5 on two graphs: better than FullGP at its best noise, and the right rank on part of the path."""
    randomness.seed_torch(0)
    size = (60, 80)
    graphs = [Graph(randomness.numpy_generator(s).integers(0, n, (3 * n, 2)), n) for s, n in enumerate(size)]
    prior = mvgp.MatrixGP(*[DiffusionKernel(g, 1.0, 0.2) for g in graphs])
    roots = [mvgp.linalg.root(axis.covariance()).to_dense() for axis in (prior.row_axis, prior.col_axis)]
    # five singular values of one size, so that all of them enter together, whatever the draw
    factors = [g.detach() @ torch.linalg.qr(torch.randn(g.shape[1], 5).double()).Q for g in roots]
    truth = factors[0] @ factors[1].T
    truth /= truth.std()
    mask = torch.rand(size) < 0.5
    data = mvgp.ObservedMatrix.from_mask(truth + 0.2 * torch.randn(size).double(), mask)
    unseen = ~mask
    errors = {}
    for point in mvgp.TraceGP(prior, gaussian(0.1), trace_share=1.0).path(data, strengths=20, lowest=0.01):
        error = (point.posterior.scores() - truth)[unseen].square().mean().sqrt().item()
        errors[point.strength] = (error, point.posterior.rank)
    plain = min(
        (mvgp.FullGP(prior, gaussian(s)).fit(data).scores() - truth)[unseen].square().mean().sqrt().item()
        for s in (0.03, 0.1, 0.3, 1.0, 3.0)
    )
    best = min(error for error, _ in errors.values())
    assert best < 0.9 * plain
    assert sum(rank == 5 for _, rank in errors.values()) >= 3


def test_missing_the_tolerance_warns_or_raises():
    prior, data = make_prior(), make_data()
    options = {"strength": 0.01, "trace_share": 1.0, "max_iterations": 3}
    with pytest.warns(RuntimeWarning, match="relative duality gap is .* after 3 iterations"):
        mvgp.TraceGP(prior, gaussian(0.1), **options).fit(data)
    with pytest.raises(ConvergenceError, match="approach this strength along a path"):
        mvgp.TraceGP(prior, gaussian(0.1), strict=True, **options).fit(data)


def test_single_precision_and_pickle():
    data = make_data()
    double = mvgp.TraceGP(make_prior(), gaussian(0.1), strength=0.1, trace_share=0.9).fit(data)
    single = mvgp.TraceGP(make_prior(dtype=torch.float32), gaussian(0.1), strength=0.1, trace_share=0.9).fit(data)
    assert single.scores().dtype == torch.float32
    assert single.certificate.relative_gap <= 1e-3
    assert single.certificate.primal == pytest.approx(double.certificate.primal, rel=1e-3)
    copy = pickle.loads(pickle.dumps(double))
    torch.testing.assert_close(copy.scores(), double.scores())


BAD = [
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), strength=0.0), "strength"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), trace_share=1.2), "trace_share"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), strength=1.0, penalty=mvgp.TraceBall(1.0)), "either penalty"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), penalty=3.0), "penalty: expected"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), solver="magic"), "solver"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), tolerance=-1.0), "tolerance"),
    (
        lambda p: mvgp.TraceGP(p, gpytorch.likelihoods.SoftmaxLikelihood(num_classes=2, num_features=1)),
        "GaussianLikelihood",
    ),
    (lambda p: mvgp.TraceGP(None, gaussian(1.0)), "expected mvgp.MatrixGP"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0)).fit([1]), "expected mvgp.ObservedMatrix"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0), penalty=mvgp.SpectralElasticNet(0.0, 0.0)).fit(make_data()), "zero"),
    (lambda p: mvgp.TraceGP(p, gaussian(1.0)).fit(make_data().with_values(0 * make_data().values)), "nothing to fit"),
    (lambda p: list(mvgp.TraceGP(p, gaussian(1.0), penalty=mvgp.TraceBall(1.0)).path(make_data())), "strengths"),
    (lambda p: list(mvgp.TraceGP(p, gaussian(1.0)).path(make_data(), strengths=[0.1, 0.2])), "decreasing"),
    (lambda p: list(mvgp.TraceGP(p, gaussian(1.0)).path(make_data(), strengths=0)), "at least one"),
    (lambda p: mvgp.FactorGP(p, gaussian(1.0), rank=0), "rank"),
    (lambda p: mvgp.FactorGP(p, gaussian(1.0), rank=2, restarts=True), "restarts"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(make_prior())


@pytest.mark.parametrize("solver", ["proximal", "dense", "hybrid"])
def test_the_limit_of_iterations_holds_for_every_solver(solver):
    """It used to be ignored by two of them."""
    matrices = [torch.eye(size, dtype=torch.float64) + 0.5 for size in (6, 9)]
    prior = mvgp.MatrixGP(*(PrecomputedKernel(matrix) for matrix in matrices))
    values = torch.sin(torch.arange(54, dtype=torch.float64)).reshape(6, 9)
    data = mvgp.ObservedMatrix.from_dense(values)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = mvgp.TraceGP(prior, likelihood, strength=0.05, solver=solver, max_iterations=1, tolerance=1e-12)
    with pytest.warns(RuntimeWarning, match="after 1 iterations"):
        assert model.fit(data).certificate.iterations == 1
