"""mvgp.botorch: a model that BoTorch's posteriors, samplers, acquisition functions and optimisers work with."""

import subprocess
import sys
from typing import ClassVar

import gpytorch
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import MatrixMarginalLogLikelihood, log_marginal
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import AxisNoiseGaussianLikelihood
from tests import randomness

botorch = pytest.importorskip("botorch")
from botorch.acquisition import (  # noqa: E402
    LogExpectedImprovement,
    ScalarizedPosteriorTransform,
    qKnowledgeGradient,
    qLogExpectedImprovement,
)
from botorch.fit import fit_gpytorch_mll  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.posteriors.gpytorch import GPyTorchPosterior, scalarize_posterior  # noqa: E402
from botorch.sampling import IIDNormalSampler, SobolQMCNormalSampler  # noqa: E402
from botorch.sampling.get_sampler import get_sampler  # noqa: E402
from botorch.utils.testing import BotorchTestCase  # noqa: E402

from mvgp.botorch import MatrixModel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # BoTorch's own
M, N, T = 3, 7, 12
F64 = torch.float64
GENERATOR = randomness.generator(21)
ROW_X, COL_X = torch.linspace(0, 2, M, dtype=F64).unsqueeze(1), torch.rand(N, 2, generator=GENERATOR, dtype=F64)
CELLS = torch.randperm(M * N, generator=GENERATOR)[:T].sort().values
VALUES = torch.randn(T, generator=GENERATOR, dtype=F64)
DATA = mvgp.ObservedMatrix(CELLS // N, CELLS % N, VALUES, (M, N))


def kernel(scale=1.3, length=0.7):
    found = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    found.outputscale = scale
    found.base_kernel.lengthscale = length
    return found


def gaussian(noise=0.2):
    found = gpytorch.likelihoods.GaussianLikelihood().double()
    found.noise = torch.tensor(noise, dtype=F64)
    return found


def prior_of():
    return mvgp.MatrixGP(kernel(), kernel(0.9), row_inputs=ROW_X, col_inputs=COL_X)


def sum_of(col_inputs=COL_X):
    """Of both axes, of the columns alone on a graph of rows, and of the rows alone."""
    axes = {"row_inputs": ROW_X, "col_inputs": col_inputs}
    graph = DiffusionKernel(Graph([(0, 1), (1, 2)], M))
    effect = mvgp.MatrixGP(kernel(0.4), mvgp.kernels.ConstantKernel(), **axes)
    return (
        mvgp.MatrixGP(kernel(), kernel(0.9), **axes)
        + mvgp.MatrixGP(graph, kernel(0.5, 0.3), col_inputs=col_inputs)
        + effect
    )


FULL = mvgp.FullGP(prior_of(), gaussian()).fit(DATA)
SUM = mvgp.FullGP(sum_of(), gaussian()).fit(DATA)
SUM_TRACE = mvgp.TraceGP(sum_of(), gaussian(), strength=0.2, trace_share=[1.0, 0.0, 0.0]).fit(DATA)
TRACE = mvgp.TraceGP(prior_of(), gaussian(), strength=0.2).fit(DATA)
POINTS = torch.rand(4, 3, 2, generator=GENERATOR, dtype=F64)  # (b, q, d)
TASKS = torch.tensor([[0, 1, 2], [1, 1, 0], [2, 0, 0], [2, 2, 1]])


def with_tasks(points=POINTS, tasks=TASKS):
    return torch.cat([tasks.unsqueeze(-1).to(points), points], -1)


class TestPosteriors(BotorchTestCase):
    """What BoTorch's own tests of posteriors ask of a GPyTorchPosterior, in its test case."""

    MODELS: ClassVar = {
        "task": (MatrixModel(FULL), with_tasks()),
        "outputs": (MatrixModel(FULL, outputs=[2, 0]), POINTS),
        "rows": (MatrixModel(FULL, inputs="row", outputs=[1, 4, 5]), POINTS[..., :1]),
        "both": (MatrixModel(FULL, inputs="both"), torch.cat([POINTS[..., :1], POINTS], -1)),
        "trace": (MatrixModel(TRACE), with_tasks()),
        "sum": (MatrixModel(SUM), with_tasks()),
        "conditioned": (
            MatrixModel(FULL).condition_on_observations(with_tasks()[0], torch.ones(3, 1, dtype=F64)),
            with_tasks(),
        ),
    }

    def check(self, model, x):
        posterior = model.posterior(x)
        shape = torch.Size([*x.shape[:-1], model.num_outputs])
        self.assertIsInstance(posterior, GPyTorchPosterior)
        self.assertEqual(posterior.device.type, self.device.type)
        self.assertEqual(posterior.dtype, F64)
        self.assertEqual(posterior._extended_shape(), shape)
        self.assertEqual(posterior.mean.shape, shape)
        self.assertEqual(posterior.variance.shape, shape)
        self.assertTrue((posterior.variance > 0).all())
        for sample_shape in (torch.Size([4]), torch.Size([4, 2])):
            samples = posterior.rsample(sample_shape=sample_shape)
            self.assertEqual(samples.shape, sample_shape + shape)
            base = torch.randn(*sample_shape, *posterior.base_sample_shape, dtype=F64)
            twice = [posterior.rsample_from_base_samples(sample_shape, base) for _ in range(2)]
            self.assertAllClose(*twice)
            self.assertEqual(twice[0].shape, sample_shape + shape)
            nothing = posterior.rsample_from_base_samples(sample_shape, torch.zeros_like(base))
            self.assertAllClose(nothing, posterior.mean.expand_as(nothing))
        with self.assertRaises(RuntimeError):
            posterior.rsample_from_base_samples(torch.Size([5]), base)
        for make in (IIDNormalSampler, SobolQMCNormalSampler):
            sampler = make(sample_shape=torch.Size([3]), seed=randomness.seed(1))
            self.assertEqual(sampler(posterior).shape, torch.Size([3, *shape]))
            self.assertAllClose(sampler(posterior), sampler(posterior))
        self.assertEqual(get_sampler(posterior, torch.Size([2]))(posterior).shape, torch.Size([2, *shape]))
        quantile = posterior.quantile(torch.tensor([0.025, 0.975], dtype=F64))
        self.assertTrue((quantile[0] < quantile[1]).all())
        self.assertTrue((posterior.density(torch.tensor([0.0], dtype=F64)) > 0).all())
        noisy = model.posterior(x, observation_noise=True)
        self.assertAllClose(noisy.variance, posterior.variance + 0.2)
        given = torch.rand(shape, dtype=F64)
        self.assertAllClose(model.posterior(x, observation_noise=given).variance, posterior.variance + given)
        weights = torch.rand(model.num_outputs, dtype=F64)
        transformed = model.posterior(x, posterior_transform=ScalarizedPosteriorTransform(weights))
        self.assertEqual(transformed.mean.shape, torch.Size([*x.shape[:-1], 1]))
        self.assertAllClose(transformed.variance, scalarize_posterior(posterior, weights).variance)

    def test_every_view(self):
        for name, (model, x) in self.MODELS.items():
            with self.subTest(name):
                self.check(model, x)
                self.check(model, x[0])
                self.check(model, x.expand(2, *x.shape))

    def test_of_one_task_it_is_a_model_of_botorch(self):
        """One row is a plain GP: BoTorch's ``SingleTaskGP`` with the same kernel."""
        one = mvgp.MatrixGP(mvgp.kernels.PrecomputedKernel(torch.eye(1, dtype=F64)), kernel(), col_inputs=COL_X[:5])
        values = VALUES[:5]
        ours = mvgp.FullGP(one, gaussian()).fit(mvgp.ObservedMatrix([0] * 5, range(5), values, (1, 5)))
        theirs = SingleTaskGP(
            COL_X[:5],
            values.unsqueeze(-1),
            likelihood=gaussian(),
            covar_module=kernel(),
            mean_module=gpytorch.means.ZeroMean(),
            outcome_transform=None,
        )
        found, expected = MatrixModel(ours, outputs=[0]).posterior(POINTS), theirs.posterior(POINTS)
        self.assertAllClose(found.mean, expected.mean, rtol=1e-7, atol=1e-7)
        self.assertAllClose(found.distribution.covariance_matrix, expected.distribution.covariance_matrix, atol=1e-7)


def test_views_agree():
    tasks, outputs = MatrixModel(FULL), MatrixModel(FULL, outputs=[2, 0])
    joint = outputs.posterior(POINTS)
    for place, row in enumerate([2, 0]):
        single = tasks.posterior(with_tasks(tasks=torch.full_like(TASKS, row)))
        assert_close(joint.mean[..., place], single.mean.squeeze(-1))
        assert_close(joint.variance[..., place], single.variance.squeeze(-1))
    assert_close(joint.mean[0, :, 0], FULL.mean(2, range(3), col_inputs=POINTS[0]))
    part = outputs.posterior(POINTS, output_indices=[1])
    assert_close(part.mean, joint.mean[..., 1:])
    both = MatrixModel(FULL, inputs="both").posterior(torch.cat([ROW_X[TASKS], POINTS], -1))
    assert_close(both.mean, tasks.posterior(with_tasks()).mean)
    other = MatrixModel(FULL, task_feature=2).posterior(with_tasks()[..., [1, 2, 0]])
    assert_close(other.mean, tasks.posterior(with_tasks()).mean)


@pytest.mark.parametrize(
    "posterior",
    [FULL, TRACE, pytest.param(SUM, marks=pytest.mark.slow), pytest.param(SUM_TRACE, marks=pytest.mark.slow)],
    ids=["full", "trace", "sum", "sum, trace"],
)
def test_gradients_of_posterior_and_acquisition(posterior):
    model = MatrixModel(posterior)

    def moments(points):
        found = model.posterior(with_tasks(points))
        return found.mean, found.distribution.covariance_matrix

    x = POINTS.clone().requires_grad_()
    assert gradcheck(moments, x)
    acquisition = LogExpectedImprovement(model, best_f=0.5)
    assert gradcheck(lambda x: acquisition(with_tasks(x, TASKS)[:, :1]), x)
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=randomness.seed(2))
    batch = qLogExpectedImprovement(model, best_f=0.5, sampler=sampler)
    assert gradcheck(lambda x: batch(with_tasks(x)), x)
    full = with_tasks(x)
    (gradient,) = torch.autograd.grad(acquisition(full[:, :1]).sum(), full)
    assert (gradient[..., 0] == 0).all()  # a row's number


