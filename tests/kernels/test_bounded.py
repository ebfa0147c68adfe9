"""A value at an end of its constraint is a constant; one inside is learned."""

import copy
import pickle

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import learn, learn_grid, log_marginal
from mvgp.kernels import DiffusionKernel, FeatureKernel, Graph, GraphMaternKernel, RegularizedLaplacianKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, GradedRankingLikelihood

F64 = torch.float64
RING = Graph([(i, (i + 1) % 5) for i in range(5)], 5)
MAKERS = {
    "diffusion": lambda **o: DiffusionKernel(RING, **o),
    "matern": lambda **o: GraphMaternKernel(RING, **o),
    "regularised": lambda **o: RegularizedLaplacianKernel(RING, **o),
}
POSITIVES = {
    "diffusion time": (lambda **o: DiffusionKernel(RING, **o), "time"),
    "matern nu": (lambda **o: GraphMaternKernel(RING, **o), "nu"),
    "matern reach": (lambda **o: GraphMaternKernel(RING, **o), "reach"),
    "regularised scale": (lambda **o: RegularizedLaplacianKernel(RING, **o), "scale"),
    "feature variance": (lambda **o: FeatureKernel(torch.eye(5), **o), "variance"),
    "ranking noise": (lambda **o: BipartiteRankingLikelihood(**o), "noise"),
    "graded noise": (lambda **o: GradedRankingLikelihood(3, **o), "noise"),
}


def slope(kernel, name="raw_shift"):
    """The gradient of the log marginal likelihood of some data by a raw parameter; None if it takes none."""
    prior = mvgp.MatrixGP(kernel, DiffusionKernel(RING))
    values = torch.linspace(-1, 1, 25, dtype=F64).reshape(5, 5).sin()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    log_marginal(prior, likelihood, mvgp.ObservedMatrix.from_dense(values)).value.backward()
    return getattr(kernel, name).grad


def is_constant(kernel):
    raw = kernel.raw_shift
    return not raw.requires_grad and float(kernel.shift.detach()) == 0.0 and float(raw.detach()) == -torch.inf


def is_learned(kernel, value):
    return kernel.raw_shift.requires_grad and float(kernel.shift.detach()) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_shift_that_leaves_zero_is_learned(kind):
    kernel = MAKERS[kind](shift=0.0)
    assert is_constant(kernel)
    assert slope(kernel) is None
    kernel.shift = 0.5
    assert is_learned(kernel, 0.5)
    assert abs(float(slope(kernel))) > 1e-3


@pytest.mark.parametrize("kind", MAKERS)
def test_a_shift_that_is_set_to_zero_is_a_constant(kind):
    kernel = MAKERS[kind](shift=0.7)
    for zero in (0.0, 0, torch.tensor(0.0), torch.zeros((), dtype=F64)):
        kernel.shift = zero
        assert is_constant(kernel)
        assert slope(kernel) is None
        kernel.shift = 0.7
        assert is_learned(kernel, 0.7)


def test_initialize_follows_the_rule():
    kernel = DiffusionKernel(RING, shift=0.0)
    scaled = gpytorch.kernels.ScaleKernel(kernel)
    kernel.initialize(shift=0.5)
    assert is_learned(kernel, 0.5)
    scaled.initialize(**{"base_kernel.shift": 0.0})
    assert is_constant(kernel)
    scaled.initialize(**{"base_kernel.raw_shift": torch.tensor(0.3, dtype=F64)})
    assert is_learned(kernel, float(torch.nn.functional.softplus(torch.tensor(0.3))))
    kernel.initialize(raw_shift=torch.tensor(-torch.inf))
    assert is_constant(kernel)
    assert kernel.raw_time.requires_grad


