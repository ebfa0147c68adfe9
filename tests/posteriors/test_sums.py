"""Posteriors of sums of Kronecker terms, against dense algebra and against what they must equal."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph, GraphMaternKernel, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.linalg.cost import Limits
from mvgp.models.recipe import prior_terms
from mvgp.posteriors.covariance import ConditionalCovariance, WholeListCovariance
from mvgp.priors import ConstantMean, RowBiasMean
from tests import randomness
from tests.oracles import assert_moments

SHAPE = (6, 9)
NOISE = 0.3


def draw(*size, number=0):
    return torch.randn(*size, generator=randomness.generator(number), dtype=torch.float64)


def dense_kernel(size, number, rank=None):
    root = draw(size, rank or size, number=100 + number)
    return PrecomputedKernel(root @ root.mT / size + (0.0 if rank else 0.1) * torch.eye(size, dtype=torch.float64))


def graph(size, number):
    return Graph(torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number)), size)


def general(count, mean=True):
    """Kernels that have nothing in common; the last term has low rank."""
    terms = []
    for q in range(count):
        rank = 2 if q == count - 1 else None
        own = ConstantMean(0.5) if q == 0 else RowBiasMean(draw(SHAPE[0], number=40))
        kernels = dense_kernel(SHAPE[0], 2 * q, rank), dense_kernel(SHAPE[1], 2 * q + 1, rank)
        terms.append(mvgp.MatrixGP(*kernels, mean=own if mean else None))
    return sum(terms)


def graphs(count, method="eigen"):
    """Kernels of one graph for the rows and one for the columns, which share their eigenvectors."""
    rows, cols = graph(SHAPE[0], 1), graph(SHAPE[1], 2)
    pairs = [
        (DiffusionKernel(rows, time=1.0), DiffusionKernel(cols, time=2.0)),
        (DiffusionKernel(rows, time=4.0, shift=0.1), GraphMaternKernel(cols, shift=0.0)),
        (GraphMaternKernel(rows, shift=0.2), DiffusionKernel(cols, time=0.5)),
    ]
    for row, col in pairs:
        row.method = col.method = method
    return sum(mvgp.MatrixGP(*pair) for pair in pairs[:count])


def with_inputs():
    """Rows by inputs in both terms, columns by inputs in one and by nodes in the other."""
    row_inputs, col_inputs = draw(SHAPE[0], 2, number=50), draw(SHAPE[1], 1, number=51)
    rbf = gpytorch.kernels.RBFKernel()
    first = mvgp.MatrixGP(rbf, gpytorch.kernels.MaternKernel(), row_inputs, col_inputs)
    return first + mvgp.MatrixGP(gpytorch.kernels.LinearKernel(), DiffusionKernel(graph(SHAPE[1], 3)), row_inputs)


def likelihood():
    gaussian = gpytorch.likelihoods.GaussianLikelihood().double()
    gaussian.noise = torch.tensor(NOISE, dtype=torch.float64)
    return gaussian


def observations(share, weights):
    keep = torch.rand(SHAPE, generator=randomness.generator(7)) < share
    keep[0, 0] = True
    rows, cols = keep.nonzero().unbind(1)
    weight = 0.5 + torch.rand(len(rows), generator=randomness.generator(8)).double() if weights else None
    return mvgp.ObservedMatrix(rows, cols, draw(len(rows), number=9), SHAPE, weights=weight)


def all_cells():
    rows, cols = torch.meshgrid(*(torch.arange(size) for size in SHAPE), indexing="ij")
    return rows.reshape(-1), cols.reshape(-1)


def dense_covariance(prior):
    with torch.no_grad():
        parts = [(t.row_axis.covariance().to_dense(), t.col_axis.covariance().to_dense()) for t in prior.terms]
    return sum(torch.kron(row, col) for row, col in parts)


def dense_posterior(prior, data, noise=NOISE):
    """Mean (M N,) and covariance (M N, M N), by conditioning the whole joint Gaussian."""
    kernel, mean = dense_covariance(prior), prior.mean_matrix().detach().reshape(-1)
    at = data.rows * SHAPE[1] + data.cols
    each = torch.full((len(at),), noise, dtype=torch.float64) / (1 if data.weights is None else data.weights)
    gain = torch.linalg.solve(kernel[at][:, at] + torch.diag(each), kernel[at]).mT
    return mean + gain @ (data.values - mean[at]), kernel - gain @ kernel[at]


def assert_close(first, second, atol=1e-8):
    torch.testing.assert_close(first, second, atol=atol, rtol=0)


PRIORS = {
    "two general": lambda: general(2),
    "three general": lambda: general(3),
    "two on graphs": lambda: graphs(2),
    "three on graphs, Chebyshev": lambda: graphs(3, "chebyshev"),
    "inputs": with_inputs,
}
DATA = {"partial": (0.4, False), "weights": (0.5, True), "complete": (1.1, False), "complete, weights": (1.1, True)}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("prior", PRIORS)
def test_the_posterior_equals_dense_algebra(prior, data):
    prior, data = PRIORS[prior](), observations(*DATA[data])
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    mean, covariance = dense_posterior(prior, data)
    rows, cols = all_cells()
    assert_close(posterior.mean(rows, cols), mean)
    assert_close(posterior.scores([3, 0]), mean.view(SHAPE)[[3, 0]])
    assert_close(posterior.variance(rows, cols), covariance.diagonal())
    assert_close(posterior(rows, cols).covariance_matrix, covariance)
    assert_close(posterior.covariance().to_dense(), covariance)
    assert_close(posterior.joint(rows[9:20], cols[9:20]).matrix, covariance[9:20, 9:20])
    assert_close(posterior.joint(rows[9:18], cols[9:18]).matrix, covariance[9:18, 9:18])  # one row
    assert_close(posterior.variances([1, 4]).values, covariance.diagonal().view(SHAPE)[[1, 4]])


@pytest.mark.parametrize("prior", ["two general", "three on graphs, Chebyshev", "inputs"])
@pytest.mark.parametrize("method", ["cholesky", "cg", "bounded", "cached"])
def test_every_way_to_a_variance(prior, method):
    prior, data = PRIORS[prior](), observations(0.5, True)
    posterior = mvgp.FullGP(prior, likelihood(), method="cg", tolerance=1e-11).fit(data)
    rows, cols = all_cells()
    truth = dense_posterior(prior, data)[1].diagonal()
    options = {"accuracy": 1e-6} if method == "bounded" else {}
    found = posterior.variance(rows, cols, method=method, **options)
    if method == "cached":  # never too small; all of the Krylov space here
        assert (found >= truth - 1e-8).all()
    else:
        assert_close(found, truth, 1e-8 if method != "bounded" else 2e-6 * float(truth.max()))


def test_bounds_from_the_nearest_observations_hold():
    prior, data = general(3), observations(0.8, True)
    terms = prior_terms(prior, data)
    limits = Limits(cholesky=5, dense=12, nearest=10, joint_nearest=10)
    noise = NOISE / data.weights
    covariance = ConditionalCovariance(terms, prior.pairs(data.rows, data.cols), noise, tolerance=1e-10, limits=limits)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    query = posterior._query(*all_cells())
    truth = dense_posterior(prior, data)[1].diagonal()
    for accuracy in (1e-2, 1e-5):
        found = covariance.variance(query, "bounded", accuracy)
        assert (found >= truth * (1 - 1e-5)).all()
        assert (found <= truth * (1 + accuracy) + 1e-5 * float(truth.max())).all()
    joint = covariance.joint(posterior._query([1, 1], [0, 5]))
    assert joint.observations == 10
    exact = dense_posterior(prior, data)[1][[9, 14]][:, [9, 14]]
    assert torch.linalg.eigvalsh(joint.matrix - exact).min() > -1e-8


@pytest.mark.parametrize("prior", ["two general", "two on graphs", "inputs"])
def test_samples_have_the_posterior_moments(prior):
    prior, data = PRIORS[prior](), observations(0.4, True)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    mean, covariance = dense_posterior(prior, data)
    at = torch.tensor([0, 10, 33, 53])
    samples = posterior.sample(at // SHAPE[1], at % SHAPE[1], 4000, generator=randomness.generator(11))
    assert_moments(samples, mean[at], covariance[at][:, at])


def test_samples_of_a_sum_are_the_sums_of_samples_of_its_terms():
    """An exact twin: Matheron's rule is linear in the prior's sample, so the noise-free parts add up."""
    prior, data = general(2, mean=False), observations(0.4, False)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    query, pairs = posterior._query([0, 4], [1, 8]), posterior.conditional.pairs
    together = query.prior_samples(pairs, 3, randomness.generator(1))
    generator = randomness.generator(1)
    apart = [part.prior_samples(pairs, 3, generator) for part in query.parts]
    for at in (0, 1):
        assert_close(together[at], apart[0][at] + apart[1][at], 1e-12)


def test_one_term_as_a_sum_is_the_term_itself():
    prior, data = general(1), observations(0.4, True)
    wrapped = mvgp.priors.SumGP(prior)
    ours, truth = (mvgp.FullGP(each, likelihood()).fit(data) for each in (wrapped, prior))
    rows, cols = all_cells()
    assert_close(ours.mean(rows, cols), truth.mean(rows, cols), 1e-12)
    assert_close(ours(rows, cols).covariance_matrix, truth(rows, cols).covariance_matrix, 1e-12)
    assert len(ours.terms) == len(truth.terms) == 1
    assert_close(truth.terms[0].scores(), truth.scores(), 1e-12)


@pytest.mark.parametrize("inputs", ["rows", "rows and nodes", "own columns"])
def test_new_inputs(inputs):
    prior, data = with_inputs(), observations(0.5, True)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    new_rows, new_cols = draw(3, 2, number=60), draw(4, 1, number=61)
    nodes = torch.tensor([[8], [0], [3], [3]])
    rows, cols = torch.tensor([0, 2, 1, 2]), torch.tensor([3, 0, 1, 2])
    options = {"row_inputs": new_rows}
    if inputs != "rows":
        options["col_inputs"] = [new_cols, nodes if inputs == "rows and nodes" else None]
    cross, block = [], []
    with torch.no_grad():
        for q, term in enumerate(prior.terms):
            row = term.row_axis.cross(new_rows).to_dense(), term.row_axis.block(new_rows).to_dense()
            entry = options.get("col_inputs", [None, None])[q]
            if entry is None:
                col = (term.col_axis.covariance().to_dense(),) * 2
            else:
                entry = entry.to(term.col_axis.inputs.dtype)
                col = term.col_axis.cross(entry).to_dense(), term.col_axis.block(entry).to_dense()
            cross.append(row[0][rows][:, data.rows] * col[0][cols][:, data.cols])
            block.append(row[1][rows][:, rows] * col[1][cols][:, cols])
    cross, block = sum(cross), sum(block)
    kernel, at = dense_covariance(prior), data.rows * SHAPE[1] + data.cols
    gain = torch.linalg.solve(kernel[at][:, at] + torch.diag(NOISE / data.weights), cross.mT).mT
    joint = posterior(rows, cols, **options)
    assert_close(joint.mean, gain @ data.values)
    assert_close(joint.covariance_matrix, block - gain @ cross.mT)
    assert_close(posterior.variance(rows, cols, **options), (block - gain @ cross.mT).diagonal())
    samples = posterior.sample(rows, cols, 3000, **options, generator=randomness.generator(3))
    assert_moments(samples, joint.mean, joint.covariance_matrix)


def test_new_inputs_that_do_not_fit_are_refused():
    posterior = mvgp.FullGP(with_inputs(), likelihood()).fit(observations(0.5, False))
    new = torch.zeros(2, 1).double()
    with pytest.raises(InputError, match=r"col_inputs: terms\[1\] is on nodes"):
        posterior.mean([0], [0], col_inputs=new)
    with pytest.raises(InputError, match="each of 2 terms, got 1"):
        posterior.mean([0], [0], col_inputs=[new])
    with pytest.raises(InputError, match="as many new inputs for each term"):
        posterior.mean([0], [0], col_inputs=[new, torch.tensor([[1]])])
    with pytest.raises(InputError, match="cols"):  # term 1 has nine nodes, term 0 two inputs
        posterior.mean([0], [5], col_inputs=[new, None])


def test_the_means_of_the_terms_add_up():
    prior, data = general(3), observations(0.5, True)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    rows, cols = all_cells()
    assert_close(sum(term.mean(rows, cols) for term in posterior.terms), posterior.mean(rows, cols), 1e-10)
    assert_close(sum(term.scores([1, 5]) for term in posterior.terms), posterior.scores([1, 5]), 1e-10)
    alpha, at = posterior.coefficients.values, data.rows * SHAPE[1] + data.cols
    for term, own in zip(prior.terms, posterior.terms, strict=True):
        expected = term.mean_matrix().detach().reshape(-1) + dense_covariance(term)[:, at] @ alpha
        assert_close(own.mean(rows, cols), expected)


def test_explanations_by_term():
    prior, data = general(2), observations(0.5, True)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    why = posterior.explain(2, 3)
    assert why.term_shares.shape == (2, len(data))
    assert_close(why.term_shares.sum(0), why.shares, 1e-12)
    for at, term in enumerate(posterior.terms):
        own = float(term.mean([2], [3]) - term.prior.mean_module(torch.tensor([2]), torch.tensor([3])))
        assert float(why.term_shares[at].sum()) == pytest.approx(own, abs=1e-9)
    assert why.score == pytest.approx(why.prior_mean + float(why.shares.sum()), abs=1e-9)


def test_ranks_of_a_row():
    prior, data = general(2), observations(0.5, False)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    mean = dense_posterior(prior, data)[0].view(SHAPE)
    table = posterior.top(2, k=4)
    assert table.items.tolist() == mean[2].argsort(descending=True)[:4].tolist()
    assert 0 <= posterior.beats(2, 0, 1) <= 1


def test_stochastic_variances_of_a_sum():
    prior, data = general(3), observations(0.6, True)
    posterior = mvgp.FullGP(prior, likelihood()).fit(data)
    truth = dense_posterior(prior, data)[1].diagonal().view(SHAPE)
    found = posterior.variances(method="stochastic", max_probes=256, accuracy=1e-3)
    # with an exact inverse diagonal the observed cells are exact, and the others have honest error bars
    observed = torch.zeros(SHAPE, dtype=torch.bool)
    observed[data.rows, data.cols] = True
    assert_close(found.values[observed], truth[observed], 1e-5)
    assert ((found.values - truth).abs() <= 9 * found.error + 1e-5).all()


def test_a_sum_of_equal_terms_is_a_scaled_term():
    """Two independent copies add their variances, whatever the method."""
    term = mvgp.MatrixGP(dense_kernel(SHAPE[0], 1), dense_kernel(SHAPE[1], 2))
    double = mvgp.MatrixGP(PrecomputedKernel(2 * term.row_axis.covariance().to_dense()), term.col_kernel)
    rows, cols = all_cells()
    for data in (observations(0.4, True), observations(1.1, False)):
        ours, truth = (mvgp.FullGP(prior, likelihood()).fit(data) for prior in (term + term, double))
        assert_close(ours.mean(rows, cols), truth.mean(rows, cols))
        assert_close(ours.variance(rows, cols), truth.variance(rows, cols))
    assert ours.solve_report.method == "spectral"  # the kernels are the same, so are the eigenvectors


@pytest.mark.parametrize("share", [0.5, 1.1])
def test_single_precision(share):
    prior, data = graphs(2), observations(share, False)
    truth = mvgp.FullGP(prior, likelihood()).fit(data)
    ours = mvgp.FullGP(graphs(2).to(torch.float32), likelihood()).fit(data)
    rows, cols = all_cells()
    assert_close(ours.mean(rows, cols).double(), truth.mean(rows, cols), 1e-4)
    assert_close(ours.variance(rows, cols).double(), truth.variance(rows, cols), 1e-4)


@pytest.mark.parametrize("prior", ["two general", "three on graphs, Chebyshev"])
def test_a_ranking_without_a_trace_norm(prior):
    """The optimum of the dual coefficients, by its own condition: alpha = -gradient / noise."""
    prior = PRIORS[prior]()
    keep = observations(0.6, False)
    labels = mvgp.ObservedMatrix(keep.rows, keep.cols, keep.values.sign(), SHAPE)
    ranking = BipartiteRankingLikelihood(margin=1.0, noise=NOISE)
    posterior = mvgp.FullGP(prior, ranking, tolerance=1e-10, max_iterations=20_000).fit(labels)
    assert posterior.certificate.converged
    assert posterior.certificate.dual <= posterior.certificate.primal
    kernel, at = dense_covariance(prior), labels.rows * SHAPE[1] + labels.cols
    alpha = posterior.coefficients.values
    prior = prior.snapshot()
    loss = mvgp.likelihoods.losses.data_loss(ranking, labels, prior.mean_module)
    psi = kernel[at][:, at] @ alpha
    assert_close(posterior.mean(labels.rows, labels.cols), psi + prior.mean_module(labels.rows, labels.cols))
    objective = loss(psi).value + NOISE / 2 * float(alpha @ psi)
    assert objective == pytest.approx(posterior.certificate.primal, rel=1e-9)
    assert_close(alpha, -loss(psi).gradient / NOISE, 1e-3)
    data = mvgp.ObservedMatrix(labels.rows, labels.cols, labels.values, SHAPE)
    assert_close(posterior.variance(*all_cells()), dense_posterior(prior, data)[1].diagonal())


def test_models_that_take_one_term_say_so():
    prior, data = general(2), observations(0.5, False)
    with pytest.raises(InputError, match="one term"):
        mvgp.FactorGP(prior, likelihood(), rank=2).fit(data)


# Whole lists --------------------------------------------------------------------------------------


def links(weight, lists="all"):
    return mvgp.PositiveUnlabelled([0, 0, 2, 3, 5], [1, 5, 5, 0, 8], SHAPE, weight, lists=lists)


def spelled_out(known):
    values = torch.zeros(known.num_cells, dtype=torch.float64)
    weights = torch.full_like(values, known.weight)
    values[known.positions] = weights[known.positions] = 1.0
    return mvgp.ObservedMatrix(known.pattern.rows, known.pattern.cols, values, SHAPE, weights=weights)


@pytest.mark.parametrize("lists", ["all", "linked"])
@pytest.mark.parametrize("weight", [1.0, 0.1])
@pytest.mark.parametrize("prior", PRIORS)
def test_whole_lists_equal_dense_algebra(prior, weight, lists):
    prior, known = PRIORS[prior](), links(weight, lists)
    posterior = mvgp.FullGP(prior, likelihood(), tolerance=1e-11).fit(known)
    mean, covariance = dense_posterior(prior, spelled_out(known))
    assert posterior.solve_report.converged
    assert_close(posterior.scores().reshape(-1), mean)
    assert_close(posterior.variance(*all_cells()), covariance.diagonal(), 1e-7)
    why = posterior.explain(2, 3)
    assert why.score == pytest.approx(why.prior_mean + float(why.shares.sum()) + why.unlabelled, abs=1e-8)


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_variances_given_long_lists_are_bounded(weight):
    prior, known = general(2), links(weight, "linked")
    noise = torch.tensor(NOISE, dtype=torch.float64)
    terms = prior_terms(prior, known)
    covariance = WholeListCovariance(terms, known, noise, tolerance=1e-10, limits=Limits(list_nearest=6))
    posterior = mvgp.FullGP(prior, likelihood()).fit(known)
    truth = dense_posterior(prior, spelled_out(known))[1].diagonal()
    found = covariance.variance(posterior._query(*all_cells()), accuracy=1e-4)
    assert (found >= truth - 1e-9).all()
    assert (found <= truth * (1 + 1.1e-4) + 1e-9).all()


@pytest.mark.parametrize("prior", ["two general", "two on graphs"])
def test_a_ranking_of_whole_lists(prior):
    prior, known = PRIORS[prior](), links(0.2)
    ranking = BipartiteRankingLikelihood(margin=1.0, noise=NOISE)
    options = {"tolerance": 1e-9, "max_iterations": 20_000}
    ours = mvgp.FullGP(prior, ranking, **options).fit(known)
    data = spelled_out(known)
    labels = mvgp.ObservedMatrix(data.rows, data.cols, 2 * data.values - 1, SHAPE, weights=data.weights)
    truth = mvgp.FullGP(prior, ranking, **options).fit(labels)
    assert ours.certificate.primal == pytest.approx(truth.certificate.primal, rel=1e-7)