def refitted(rows, points, values, noise=0.2, is_sum=False):
    """The posterior given the old data and values at new columns, by a fit to all of them."""
    count = len(points)
    inputs = torch.cat([COL_X, points])
    prior = mvgp.MatrixGP(kernel(), kernel(0.9), row_inputs=ROW_X, col_inputs=inputs)
    prior = sum_of(inputs) if is_sum else prior
    data = mvgp.ObservedMatrix(
        torch.cat([DATA.rows, rows]),
        torch.cat([DATA.cols, N + torch.arange(count)]),
        torch.cat([DATA.values, values]),
        (M, N + count),
        weights=torch.cat([torch.ones(T, dtype=F64), torch.full((count,), 0.2 / noise, dtype=F64)]),
    )
    return mvgp.FullGP(prior, gaussian()).fit(data)


@pytest.mark.parametrize("is_sum", [False, True], ids=["one term", "sum"])
@pytest.mark.parametrize("noise", [None, 0.05])
def test_conditioning_is_a_refit(noise, is_sum):
    source = SUM if is_sum else FULL
    values = torch.randn(3, generator=GENERATOR, dtype=F64)
    given = None if noise is None else torch.tensor([[noise]], dtype=F64)
    model = MatrixModel(source).condition_on_observations(with_tasks()[0], values.unsqueeze(-1), noise=given)
    expected = MatrixModel(refitted(TASKS[0], POINTS[0], values, noise or 0.2, is_sum)).posterior(with_tasks())
    found = model.posterior(with_tasks())
    assert_close(found.mean, expected.mean, rtol=1e-7, atol=1e-8)
    assert_close(found.distribution.covariance_matrix, expected.distribution.covariance_matrix, rtol=1e-7, atol=1e-8)
    first = MatrixModel(source).condition_on_observations(with_tasks()[0, :1], values[:1].unsqueeze(-1), noise=given)
    twice = first.condition_on_observations(with_tasks()[0, 1:], values[1:].unsqueeze(-1), noise=given)
    assert_close(twice.posterior(with_tasks()).mean, expected.mean, rtol=1e-7, atol=1e-8)


