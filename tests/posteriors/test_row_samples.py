"""Samples of rows: their covariance, dense, against conditioning the whole joint Gaussian."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, FeatureKernel, Graph, PrecomputedKernel
from mvgp.linalg.cost import Limits
from mvgp.models.recipe import prior_terms
from mvgp.posteriors.covariance import NoCovariance, WholeListCovariance
from mvgp.posteriors.joint import Joint
from mvgp.posteriors.ranks import top_probability
from mvgp.posteriors.row_samples import LEFT_OUT
from mvgp.posteriors.whole_rows import row_sampler
from tests import randomness
from tests.chance import share_limit
from tests.oracles import assert_moments, dense_posterior, random_edges

M, N, NOISE = 7, 23, 0.1
RNG = randomness.numpy_generator(11)
ROWS, COLS = Graph(random_edges(RNG, M, 10), M), Graph(random_edges(RNG, N, 40), N)
CLOSE = 3e-3  # relative: the root's series is as short as that allows


def gaussian(noise=NOISE):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def graph_prior(time=1.0):
    return mvgp.MatrixGP(DiffusionKernel(ROWS, time, 1.0), DiffusionKernel(COLS, time, 1.0, method="chebyshev"))


def observe(count=40):
    generator = randomness.generator(1)
    cells = torch.randperm(M * N, generator=generator)[:count]
    return mvgp.ObservedMatrix(cells // N, cells % N, torch.randn(count, generator=generator).double(), (M, N))


def features():
    return FeatureKernel(torch.randn(N, 4, generator=randomness.generator(8), dtype=torch.float64))


def priors():
    own = mvgp.MatrixGP(PrecomputedKernel(torch.eye(M).double()), DiffusionKernel(COLS, 0.5, 0.5, method="chebyshev"))
    return {
        "graphs": graph_prior(),
        "features": mvgp.MatrixGP(DiffusionKernel(ROWS, 1.0, 1.0), features()),
        "sum": graph_prior() + own,
    }


def dense_kernels(prior):
    with torch.no_grad():
        return [[axis.covariance().to_dense() for axis in (t.row_axis, t.col_axis)] for t in prior.terms]


def dense_covariance(prior, rows, cols, noise):
    """(MN, MN), for a sum of terms, too."""
    k = sum(torch.kron(*factors) for factors in dense_kernels(prior))
    at = rows * N + cols
    noisy = k[at][:, at] + torch.diag(torch.as_tensor(noise, dtype=k.dtype).expand(len(at)))
    return k - k[:, at] @ torch.linalg.solve(noisy, k[at])


def covariance_of(sampler):
    """(N, N): of what the sampler draws, R (I - U F U^T)^2 R^T."""
    wide = torch.cat([scale * op.to_dense().double() for op, scale in sampler.roots], 1)
    reach, inner = sampler.reach.double(), sampler.inner.double()
    half = wide @ (torch.eye(len(reach)).double() - reach @ inner @ reach.mT)
    return half @ half.mT


def query_of(posterior, row):
    return posterior._query(torch.full((N,), row), torch.arange(N))


@pytest.mark.parametrize("name", ["graphs", "features", "sum"])
@pytest.mark.parametrize("row", [0, M - 1])
def test_a_row_has_the_covariance_of_the_whole_joint_gaussian(name, row):
    prior, data = priors()[name], observe()
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    sampler = row_sampler(posterior.conditional, query_of(posterior, row))
    truth = dense_covariance(prior, data.rows, data.cols, NOISE)
    line = slice(row * N, (row + 1) * N)
    allowed = CLOSE * float(truth.diagonal()[line].max())
    torch.testing.assert_close(covariance_of(sampler), truth[line, line], atol=allowed + sampler.left_out, rtol=0)
    scaled = row_sampler(posterior.rescaled(4.0).conditional, query_of(posterior, row))
    torch.testing.assert_close(covariance_of(scaled), 4 * covariance_of(sampler))


def test_weights_of_observations_and_tiny_noise_which_needs_double_precision():
    data = observe()
    weights = 0.2 + torch.rand(len(data.values), generator=randomness.generator(2), dtype=torch.float64)
    weighted = mvgp.ObservedMatrix(data.rows, data.cols, data.values, (M, N), weights=weights)
    for noise, dtype in ((0.3, torch.float32), (1e-6, torch.float64)):
        posterior = mvgp.FullGP(graph_prior(), gaussian(noise)).fit(weighted)
        sampler = row_sampler(posterior.conditional, query_of(posterior, 3))
        assert sampler.reach.dtype == dtype
        truth = dense_covariance(graph_prior(), weighted.rows, weighted.cols, noise / weighted.weights)
        found = covariance_of(sampler)
        torch.testing.assert_close(found, truth[3 * N : 4 * N, 3 * N : 4 * N], atol=1e-2, rtol=0)
        mine = weighted.cols[weighted.rows == 3]
        exact = truth.diagonal()[3 * N + mine]
        assert ((found.diagonal()[mine] - exact).abs() <= 0.02 * exact).all()  # relative, however small


def test_the_samples_have_this_covariance_and_cells_far_away_are_left_out_within_their_bound():
    size = 40  # a chain of rows: few are near
    chain = Graph([(i, i + 1) for i in range(size - 1)], size)
    prior = mvgp.MatrixGP(DiffusionKernel(chain, 0.3, 1.0), DiffusionKernel(COLS, 1.0, 1.0, method="chebyshev"))
    rows, cols = torch.arange(size).repeat_interleave(2), torch.arange(2 * size) % N
    data = mvgp.ObservedMatrix(rows, cols, torch.ones(2 * size).double(), (size, N))
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    sampler = row_sampler(posterior.conditional, query_of(posterior, 5))
    assert sampler.observations < len(data.values) / 2
    assert 0 < sampler.left_out <= LEFT_OUT * NOISE
    truth = posterior.joint(torch.full((N,), 5), torch.arange(N)).matrix
    excess = covariance_of(sampler) - truth
    tolerance = 2e-3 * float(truth.diagonal().max())  # of the root
    assert float(torch.linalg.eigvalsh(excess)[-1]) <= sampler.left_out + tolerance
    assert float(torch.linalg.eigvalsh(excess)[0]) >= -tolerance
    drawn = sampler.sample(20_000, randomness.generator(3)).double()
    assert_moments(drawn, torch.zeros(N).double(), covariance_of(sampler))


def test_a_row_on_its_own_keeps_its_prior():
    alone = Graph([(0, 1)], 3)
    prior = mvgp.MatrixGP(DiffusionKernel(alone, 1.0, 1.0), DiffusionKernel(COLS, 1.0, 1.0, method="chebyshev"))
    posterior = mvgp.FullGP(prior, gaussian()).fit(mvgp.ObservedMatrix([0, 1], [2, 3], [1.0, 2.0], (3, N)))
    sampler = row_sampler(posterior.conditional, query_of(posterior, 2))
    assert (sampler.observations, sampler.left_out) == (0, 0.0)
    rows, cols = dense_kernels(prior)[0]
    torch.testing.assert_close(covariance_of(sampler), rows[2, 2] * cols, atol=6e-3, rtol=0)


def whole_list(weight, lists, prior=None, limits=None):
    links = mvgp.PositiveUnlabelled([0, 0, 2, 3, 6], [1, 5, 5, 22, 0], (M, N), weight, lists=lists)
    prior = prior or graph_prior()
    terms = prior_terms(prior, links)
    noise = torch.tensor(NOISE, dtype=torch.float64)
    return links, WholeListCovariance(terms, links, noise, tolerance=1e-8, limits=limits or Limits())


@pytest.mark.parametrize("weight", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("lists", ["linked", "all"])
@pytest.mark.parametrize("row", [0, 1, 3])
def test_whole_lists_against_every_cell(weight, lists, row):
    links, covariance = whole_list(weight, lists)
    listed = range(M) if lists == "all" else links.rows.unique().tolist()
    rows = torch.tensor([m for m in listed for _ in range(N)])
    cols = torch.arange(N).repeat(len(rows) // N)
    positive = torch.isin(rows * N + cols, links.rows * N + links.cols)
    noise = torch.where(positive, NOISE, NOISE / weight).double()
    truth = dense_covariance(graph_prior(), rows, cols, noise)[row * N : (row + 1) * N, row * N : (row + 1) * N]
    query = mvgp.FullGP(graph_prior(), gaussian()).fit(observe())._query(torch.full((N,), row), torch.arange(N))
    sampler = row_sampler(covariance, query)
    allowed = CLOSE * float(truth.diagonal().max())
    torch.testing.assert_close(covariance_of(sampler), truth, atol=allowed + sampler.left_out, rtol=0)
    assert sampler.observations <= len(rows)


def test_where_it_is_not_offered_nobody_gets_it_silently():
    dense = mvgp.MatrixGP(DiffusionKernel(ROWS, 1.0, 1.0), PrecomputedKernel(torch.eye(N).double() + 0.5))
    posterior = mvgp.FullGP(dense, gaussian()).fit(observe())
    assert row_sampler(posterior.conditional, query_of(posterior, 0)) is None
    with pytest.raises(InputError, match="method: 'row' needs a column kernel of a graph"):
        posterior.top_probability(0, 3, method="row")
    _, lists = whole_list(0.5, "linked", priors()["sum"])
    assert row_sampler(lists, query_of(mvgp.FullGP(priors()["sum"], gaussian()).fit(observe()), 0)) is None
    factor = mvgp.FactorGP(graph_prior(), gaussian(), rank=2).fit(observe())
    assert row_sampler(factor.conditional, query_of(factor, 0)) is None
    svm = NoCovariance(posterior.conditional.pairs, "no uncertainty")
    assert row_sampler(svm, query_of(posterior, 0)) is None


def test_new_rows_have_samples_and_a_complete_grid_too():
    inputs = torch.linspace(0, 1, M, dtype=torch.float64).unsqueeze(1)
    kernel = gpytorch.kernels.RBFKernel().double()
    cols = DiffusionKernel(COLS, 1.0, 1.0, method="chebyshev")
    prior = mvgp.MatrixGP(kernel, cols, row_inputs=inputs)
    posterior = mvgp.FullGP(prior, gaussian()).fit(observe())
    new = torch.tensor([[0.3], [2.0]], dtype=torch.float64)
    query = posterior._query(torch.full((N,), 1), torch.arange(N), row_inputs=new)
    with torch.no_grad():
        joint = posterior.joint(torch.full((N,), 1), torch.arange(N), row_inputs=new)
        sampler = row_sampler(posterior.conditional, query)
    torch.testing.assert_close(covariance_of(sampler), joint.matrix, atol=6e-3 + sampler.left_out, rtol=0)
    full = mvgp.FullGP(graph_prior(), gaussian()).fit(mvgp.ObservedMatrix.from_dense(torch.eye(M, N).double()))
    assert full.conditional.is_closed_form
    truth = full.joint(torch.full((N,), 2), torch.arange(N)).matrix
    torch.testing.assert_close(
        covariance_of(row_sampler(full.conditional, query_of(full, 2))), truth, atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("method", ["joint", "row", "contenders"])
@pytest.mark.parametrize("name", ["graphs", "sum"])
def test_every_method_gives_the_probabilities_of_the_dense_posterior(method, name):
    row, k, count, prior, data = 2, 4, 20_000, priors()[name], observe()
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    covariance = dense_covariance(prior, data.rows, data.cols, NOISE)
    items = torch.tensor([n for n in range(N) if n not in (1, 4)])
    at = row * N + items
    mean = posterior.mean(torch.full_like(items, row), items)
    if name == "graphs":
        torch.testing.assert_close(
            mean, dense_posterior(*dense_kernels(prior)[0], data.rows, data.cols, data.values, NOISE)[0][at]
        )
    noise = torch.randn(count, len(items), generator=randomness.generator(5), dtype=torch.float64)
    truth = top_probability(mean + noise @ torch.linalg.cholesky(covariance[at][:, at]).T, k)
    options = {"exclude": ([2, 2, 0], [1, 4, 0]), "num_samples": count, "method": method}
    found = posterior.top_probability(row, k, **options)
    assert float(found.sum()) == pytest.approx(k, abs=1e-10)
    assert found[[1, 4]].tolist() == [0, 0]
    assert ((found[items] - truth).abs() < 2 * share_limit(count, entries=8 * N) + 3e-3).all()
    table = posterior.top(row, k, **options)
    assert torch.equal(table.top_probability, found[table.items])
    single = [posterior.top_probability(row, k, **options) for _ in range(2)]
    assert torch.equal(*single)  # the same seed, the same numbers


def test_columns_of_kernels_are_computed_once(monkeypatch):
    posterior = mvgp.FullGP(graph_prior(), gaussian()).fit(observe())
    query = query_of(posterior, 1)
    side = type(query.col_side)
    seen = []
    original = side.columns
    monkeypatch.setattr(side, "columns", lambda self, which: seen.append(len(which)) or original(self, which))
    joint = posterior.conditional.joint(query)
    assert isinstance(joint, Joint)
    assert sorted(seen) == [1, N]  # the row's, and those of all columns
    small = mvgp.FullGP(graph_prior(), gaussian()).fit(observe())
    small.conditional.limits = Limits(cholesky=5, dense=20, joint_nearest=20)
    seen.clear()
    nearest = small.conditional.joint(query_of(small, 1))
    assert nearest.observations == 20
    assert sorted(seen) == [1, N]
    assert (nearest.matrix.diagonal() >= joint.matrix.diagonal() - 1e-9).all()
