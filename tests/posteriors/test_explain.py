"""The shares of known pairs: exact, by every model, on observed pairs and on whole lists."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.priors import ConstantMean
from tests import randomness

SHAPE = (8, 12)


def graph(size, number):
    return Graph(torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number)), size)


def make_prior():
    return mvgp.MatrixGP(
        DiffusionKernel(graph(8, 1)), DiffusionKernel(graph(12, 2), method="chebyshev"), mean=ConstantMean(0.1)
    )


def gaussian():
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    return likelihood


def ranking():
    return BipartiteRankingLikelihood(margin=1.0, noise=0.3)


def observed():
    generator = randomness.generator(3)
    cells = torch.randperm(96, generator=generator)[:30].sort().values
    labels = 2.0 * (torch.arange(30) % 2).double() - 1
    return mvgp.ObservedMatrix(cells // 12, cells % 12, labels, SHAPE)


def links(lists="linked"):
    return mvgp.PositiveUnlabelled([0, 0, 2, 3, 3, 6], [1, 5, 5, 0, 10, 7], SHAPE, 0.2, lists=lists)


MODELS = {
    "full": lambda likelihood: mvgp.FullGP(make_prior(), likelihood, tolerance=1e-9, max_iterations=10_000),
    "trace": lambda likelihood: mvgp.TraceGP(
        make_prior(), likelihood, strength=0.1, trace_share=1.0, tolerance=1e-9, max_iterations=50_000
    ),
    "net": lambda likelihood: mvgp.TraceGP(
        make_prior(), likelihood, strength=0.1, trace_share=0.5, tolerance=1e-9, max_iterations=50_000
    ),
    "ball": lambda likelihood: mvgp.TraceGP(
        make_prior(), likelihood, penalty=mvgp.TraceBall(0.5), tolerance=1e-9, max_iterations=50_000
    ),
    "factor": lambda likelihood: mvgp.FactorGP(make_prior(), likelihood, rank=4, max_iterations=5000),
}


@pytest.mark.parametrize("likelihood", [gaussian, ranking])
@pytest.mark.parametrize("data", [observed, links, lambda: links("all")], ids=["observed", "linked", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_shares_sum_to_the_score(name, data, likelihood):
    data = data()
    posterior = MODELS[name](likelihood()).fit(data)
    for row, col in ((0, 3), (5, 11)):
        why = posterior.explain(row, col)
        assert why.score == pytest.approx(float(posterior.mean([row], [col])), abs=1e-12)
        parts = why.prior_mean + float(why.shares.sum()) + why.unlabelled + why.residual
        assert parts == pytest.approx(why.score, abs=1e-9)
        assert why.prior_mean == pytest.approx(0.1)
        # a gap of 1e-9 (and L-BFGS's own tolerance) leaves this much of the optimality conditions open
        assert abs(why.residual) <= 2e-3 * max(1.0, float(why.shares.abs().sum()))
        assert len(why.shares) == len(data)
        assert sorted(zip(why.rows.tolist(), why.cols.tolist(), strict=True)) == sorted(
            zip(data.rows.tolist(), data.cols.tolist(), strict=True)
        )
        assert (why.shares.abs().diff() <= 0).all()
        for grouped in (why.by_row()[1], why.by_col()[1]):
            assert float(grouped.sum()) == pytest.approx(float(why.shares.sum()), abs=1e-9)


def test_the_plain_gp_has_the_shares_of_dense_algebra():
    data = observed()
    posterior = mvgp.FullGP(make_prior(), gaussian()).fit(data)
    row, col = (axis.covariance().to_dense().detach() for axis in (posterior.prior.row_axis, posterior.prior.col_axis))
    kernel = row[data.rows][:, data.rows] * col[data.cols][:, data.cols]
    alpha = torch.linalg.solve(kernel + 0.3 * torch.eye(30).double(), data.values - 0.1)
    shares = alpha * row[4][data.rows] * col[7][data.cols]
    why = posterior.explain(4, 7)
    order = shares.abs().argsort(descending=True)
    torch.testing.assert_close(why.shares, shares[order], atol=1e-7, rtol=0)
    assert abs(why.residual) < 1e-7
    assert why.unlabelled == 0


def test_a_support_vector_machine_explains_itself_too():
    prior = mvgp.MatrixGP(DiffusionKernel(graph(8, 1)), DiffusionKernel(graph(12, 2)))
    ranker = mvgp.PairwiseSVM(prior, solver="newton").fit(observed())
    why = ranker.explain(4, 7)
    assert why.prior_mean == pytest.approx(ranker.bias)
    assert abs(why.residual) < 1e-9


def test_new_inputs_and_bad_cells():
    inputs = torch.linspace(0, 1, 8, dtype=torch.float64)
    prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), DiffusionKernel(graph(12, 2)), row_inputs=inputs)
    for model in (mvgp.FullGP(prior, gaussian()), mvgp.TraceGP(prior, gaussian(), strength=0.1, tolerance=1e-9)):
        posterior = model.fit(observed())
        new = torch.tensor([[0.4]], dtype=torch.float64)
        why = posterior.explain(0, 3, row_inputs=new)
        assert why.score == pytest.approx(float(posterior.mean([0], [3], row_inputs=new)), abs=1e-12)
        assert abs(why.residual) <= 1e-3
        with pytest.raises(InputError):
            posterior.explain(8, 3)
        with pytest.raises(InputError, match="one row and one column"):
            posterior.explain([0, 1], [3, 3])


def test_a_table_with_names():
    frame = (
        mvgp.FullGP(make_prior(), gaussian())
        .fit(links())
        .explain(0, 3)
        .to_frame(row_names=[f"d{row}" for row in range(8)], col_names=[f"g{col}" for col in range(12)])
    )
    assert list(frame.columns) == ["row", "col", "share"]
    assert set(frame["row"]) == {"d0", "d2", "d3", "d6"}
