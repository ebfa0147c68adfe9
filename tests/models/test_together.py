"""Parts that were built apart, together: sums of terms and pointwise likelihoods given new data, new inputs, explanations."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph
from mvgp.likelihoods import AxisNoiseGaussianLikelihood, BipartiteRankingLikelihood, LogisticLikelihood
from tests import randomness

SHAPE = (6, 9)


def graph(size, number):
    return Graph(torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number)), size)


def one_term():
    return mvgp.MatrixGP(DiffusionKernel(graph(6, 1)), DiffusionKernel(graph(9, 2), time=2.0))


def two_terms():
    return one_term() + mvgp.MatrixGP(ConstantKernel(6), DiffusionKernel(graph(9, 3)))


def gaussian():
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    return likelihood


def labelled():
    """Old data, new data, and both."""
    cells = torch.randperm(54, generator=randomness.generator(4))[:24].sort().values
    labels = 2.0 * (torch.arange(24) % 2).double() - 1
    new = torch.zeros(24, dtype=torch.bool)
    new[[3, 10, 17]] = True

    def part(which):
        return mvgp.ObservedMatrix(cells[which] // 9, cells[which] % 9, labels[which], SHAPE)

    return part(~new), part(new), part(torch.ones_like(new))


PENALTIES = [mvgp.SpectralElasticNet(0.5, 0.7), mvgp.SpectralElasticNet(0.4, 0.0)]
MODELS = {
    "full, sum": lambda: mvgp.FullGP(two_terms(), gaussian(), tolerance=1e-12),
    "full, sum, ranking": lambda: mvgp.FullGP(
        two_terms(), BipartiteRankingLikelihood(noise=0.3), tolerance=1e-10, max_iterations=20_000
    ),
    "trace, sum": lambda: mvgp.TraceGP(two_terms(), gaussian(), penalty=PENALTIES, tolerance=1e-9),
    "full, logistic": lambda: mvgp.FullGP(one_term(), LogisticLikelihood()),
    "trace, logistic": lambda: mvgp.TraceGP(one_term(), LogisticLikelihood(), penalty=PENALTIES[0], tolerance=1e-9),
    "full, noise of rows": lambda: mvgp.FullGP(one_term(), AxisNoiseGaussianLikelihood(num_rows=6), tolerance=1e-12),
}
LIMITS = {"full, sum": 1e-8, "full, noise of rows": 1e-8}  # of others the means are certified to a gap


@pytest.mark.parametrize("name", MODELS)
def test_new_data_equal_a_refit(name):
    old, more, everything = labelled()
    posterior = MODELS[name]().fit(old)
    updated, truth = posterior.condition(more), MODELS[name]().fit(everything)
    atol = LIMITS.get(name, 1e-3)
    torch.testing.assert_close(updated.scores(), truth.scores(), atol=atol, rtol=0)
    rows, cols = torch.tensor([0, 2, 5]), torch.tensor([1, 8, 4])
    torch.testing.assert_close(updated.variance(rows, cols), truth.variance(rows, cols), atol=atol, rtol=0)
    back = updated.retract(more)
    torch.testing.assert_close(back.scores(), posterior.scores(), atol=atol, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_explained(name):
    posterior = MODELS[name]().fit(labelled()[0])
    why = posterior.explain(1, 2)
    assert abs(why.residual) <= 2e-3 * max(1.0, float(why.shares.abs().sum()))
    assert len(why.term_shares) == (2 if "sum" in name else 1)


def test_gradients_at_new_inputs_under_a_sum():
    x = torch.linspace(0, 1, 9, dtype=torch.float64)
    terms = [
        mvgp.MatrixGP(DiffusionKernel(graph(6, 1)), gpytorch.kernels.RBFKernel().double(), col_inputs=x),
        mvgp.MatrixGP(ConstantKernel(6), gpytorch.kernels.MaternKernel(2.5).double(), col_inputs=x),
    ]
    posterior = mvgp.FullGP(terms[0] + terms[1], gaussian()).fit(labelled()[0])

    def answers(inputs):
        joint = posterior([0, 3], [0, 1], col_inputs=inputs)
        return joint.mean, joint.covariance_matrix

    inputs = torch.tensor([[0.31], [0.77]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(answers, (inputs,))


def test_pointwise_likelihoods_under_a_sum_are_fitted():
    posterior = mvgp.FullGP(two_terms(), LogisticLikelihood()).fit(labelled()[0])
    chances = posterior.predictive([0, 1], [2, 3]).mean
    assert bool(((chances > 0) & (chances < 1)).all())


def test_predictions_have_the_noise_of_their_rows():
    likelihood = AxisNoiseGaussianLikelihood(num_rows=6, noise=0.5)
    likelihood.row_deviation = [1.0, -1.0, 0.5, -0.5, 0.3, -0.3]
    posterior = mvgp.FullGP(one_term(), likelihood).fit(labelled()[0])
    predicted, latent = posterior.predictive([0, 1], [2, 2]), posterior([0, 1], [2, 2])
    noise = 0.5 * torch.tensor([1.0, -1.0], dtype=torch.float64).exp()
    torch.testing.assert_close(predicted.variance, latent.variance + noise, atol=1e-6, rtol=0)


def test_a_botorch_model_of_a_sum_without_common_inputs_is_refused():
    pytest.importorskip("botorch")
    from mvgp.botorch import MatrixModel

    with pytest.raises(InputError, match=r"terms\[0\]"):
        MatrixModel(mvgp.FullGP(two_terms(), gaussian()).fit(labelled()[0]))
