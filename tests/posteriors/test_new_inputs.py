"""Answers at new inputs: of any shape, equal to dense algebra, with gradients that are right; or refused by name."""

import gpytorch
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.posteriors.covariance import WholeListCovariance
from mvgp.priors import ConstantMean, InputMean
from tests import randomness

M, N, T = 4, 6, 13
F64 = torch.float64
GRAPH = Graph([(0, 1), (1, 2), (2, 3)], M)
GENERATOR = randomness.generator(16)
ROW_X = torch.linspace(0, 2, M, dtype=F64).unsqueeze(1)
COL_X = torch.stack([torch.linspace(-1, 1, N, dtype=F64), torch.linspace(1, -1, N, dtype=F64) ** 2], 1)
CELLS = torch.randperm(M * N, generator=GENERATOR)[:T].sort().values
VALUES = torch.randn(M * N, generator=GENERATOR, dtype=F64)
NEW = COL_X[:3] + torch.tensor(
    [[0.11, 0.2], [0.23, -0.1], [-0.17, 0.3]], dtype=F64
)  # apart from each other and the rest
NEW_ROWS = torch.tensor([[0.3], [1.1]], dtype=F64)
ROWS, COLS = [0, 1, 1, 3], [0, 1, 2, 0]


def rbf(scale=1.3):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    kernel.outputscale = scale
    return kernel


def gaussian(noise=0.4):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    return likelihood


def linear(width, value=0.4):
    mean = gpytorch.means.LinearMean(width).double()
    with torch.no_grad():
        mean.weights.fill_(value)
        mean.bias.fill_(0.1)
    return mean


def smooth_prior(mean=None):
    return mvgp.MatrixGP(rbf(), rbf(0.8), row_inputs=ROW_X, col_inputs=COL_X, mean=mean)


