"""Means of an axis's inputs: values, gradients, training, new inputs, copies."""

import copy

import gpytorch
import pytest
import torch
from torch.testing import assert_close

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import learn, log_marginal
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.priors import BiasedMean, InputMean, MatrixMean
from tests import randomness

M, N = 3, 7
F64 = torch.float64
X = torch.linspace(-1, 1, N, dtype=F64).unsqueeze(1)
GRAPH = Graph([(0, 1), (1, 2)], M)


def linear(width=1):
    return gpytorch.means.LinearMean(width)


def prior_of(mean, col_inputs=X):
    return mvgp.MatrixGP(DiffusionKernel(GRAPH), gpytorch.kernels.RBFKernel(), col_inputs=col_inputs, mean=mean)


def gaussian():
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    return likelihood


def data_of(values):
    return mvgp.ObservedMatrix.from_dense(values)


def test_it_is_the_sum_of_both_means_at_the_inputs():
    mean = InputMean(row=gpytorch.means.ConstantMean(), col=linear())
    prior = prior_of(mean)
    expected = mean.row.constant + mean.col(X).expand(M, N)
    assert_close(prior.mean_matrix(), expected)
    assert_close(prior([0, 2], [3, 1]).mean, expected[[0, 2], [3, 1]])
    assert prior.to(torch.float32).mean_matrix().dtype == torch.float32


def test_new_inputs_and_gradients():
    prior = prior_of(InputMean(col=linear()))
    generator = randomness.generator(0)
    data = data_of(torch.randn(M, N, generator=generator, dtype=F64))
    posterior = mvgp.FullGP(prior, gaussian()).fit(data)
    far = torch.tensor([[100.0], [-100.0]], dtype=F64, requires_grad=True)
    found = posterior.mean([0, 1], [0, 1], col_inputs=far)  # so far away that nothing but the mean is left
    assert_close(found, prior.mean_module.col(far))
    (slope,) = torch.autograd.grad(found.sum(), far)
    assert_close(slope, prior.mean_module.col.weights.detach().reshape(1, 1).expand(2, 1))
    assert_close(posterior.scores(col_inputs=X), posterior.scores())


def test_the_marginal_likelihood_has_its_gradient_with_respect_to_parameters_and_inputs():
    values = torch.randn(M, N, generator=randomness.generator(1), dtype=F64)
    start = linear().double()

    def value(x, weights):
        prior = prior_of(InputMean(col=copy.deepcopy(start)), x)
        del prior.mean_module.col.weights
        prior.mean_module.col.weights = weights
        return log_marginal(prior, gaussian(), data_of(values), method="cholesky").value

    inputs = X.clone().requires_grad_(), torch.full((1, 1), 0.3, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(value, inputs)


@pytest.mark.slow
def test_it_is_learned():
    """A line of slope 3 with little else."""
    noise = 0.01 * torch.randn(M, N, generator=randomness.generator(2), dtype=F64)
    prior, likelihood = prior_of(InputMean(col=linear())), gaussian()
    learn(prior, likelihood, data_of(3 * X.mT + noise))
    assert abs(float(prior.mean_module.col.weights.detach()) - 3) < 0.5


def test_biases_of_a_fit_are_added_to_it():
    prior = prior_of(InputMean(col=linear()))
    values = torch.randn(M, N, generator=randomness.generator(3), dtype=F64)
    posterior = mvgp.TraceGP(prior, gaussian(), strength=0.5, row_bias=1.0).fit(data_of(values))
    assert isinstance(posterior.prior.mean_module, BiasedMean)
    assert_close(posterior.scores(col_inputs=X), posterior.scores())
    assert posterior.mean([0], [0], col_inputs=X.clone().requires_grad_()).requires_grad


def test_a_copy_has_the_inputs_of_its_own_prior():
    prior = prior_of(InputMean(col=linear()))
    other = copy.deepcopy(prior)
    other.col_axis.inputs.mul_(2)
    assert_close(
        other.mean_matrix() - prior.mean_module.col.bias, 2 * (prior.mean_matrix() - prior.mean_module.col.bias)
    )
    assert other.mean_module._axes[1] is other.col_axis
    names = [name for name, _ in prior.named_parameters()]
    assert len(names) == len(set(names)) == 5  # time, shift, lengthscale, weights, bias: nothing is listed twice


def test_a_mean_of_a_user_s_own_that_knows_nothing_of_inputs_works_as_before():
    class Old(MatrixMean):
        def row_part(self, rows):
            return self.zero + 2.0 if rows is None else rows.double()

    posterior = mvgp.FullGP(prior_of(Old()), gaussian()).fit(mvgp.ObservedMatrix([0], [0], [0.0], (M, N)))
    far = torch.full((1, 1), 100.0, dtype=F64)
    assert_close(posterior.mean([2], [0], col_inputs=far), torch.tensor([2.0], dtype=F64))


class Pair(gpytorch.means.Mean):
    def forward(self, x):
        return torch.stack([x[:, 0], x[:, 0]], -1)


BAD = {
    "nothing": (lambda: InputMean(), "expected a gpytorch mean for one of the axes"),
    "not a mean": (lambda: InputMean(row=gpytorch.kernels.RBFKernel()), "row: expected a gpytorch mean"),
    "no prior": (lambda: InputMean(col=linear()).col_part(torch.tensor([0])), "once it is the mean of a prior"),
    "no inputs": (
        lambda: prior_of(InputMean(col=linear())).mean_module.at(torch.tensor([0]), None),
        "needs the new inputs",
    ),
    "another width": (
        lambda: prior_of(InputMean(col=gpytorch.means.LinearMean(9))).mean_matrix(),
        r"LinearMean takes no inputs of shape \(7, ",
    ),
    "two numbers": (lambda: prior_of(InputMean(col=Pair())).mean_matrix(), r"one number for each of 7 inputs of Pair"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    call, message = BAD[name]
    with pytest.raises(InputError, match=message):
        call()


def test_two_priors_cannot_share_it():
    mean = InputMean(col=linear())
    prior_of(mean)
    with pytest.raises(InputError, match="belongs to another prior"):
        prior_of(mean)