def test_state_dicts_follow_the_rule():
    frozen, learned = DiffusionKernel(RING, shift=0.0), DiffusionKernel(RING, shift=0.8)
    states = [copy.deepcopy(kernel.state_dict()) for kernel in (frozen, learned)]
    for assign in (False, True):
        frozen, learned = DiffusionKernel(RING, shift=0.0), DiffusionKernel(RING, shift=0.8)
        frozen.load_state_dict(copy.deepcopy(states[1]), assign=assign)
        learned.load_state_dict(copy.deepcopy(states[0]), assign=assign)
        assert is_learned(frozen, 0.8)
        assert is_constant(learned)
        learned.load_state_dict(copy.deepcopy(states[0]), assign=assign)  # frozen into frozen
        assert is_constant(learned)
    prior = mvgp.MatrixGP(gpytorch.kernels.ScaleKernel(DiffusionKernel(RING, shift=0.0)), DiffusionKernel(RING))
    other = mvgp.MatrixGP(gpytorch.kernels.ScaleKernel(DiffusionKernel(RING, shift=0.8)), DiffusionKernel(RING))
    prior.load_state_dict(other.state_dict())
    assert is_learned(prior.row_kernel.base_kernel, 0.8)


def test_copies_and_conversions_follow_the_rule():
    for value, check in ((0.0, is_constant), (0.5, lambda kernel: is_learned(kernel, 0.5))):
        kernel = DiffusionKernel(RING, shift=value)
        for made in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), kernel.float(), kernel.double()):
            assert check(made)
            made = copy.deepcopy(made)
            made.shift = 0.25
            assert is_learned(made, 0.25)
            made.shift = 0.0
            assert is_constant(made)


def test_what_the_user_has_frozen_stays_frozen():
    kernel = DiffusionKernel(RING, shift=0.5)
    kernel.raw_shift.requires_grad_(False)
    kernel.raw_time.requires_grad_(False)
    kernel.shift, kernel.time = 0.7, 2.0
    kernel.load_state_dict(DiffusionKernel(RING, shift=0.2).state_dict())
    assert not kernel.raw_shift.requires_grad
    assert not kernel.raw_time.requires_grad


@pytest.mark.slow
@pytest.mark.parametrize("name", POSITIVES)
def test_what_has_to_be_positive_refuses_zero_however_it_is_given(name):
    make, which = POSITIVES[name]
    for bad in (0.0, -1.0, float("nan"), float("inf"), torch.tensor(0.0)):
        with pytest.raises(InputError, match=f"^{which}: expected a"):
            make(**{which: bad})
        made = make()
        before = float(getattr(made, which).detach())
        with pytest.raises(InputError, match=f"^{which}: expected a"):
            setattr(made, which, bad)
        with pytest.raises(InputError, match=f"^{which}: expected a"):
            made.initialize(**{which: bad})
        assert float(getattr(made, which).detach()) == before
        assert getattr(made, f"raw_{which}").requires_grad


@pytest.mark.parametrize("name", POSITIVES)
@pytest.mark.parametrize("constraint", [GreaterThan(0.2), Interval(0.2, 2.0), LessThan(0.2)])
def test_the_ends_of_any_constraint_are_constants(name, constraint):
    make, which = POSITIVES[name]
    made = make(**{f"{which}_constraint": copy.deepcopy(constraint), which: 0.2})
    raw = getattr(made, f"raw_{which}")
    assert not raw.requires_grad
    assert torch.isinf(raw).all()
    assert float(getattr(made, which).detach()) == pytest.approx(0.2, rel=1e-6)
    inside = 0.1 if isinstance(constraint, LessThan) else 0.7
    setattr(made, which, inside)
    assert raw.requires_grad
    assert float(getattr(made, which).detach()) == pytest.approx(inside, rel=1e-6)
    with pytest.raises(InputError, match=f"^{which}: expected a value that fulfils"):
        setattr(made, which, 0.7 if isinstance(constraint, LessThan) else 0.1)
    if type(constraint) is Interval:
        setattr(made, which, 2.0)
        assert not raw.requires_grad
        assert float(getattr(made, which).detach()) == pytest.approx(2.0, rel=1e-6)