def test_several_outputs_are_conditioned_on_at_once():
    model, values = MatrixModel(FULL, outputs=[2, 0]), torch.randn(2, 2, generator=GENERATOR, dtype=F64)
    found = model.condition_on_observations(POINTS[0, :2], values).posterior(POINTS)
    rows = torch.tensor([2, 0, 2, 0])
    prior = mvgp.MatrixGP(kernel(), kernel(0.9), row_inputs=ROW_X, col_inputs=torch.cat([COL_X, POINTS[0, :2]]))
    cols = torch.tensor([N, N, N + 1, N + 1])
    data = mvgp.ObservedMatrix(
        torch.cat([DATA.rows, rows]), torch.cat([DATA.cols, cols]), torch.cat([VALUES, values.flatten()]), (M, N + 2)
    )
    expected = MatrixModel(mvgp.FullGP(prior, gaussian()).fit(data), outputs=[2, 0]).posterior(POINTS)
    assert_close(found.mean, expected.mean, rtol=1e-7, atol=1e-8)


def test_fantasies_come_in_batches_and_keep_gradients():
    model = MatrixModel(FULL)
    sampler = SobolQMCNormalSampler(torch.Size([5]), seed=randomness.seed(3))
    x = with_tasks()[:, :2].clone().requires_grad_()
    fantasy = model.fantasize(x, sampler)
    assert fantasy.batch_shape == (5, 4)
    found = fantasy.posterior(with_tasks()[:, 2:])
    assert found.mean.shape == (5, 4, 1, 1)
    assert found.mean.requires_grad
    again = model.fantasize(x, sampler, observation_noise=torch.full((1, 1), 0.2, dtype=F64))
    assert_close(again.posterior(with_tasks()[:, 2:]).mean, found.mean)
    assert (found.variance <= model.posterior(with_tasks()[:, 2:]).variance + 1e-12).all()
    gain = qKnowledgeGradient(
        model, num_fantasies=3, sampler=SobolQMCNormalSampler(torch.Size([3]), seed=randomness.seed(4))
    )
    points = with_tasks().requires_grad_()
    wide = torch.cat([points[:, :1], points[:, [1, 2, 1]]], dim=1)  # one candidate, a solution for each fantasy
    (gradient,) = torch.autograd.grad(gain(wide).sum(), points)
    assert (gradient[..., 1:].abs().sum((1, 2)) > 0).all()