def observed(cells=CELLS, weights=None):
    return mvgp.ObservedMatrix(cells // N, cells % N, VALUES[cells], (M, N), weights=weights)


WEIGHTS = torch.rand(T, generator=GENERATOR, dtype=F64) + 0.5
POSTERIORS = {
    "full": lambda: mvgp.FullGP(smooth_prior(), gaussian()).fit(observed()),
    "weights": lambda: mvgp.FullGP(smooth_prior(), gaussian()).fit(observed(weights=WEIGHTS)),
    "means of inputs": lambda: mvgp.FullGP(smooth_prior(InputMean(linear(1), linear(2))), gaussian()).fit(observed()),
    # gradcheck divides differences by 1e-6, and with them the residual of every solution
    "conjugate gradients": lambda: mvgp.FullGP(smooth_prior(), gaussian(), method="cg", tolerance=1e-13).fit(
        observed()
    ),
    "complete": lambda: mvgp.FullGP(smooth_prior(), gaussian()).fit(observed(torch.arange(M * N))),
    "trace": lambda: mvgp.TraceGP(smooth_prior(ConstantMean(0.2)), gaussian(), strength=0.1).fit(observed()),
    "ridge": lambda: mvgp.TraceGP(smooth_prior(), gaussian(), strength=0.1, trace_share=0.0).fit(observed()),
    "rescaled": lambda: mvgp.TraceGP(smooth_prior(), gaussian(), strength=0.1).fit(observed()).rescaled(2.0),
}


@pytest.fixture(scope="module", params=POSTERIORS)
def posterior(request):
    return POSTERIORS[request.param]()


def rsample(found):
    with torch.random.fork_rng():
        randomness.seed_torch(1)
        return found.rsample(torch.Size([2]))


ANSWERS = {
    "mean": lambda p, **x: p.mean(ROWS, COLS, **x),
    "variance": lambda p, **x: p.variance(ROWS, COLS, **x),
    "interval": lambda p, **x: torch.stack(p.interval(ROWS, COLS, **x)),
    "distribution, mean": lambda p, **x: p(ROWS, COLS, **x).mean,
    "distribution, variance": lambda p, **x: p(ROWS, COLS, **x).variance,
    "distribution, covariance": lambda p, **x: p(ROWS, COLS, **x).covariance_matrix,
    "distribution, product": lambda p, **x: p(ROWS, COLS, **x).lazy_covariance_matrix @ VALUES[:8].reshape(4, 2),
    "distribution, rsample": lambda p, **x: rsample(p(ROWS, COLS, **x)),
    "sample": lambda p, **x: p.sample(ROWS, COLS, 2, generator=randomness.generator(2), **x),
    "joint": lambda p, **x: p.joint(ROWS, COLS, **x).matrix,
    "joint, sample": lambda p, **x: p.joint(ROWS, COLS, **x).sample(2, randomness.generator(2)),
    "scores": lambda p, **x: p.scores([0, 2], **x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_gradients_with_respect_to_new_columns(posterior, name):
    x = NEW.clone().requires_grad_()
    answer = ANSWERS[name]
    assert gradcheck(lambda x: answer(posterior, col_inputs=x), x)
    assert_close(answer(posterior, col_inputs=x).detach(), answer(posterior, col_inputs=x).detach())
    if "sample" not in name:  # a sample that carries a gradient is another draw
        assert_close(answer(posterior, col_inputs=x).detach(), answer(posterior, col_inputs=NEW))
    assert not answer(posterior, col_inputs=NEW).requires_grad


@pytest.mark.parametrize("which", [["mean", "variance"], ["distribution, covariance", "distribution, rsample"]])
def test_gradients_with_respect_to_new_rows_and_columns(posterior, which):
    cells = [0, 1, 1, 0], [0, 1, 2, 2]
    inputs = NEW_ROWS.clone().requires_grad_(), NEW.clone().requires_grad_()

    def answer(rows, cols):
        x = {"row_inputs": rows, "col_inputs": cols}
        if "mean" in which:
            return posterior.mean(*cells, **x) + posterior.variance(*cells, **x)
        found = posterior(*cells, **x)
        return torch.cat([found.covariance_matrix, rsample(found)])

    assert gradcheck(answer, inputs)


def dense(prior, data, noise, rows, x):
    """Mean and covariance at (row, new column) by dense algebra, differentiated by torch."""
    row_k = prior.row_axis.covariance().to_dense()
    col_k = prior.col_kernel(torch.cat([COL_X, x])).to_dense()
    at_rows, at_cols = torch.cat([data.rows, rows]), torch.cat([data.cols, N + torch.arange(len(x))])
    k = row_k[at_rows][:, at_rows] * col_k[at_cols][:, at_cols]
    count = len(data)
    gain = torch.linalg.solve(k[:count, :count] + noise * torch.eye(count, dtype=F64), k[:count, count:]).mT
    mean = prior.mean_module
    offset = mean.row_part(rows) + mean.col(x)
    return offset + gain @ (data.values - mean(data.rows, data.cols)), k[count:, count:] - gain @ k[:count, count:]


def test_values_and_gradients_are_those_of_dense_algebra():
    prior, data = smooth_prior(InputMean(linear(1), linear(2))), observed()
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    rows, weights = torch.tensor([0, 3, 1]), torch.randn(3, 3, generator=GENERATOR, dtype=F64)
    grads = []
    for source in ("ours", "dense"):
        x = NEW.clone().requires_grad_()
        if source == "ours":
            found = posterior(rows, range(3), col_inputs=x)
            mean, covariance = found.mean, found.covariance_matrix
        else:
            mean, covariance = dense(prior, data, posterior.noise, rows, x)
        total = (weights[0] * mean).sum() + (weights * covariance).sum()
        grads.append((mean.detach(), covariance.detach(), *torch.autograd.grad(total, x)))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_batches_are_so_many_queries(posterior):
    x = torch.stack([NEW, NEW + 0.05, NEW - 0.07]).requires_grad_()  # (3, 3, 2)
    rows = torch.tensor([[0, 1, 2], [3, 3, 0], [1, 2, 2]])
    found = posterior(rows, range(3), col_inputs=x)
    assert found.batch_shape == (3,)
    assert found.event_shape == (3,)
    assert found.covariance_matrix.shape == (3, 3, 3)
    assert posterior.sample(rows, range(3), 5, col_inputs=x.detach()).shape == (5, 3, 3)
    assert_close(found.variance, posterior.variance(rows, range(3), col_inputs=x))
    for batch in range(3):
        single = posterior(rows[batch], range(3), col_inputs=x[batch])
        assert_close(found.mean[batch], single.mean)
        assert_close(found.covariance_matrix[batch], single.covariance_matrix)
    assert gradcheck(lambda x: posterior(rows, range(3), col_inputs=x).covariance_matrix, x)
    assert gradcheck(lambda x: rsample(posterior(rows, range(3), col_inputs=x)), x)
    wide = posterior([0, 1], [0, 2], col_inputs=x.detach().expand(2, 3, 3, 2))
    assert wide.batch_shape == (2, 3)
    assert_close(wide.mean[1], wide.mean[0])


def test_cells_broadcast(posterior):
    whole = posterior.scores()
    assert_close(posterior.mean(3, [0, 1, 2]), whole[3, :3])
    assert_close(posterior.mean([[0], [2]], range(N)), whole[[0, 2]])
    assert posterior.mean(3, 2).shape == (1,)
    assert posterior.variance([[0], [2]], [1, 2, 4]).shape == (2, 3)
    grid = posterior([[0], [2]], range(N))
    assert grid.batch_shape == (2,)
    assert_close(grid.covariance_matrix[1], posterior([2] * N, range(N)).covariance_matrix)
    assert posterior.joint([[0], [2]], range(N)).matrix.shape == (2 * N, 2 * N)
    assert_close(posterior.joint([[0], [2]], range(N)).mean, whole[[0, 2]].flatten())
    with pytest.raises(InputError, match=r"rows \(3,\), cols \(2, 2\)"):
        posterior.mean([0, 1, 2], [[0, 1], [1, 2]])
    with pytest.raises(InputError, match=r"col_inputs in batches \(3,\)"):
        posterior.mean([[0], [1]], 0, col_inputs=NEW.expand(3, 3, 2))


def test_the_prior_s_own_inputs_as_new_ones_have_the_same_answers(posterior):
    own = {"row_inputs": ROW_X, "col_inputs": COL_X}
    assert_close(posterior.scores(**own), posterior.scores())
    assert_close(posterior.scores([1, 3], col_inputs=COL_X), posterior.scores([1, 3]))
    assert_close(posterior.variances(**own).values, posterior.variances(method="exact").values, rtol=1e-6, atol=1e-8)
    assert posterior.variances([1], col_inputs=NEW).values.shape == (1, 3)
    table, same = (posterior.top(1, k=3, **x) for x in (own, {}))
    assert table.items.tolist() == same.items.tolist()
    assert_close(table.mean, same.mean)
    assert_close(table.std, same.std, rtol=0.02, atol=0.0)
    chance = posterior.top_probability(0, k=2, col_inputs=NEW)
    assert chance.shape == (3,)
    assert abs(float(chance.sum()) - 2) < 1e-9
    assert posterior.top(0, k=1, col_inputs=NEW, exclude=([0], [1])).items.tolist() != [1]
    low, high = posterior.rank_interval(0, col_inputs=NEW)
    assert (low <= high).all()
    assert len(low) == 3
    lead = posterior.beats(0, 0, 2, col_inputs=NEW)
    assert abs(lead + posterior.beats(0, 2, 0, col_inputs=NEW) - 1) < 1e-9
    assert len(posterior.next_tests(0, 2, k=1, col_inputs=NEW, noise=0.1).items) == 2


def test_a_detached_covariance_has_no_gradient():
    op = POSTERIORS["full"]()(ROWS, COLS, col_inputs=NEW.clone().requires_grad_()).lazy_covariance_matrix
    assert op.requires_grad
    assert op.diagonal().requires_grad
    constant = op.detach()
    assert not constant.diagonal().requires_grad
    assert not constant.to_dense().requires_grad
    assert not constant.zero_mean_mvn_samples(2).requires_grad


# What cannot carry a gradient ---------------------------------------------------------------------


def half_wrong():
    """One observation, whose column is asked about again: d mean / d log scale has a part through the solve."""
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    kernel.outputscale = 1.0
    one = torch.zeros(1, 1, dtype=F64)
    prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel().double(), row_inputs=one, col_inputs=one)
    return mvgp.FullGP(prior, gaussian(1.0)).fit(mvgp.ObservedMatrix([0], [0], [1.0], (1, 1)))


def test_half_a_gradient_with_respect_to_hyperparameters_is_refused():
    """The mean is s / (s + 1): its derivative at s = 1 is 1/4; with a constant solve it would be 1/2."""
    posterior, x = half_wrong(), torch.zeros(1, 1, dtype=F64)
    posterior.prior.requires_grad_(True)
    for inputs in (x, x.clone().requires_grad_(), None):
        for answer in (posterior, posterior.mean, posterior.variance, posterior.sample, posterior.joint):
            with pytest.raises(InputError, match=r"posterior\.prior: requires a gradient"):
                answer([0], [0], col_inputs=inputs)
    with pytest.raises(InputError, match=r"posterior\.prior: requires a gradient"):
        posterior.scores()
    with torch.no_grad():
        assert_close(posterior.mean([0], [0], col_inputs=x), torch.tensor([0.5], dtype=F64))


def whole_lists():
    links = mvgp.PositiveUnlabelled([0, 1, 3], [1, 2, 5], (M, N), weight=0.5)
    return mvgp.FullGP(smooth_prior(), gaussian()).fit(links)


def test_bounds_given_whole_lists_refuse_gradients_and_the_mean_carries_them():
    posterior = whole_lists()
    links = mvgp.PositiveUnlabelled([0, 1, 3], [1, 2, 5], (M, N), weight=0.5)
    posterior.conditional = WholeListCovariance(posterior._ops, links, torch.tensor(0.4, dtype=F64), tolerance=1e-8)
    x = NEW.clone().requires_grad_()
    assert gradcheck(lambda x: posterior.mean(ROWS, COLS, col_inputs=x), x)
    for answer in (posterior.variance, posterior.joint, posterior.sample):
        with pytest.raises(InputError, match="col_inputs: requires a gradient, which bounds"):
            answer(ROWS, COLS, col_inputs=x)


REFUSED = {
    "rows": (lambda p, x: p.mean(x[:1, 0] * 0, [0]), "rows"),
    "method": (lambda p, x: p.variance([0], [0], col_inputs=x, method="bounded"), "bounded"),
    "cache": (lambda p, x: p.variance([0], [0], col_inputs=x, method="cached"), "cached"),
    "variances": (lambda p, x: p.variances([0], col_inputs=x), "col_inputs"),
    "top": (lambda p, x: p.top(0, col_inputs=x), "col_inputs"),
    "explain": (lambda p, x: p.explain(0, 0, col_inputs=x), "col_inputs"),
    "batches of whole rows": (lambda p, x: p.scores(col_inputs=x.detach().expand(2, 3, 2)), "col_inputs: .*batches"),
    "stochastic": (lambda p, x: p.variances(col_inputs=x.detach(), method="stochastic"), "stochastic"),
    "data as exclude": (lambda p, x: p.top(0, col_inputs=x.detach(), exclude=observed()), "exclude: with new inputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_carry_a_gradient_or_has_no_new_inputs_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        call(POSTERIORS["full"](), NEW.clone().requires_grad_())


def test_nodes_have_no_gradient_and_can_come_in_batches():
    matrix = torch.eye(N, dtype=F64) + 0.3
    prior = mvgp.MatrixGP(DiffusionKernel(GRAPH), PrecomputedKernel(matrix))
    posterior = mvgp.FullGP(prior, gaussian()).fit(observed())
    with pytest.raises(InputError, match="col_inputs: requires a gradient, but the prior's are whole numbers"):
        posterior.mean([0], [0], col_inputs=torch.zeros(1, 1, dtype=F64, requires_grad=True))
    nodes = torch.tensor([[[1], [4]], [[0], [5]]])
    found = posterior([0, 1], [0, 1], col_inputs=nodes)
    assert_close(found.covariance_matrix[1], posterior([0, 1], [0, 5]).covariance_matrix)
    assert_close(found.mean[0], posterior.mean([0, 1], [1, 4]))
    assert_close(
        posterior.mean([0, 1], [0, 1], row_inputs=torch.tensor([[[2], [3]]])), posterior.mean([[2, 3]], [0, 1])
    )


def test_means_of_many_cells_by_the_factors_are_those_of_single_cells():
    """A mean of rank 1 at many cells, of the data's own inputs and of new ones; one cell at a time goes line by line."""
    prior = mvgp.MatrixGP(rbf(), rbf(0.8), row_inputs=ROW_X, col_inputs=COL_X)
    data = mvgp.ObservedMatrix(CELLS // N, CELLS % N, VALUES[CELLS], (M, N))
    posterior = mvgp.TraceGP(prior, gaussian(), strength=0.3, trace_share=1.0).fit(data)
    assert 0 < posterior.rank <= 3
    every = torch.cartesian_prod(torch.arange(M), torch.arange(N))
    many = posterior.mean(every[:, 0], every[:, 1])
    assert_close(many.view(M, N), posterior.scores())
    assert_close(many, torch.cat([posterior.mean([row], [col]) for row, col in every.tolist()]))
    new = {"col_inputs": torch.cat([NEW, NEW + 0.05])}
    rows, cols = torch.arange(M).repeat_interleave(6), torch.arange(6).repeat(M)
    singles = [posterior.mean([row], [col], **new) for row, col in zip(rows.tolist(), cols.tolist(), strict=True)]
    assert_close(posterior.mean(rows, cols, **new), torch.cat(singles))