def test_a_shift_outside_its_constraint_is_refused():
    with pytest.raises(InputError, match="^shift: expected a value that fulfils"):
        DiffusionKernel(RING, shift=0.0, shift_constraint=GreaterThan(0.1))
    kernel = DiffusionKernel(RING, shift=0.1, shift_constraint=GreaterThan(0.1))
    assert not kernel.raw_shift.requires_grad
    assert float(kernel.shift.detach()) == pytest.approx(0.1)


def test_a_constraint_that_is_not_enforced_has_no_ends():
    kernel = DiffusionKernel(RING, shift=0.0, shift_constraint=Positive(transform=None))
    assert float(kernel.shift.detach()) == 0.0
    assert kernel.raw_shift.requires_grad


def test_the_smallest_noise_of_a_ranking_is_a_constant():
    likelihood = BipartiteRankingLikelihood(noise=1e-4)
    assert not likelihood.raw_noise.requires_grad
    assert float(likelihood.noise.detach()) == pytest.approx(1e-4)
    likelihood.noise = 0.1
    assert likelihood.raw_noise.requires_grad


def test_a_batch_is_constant_as_a_whole_or_not_at_all():
    kernel = DiffusionKernel(RING, shift=0.0, batch_shape=torch.Size([2]))
    assert not kernel.raw_shift.requires_grad
    kernel.shift = torch.tensor([0.1, 0.2])
    assert kernel.raw_shift.requires_grad
    with pytest.raises(InputError, match="^shift: expected values inside"):
        kernel.shift = torch.tensor([0.0, 0.2])
    with pytest.raises(InputError, match=r"^shift: expected one number, or shape \(2,\), got shape \(3,\)"):
        kernel.shift = torch.ones(3)


def test_tiny_is_not_zero():
    kernel = DiffusionKernel(RING, shift=1e-60)
    assert kernel.raw_shift.requires_grad
    assert float(kernel.shift.detach()) == pytest.approx(1e-60)
    single = DiffusionKernel(RING, shift=1e-60, dtype=torch.float32)  # there it is
    assert is_constant(single)


def test_learning_refuses_a_raw_number_that_cannot_move():
    prior = mvgp.MatrixGP(DiffusionKernel(RING, shift=0.0), DiffusionKernel(RING))
    prior.requires_grad_(True)
    data = mvgp.ObservedMatrix.from_dense(torch.eye(5, dtype=F64))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    for learned in (learn, learn_grid):
        with pytest.raises(InputError, match=r"kernel\.shift: lies at an end of its constraint"):
            learned(prior, likelihood, data)
    prior.row_kernel.shift = 0.0  # assigning settles it
    likelihood.noise = likelihood.noise_covar.raw_noise_constraint.lower_bound
    with pytest.raises(InputError, match=r"likelihood.noise_covar.noise: lies at an end of its constraint"):
        learn(prior, likelihood, data)


def test_a_random_module_of_gpytorch_holds_its_samples():
    kernel = DiffusionKernel(RING)
    kernel.register_prior(
        "time_prior", gpytorch.priors.GammaPrior(2.0, 2.0), lambda m: m.time, lambda m, v: m._set_parameter("time", v)
    )
    drawn = kernel.to_random_module()
    leaf = torch.tensor(0.7, dtype=F64, requires_grad=True)
    drawn.time = leaf
    (found,) = torch.autograd.grad(drawn(torch.arange(5)).to_dense()[0, 1], leaf)
    assert abs(float(found)) > 1e-3


@pytest.mark.parametrize("value", [600.0, 1000.0, 1e12, 1e300])
def test_large_values_are_kept(value):
    """gpytorch's inverse of softplus overflows from about 700 on: 1000 became infinity in silence."""
    kernel = GraphMaternKernel(Graph([(0, 1)], 3))
    kernel.nu = value
    assert float(kernel.nu.detach()) == pytest.approx(value)
    assert kernel.raw_nu.requires_grad