# Optimisation -------------------------------------------------------------------------------------

BEST = torch.tensor([0.62, 0.35], dtype=F64)


def planted(rows, x):
    """Largest at ``BEST`` in every row, 1 there."""
    height = torch.tensor([0.5, 1.0, 0.8], dtype=F64)[rows]
    return height * torch.exp(-2 * (x - BEST).square().sum(-1))


@pytest.mark.slow
def test_expected_improvement_finds_the_optimum_of_a_planted_function():
    """Within 0.05 of the largest value after ten steps, whatever the start: other rows were seen on a grid."""
    side = torch.linspace(0.1, 0.9, 4, dtype=F64)
    x = torch.cartesian_prod(side, side)
    rows, cols = [torch.tensor([0, 2]).repeat_interleave(len(x))], [torch.arange(len(x)).repeat(2)]
    row_kernel = mvgp.kernels.PrecomputedKernel(0.8 + 0.2 * torch.eye(M, dtype=F64))
    likelihood = gaussian(1e-4)
    start = torch.randint(len(x), (1,), generator=randomness.generator(6))
    rows.append(torch.tensor([1]))
    cols.append(start)
    bounds = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 1.0]], dtype=F64)
    with torch.random.fork_rng():
        randomness.seed_torch(7)
        for _ in range(10):
            row, col = torch.cat(rows), torch.cat(cols)
            values = planted(row, x[col])
            prior = mvgp.MatrixGP(row_kernel, kernel(1.0, 0.5), col_inputs=x)
            posterior = mvgp.FullGP(prior, likelihood).fit(mvgp.ObservedMatrix(row, col, values, prior.shape))
            acquisition = LogExpectedImprovement(MatrixModel(posterior), best_f=values[row == 1].max())
            options = {"q": 1, "num_restarts": 4, "raw_samples": 32, "fixed_features": {0: 1.0}}
            candidate, value = optimize_acqf(acquisition, bounds, **options)
            assert_close(acquisition(candidate).squeeze(0), value)
            x = torch.cat([x, candidate[:, 1:].detach()])
            rows.append(torch.tensor([1]))
            cols.append(torch.tensor([len(x) - 1]))
    assert float(planted(torch.ones(10, dtype=torch.long), x[-10:]).max()) > 0.95


def test_fit_gpytorch_mll_trains_our_objective():
    prior, likelihood = prior_of(), gaussian()
    mll = MatrixMarginalLogLikelihood(likelihood, prior, data=DATA)
    before = float(log_marginal(prior, likelihood, DATA).value.detach())
    assert_close(-mll.compute_custom_loss() * T, log_marginal(prior, likelihood, DATA).value)
    assert fit_gpytorch_mll(mll) is mll
    assert not mll.training
    after = log_marginal(prior, likelihood, DATA).value
    assert float(after.detach()) > before
    learnable = [p for p in (*prior.parameters(), *likelihood.parameters()) if p.requires_grad]
    gradients = torch.autograd.grad(after, learnable, allow_unused=True)
    assert all(g is None or torch.isfinite(g).all() for g in gradients)
    weighted = mvgp.ObservedMatrix(DATA.rows, DATA.cols, VALUES, (M, N), weights=torch.linspace(0.5, 2, T))
    noisy = AxisNoiseGaussianLikelihood(M, noise=0.2)
    fit_gpytorch_mll(MatrixMarginalLogLikelihood(noisy, prior_of(), data=weighted))
    assert noisy.row_deviation.abs().max() > 0
    with pytest.raises(InputError, match="data: to be fitted by BoTorch"):
        fit_gpytorch_mll(MatrixMarginalLogLikelihood(likelihood, prior))


# Noise and arguments ------------------------------------------------------------------------------


def test_the_noise_of_a_row():
    likelihood = AxisNoiseGaussianLikelihood(M, noise=0.3)
    likelihood.row_deviation = [0.5, -0.2, -0.3]
    posterior = mvgp.FullGP(prior_of(), likelihood).fit(DATA)
    for scale in (1.0, 3.0):
        model = MatrixModel(posterior.rescaled(scale))
        added = model.posterior(with_tasks(), observation_noise=True).variance - model.posterior(with_tasks()).variance
        assert_close(added.squeeze(-1), scale * likelihood.noise_at([0, 1, 2], [0] * 3).detach()[TASKS])
    with pytest.raises(InputError, match="noise of a new row is not known"):
        MatrixModel(posterior, inputs="both").posterior(POINTS[..., [0, 0, 1]], observation_noise=True)


NODES = mvgp.MatrixGP(DiffusionKernel(Graph([(0, 1), (1, 2)], M)), kernel(), col_inputs=COL_X)
ON_NODES = mvgp.FullGP(NODES, gaussian()).fit(DATA)
REFUSED = {
    "posterior": (lambda: MatrixModel(prior_of()), "posterior: expected a posterior of mvgp"),
    "inputs": (lambda: MatrixModel(FULL, inputs="cell"), "inputs: expected 'col', 'row' or 'both'"),
    "nodes": (lambda: MatrixModel(ON_NODES, inputs="row"), "inputs: the rows of the prior are nodes"),
    "nodes of a term": (
        lambda: MatrixModel(SUM, inputs="row"),
        r"inputs: the rows of the prior are nodes or categories in terms\[1\]",
    ),
    "inputs of a term": (
        lambda: MatrixModel(
            mvgp.FullGP(
                NODES + mvgp.MatrixGP(kernel(), kernel(), row_inputs=ROW_X, col_inputs=COL_X + 1), gaussian()
            ).fit(DATA)
        ),
        r"expected the same col_inputs in all terms of a sum, which X stands for, got others in terms\[1\]",
    ),
    "outputs": (lambda: MatrixModel(FULL, outputs=[M]), r"outputs\[0\]: expected a position in \[0, 3\)"),
    "no outputs": (lambda: MatrixModel(FULL, outputs=[]), "outputs: expected at least one"),
    "both": (lambda: MatrixModel(FULL, inputs="both", outputs=[0]), "outputs: expected None"),
    "width": (
        lambda: MatrixModel(FULL).posterior(POINTS),
        r"X: expected a tensor of shape \(\.\.\., q, 3\), got \(4, 3, 2\)",
    ),
    "task": (lambda: MatrixModel(FULL).posterior(with_tasks(tasks=TASKS + 1)), r"X\[..., task_feature\]"),
    "half a task": (lambda: MatrixModel(FULL).posterior(with_tasks() + 0.5), r"expected a whole number"),
    "Y": (
        lambda: MatrixModel(FULL).condition_on_observations(with_tasks()[0], VALUES[:3]),
        r"Y: expected shape \(\.\.\., 3, 1\)",
    ),
    "noise": (
        lambda: MatrixModel(FULL).posterior(with_tasks(), observation_noise=torch.ones(5, dtype=F64)),
        "noise: expected a shape that broadcasts to",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        call()


def test_every_view_of_a_sum():
    """The answers of the posterior itself, which adds up its terms."""
    joint = MatrixModel(SUM, outputs=[2, 0]).posterior(POINTS)
    tasks = MatrixModel(SUM)
    for place, row in enumerate([2, 0]):
        single = tasks.posterior(with_tasks(tasks=torch.full_like(TASKS, row)))
        assert_close(joint.mean[..., place], single.mean.squeeze(-1))
        assert_close(joint.variance[..., place], single.variance.squeeze(-1))
    assert_close(joint.mean[0, :, 0], SUM.mean(2, range(3), col_inputs=POINTS[0]))
    assert_close(joint.variance[0, :, 0], SUM.variance(2, range(3), col_inputs=POINTS[0]))
    pair = mvgp.MatrixGP(kernel(), kernel(0.9), row_inputs=ROW_X, col_inputs=COL_X)
    twice = mvgp.FullGP(pair + pair, gaussian()).fit(DATA)
    both = MatrixModel(twice, inputs="both").posterior(torch.cat([ROW_X[TASKS], POINTS], -1))
    assert_close(both.mean, MatrixModel(twice).posterior(with_tasks()).mean)


def test_a_graph_of_rows_and_continuous_columns():
    model = MatrixModel(ON_NODES)
    assert model.posterior(with_tasks()).mean.shape == (4, 3, 1)
    assert "inputs='col'" in repr(model)


@pytest.mark.slow
def test_botorch_is_imported_when_it_is_used():
    code = "import sys, mvgp, mvgp.models, mvgp.hyperparameters; assert 'botorch' not in sys.modules; mvgp.botorch.MatrixModel"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
