"""Coverage: intervals hold what they promise when the model is right, and the curve shows it when they do not."""

import gpytorch
import matplotlib
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.metrics.calibration import LEVELS, coverage

from ..oracles import random_edges

M, N, NOISE = 18, 25, 0.2


def gaussian(noise):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def draw(prior, generator):
    """A matrix of the model (M, N), split: noisy entries to fit, and the others, noise-free and noisy."""
    truth = prior.sample(generator).detach()
    noisy = truth + NOISE**0.5 * torch.randn(M, N, generator=generator, dtype=torch.float64)
    known = torch.rand(M, N, generator=generator) < 0.3
    return (
        mvgp.ObservedMatrix.from_mask(noisy, known),
        mvgp.ObservedMatrix.from_mask(truth, ~known),
        mvgp.ObservedMatrix.from_mask(noisy, ~known),
    )


def test_refitting_samples_of_the_model_covers_what_is_promised():
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    prior = mvgp.MatrixGP(
        DiffusionKernel(Graph(random_edges(rng, M, 30), M), 2.0, 0.2),
        DiffusionKernel(Graph(random_edges(rng, N, 45), N), 2.0, 0.2),
    )
    model = mvgp.FullGP(prior, gaussian(NOISE))
    exact, measured, forgetful = [], [], []
    for _ in range(100):
        data, truth, noisy = draw(prior, generator)
        posterior = model.fit(data)
        exact.append(coverage(posterior, truth))
        measured.append(coverage(posterior, noisy, noise=NOISE))
        forgetful.append(coverage(posterior, noisy))
    assert sum(found.num_values for found in exact) >= 20_000
    whole, with_noise, without = (pooled(found) for found in (exact, measured, forgetful))
    at = LEVELS.index(0.9)
    assert 0.88 <= whole[at] <= 0.92
    assert 0.88 <= with_noise[at] <= 0.92
    for found in (whole, with_noise):
        assert np.abs(found - np.array(LEVELS)).max() < 0.02
    assert without[at] < 0.88  # noisy values in noise-free intervals: too certain


def pooled(curves):
    counts = [found.num_values for found in curves]
    return np.average([found.covered.numpy() for found in curves], axis=0, weights=counts)


def test_equals_counting():
    generator = torch.Generator().manual_seed(0)
    mean, std, values = torch.randn(3, 200, generator=generator, dtype=torch.float64)
    std = std.abs()
    found = coverage((mean, std), values)
    for level, share in zip(found.levels.tolist(), found.covered.tolist(), strict=True):
        normal = torch.distributions.Normal(mean, std)
        low, high = normal.icdf(torch.tensor((1 - level) / 2)), normal.icdf(torch.tensor((1 + level) / 2))
        assert share == pytest.approx(float(((values >= low) & (values <= high)).double().mean()))
        assert found.at(level) == share
    single = coverage(([0.0], [1.0]), [1.0], levels=torch.tensor([0.5, 0.9]))
    assert single.at(0.9) == 1.0
    assert (found.covered.diff() >= 0).all()
    assert found.num_values == 200
    wider = coverage((mean, (std.square() + 0.5).sqrt()), values)
    assert torch.equal(coverage((mean, std), values, noise=0.5).covered, wider.covered)


def test_the_curve_knows_right_from_wrong():
    values = torch.randn(50_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    zero, one = torch.zeros_like(values), torch.ones_like(values)
    assert coverage((zero, one), values).worst < 0.01
    certain, doubtful = coverage((zero, 0.5 * one), values), coverage((zero, 2 * one), values)
    assert (certain.covered < certain.levels).all()
    assert (doubtful.covered > doubtful.levels).all()
    assert certain.worst > 0.2


def test_a_prediction_without_doubt_is_right_or_wrong():
    assert coverage(([1.0, 2.0], [0.0, 0.0]), [1.0, 2.5], levels=[0.3, 0.9]).covered.tolist() == [0.5, 0.5]


def test_weights_divide_the_noise():
    class Known:
        shape = (1, 2)

        def mean(self, rows, cols):
            return torch.zeros(len(rows))

        def variance(self, rows, cols):
            return torch.zeros(len(rows))

    held_out = mvgp.ObservedMatrix([0, 0], [0, 1], [1.0, 1.0], (1, 2), weights=[1.0, 4.0])
    assert coverage(Known(), held_out, noise=1.0, levels=[0.96]).covered.tolist() == [1.0]  # 2.05 and 1.03 wide
    assert coverage(Known(), held_out, noise=1.0, levels=[0.7]).covered.tolist() == [0.5]  # 1.04 and 0.52 wide


def test_it_can_be_read_and_drawn():
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    found = coverage(([0.0] * 3, [1.0] * 3), [0.1, -1.0, 2.5])
    assert len(str(found).splitlines()) == 2 + len(LEVELS)
    assert "3 values" in repr(found)
    ax = found.plot()
    assert found.plot(ax) is ax
    assert list(ax.lines[1].get_ydata()) == found.covered.tolist()
    plt.close(ax.figure)


HELD_OUT = mvgp.ObservedMatrix([0], [0], [1.0], (2, 3))
BAD = [
    (lambda: coverage(torch.zeros(3), [1.0]), "predicted: expected a posterior or a pair .* got Tensor"),
    (lambda: coverage(([0.0], [1.0]), [1.0, 2.0]), r"predicted mean: expected shape \(2,\) .* got \(1,\)"),
    (
        lambda: coverage(([0.0], [-1.0]), [1.0]),
        r"predicted std\[0\]: expected a finite number that is not negative, got -1.0",
    ),
    (lambda: coverage(([0.0], [1.0]), [float("nan")]), r"held_out\[0\]: expected a finite number"),
    (lambda: coverage(([], []), []), "held_out: expected at least one value"),
    (lambda: coverage(([0.0], [1.0]), [1.0], noise=-1), "noise: expected a finite number that is not negative"),
    (lambda: coverage(([0.0], [1.0]), [1.0], levels=[0.5, 1.0]), "levels: expected .* got 1.0"),
    (lambda: coverage(([0.0], [1.0]), [1.0], levels=[]), "levels: expected .* got none"),
    (lambda: coverage(([0.0], [1.0]), [1.0]).at(0.33), "level: expected one of .* got 0.33"),
    (lambda: coverage(small(), [1.0]), "held_out: expected an ObservedMatrix with a posterior, got list"),
    (lambda: coverage(small(), HELD_OUT), r"held_out: expected shape \(4, 5\), got \(2, 3\)"),
]


def small():
    ring = [Graph(np.stack([np.arange(n), (np.arange(n) + 1) % n], 1), n) for n in (4, 5)]
    prior = mvgp.MatrixGP(*(DiffusionKernel(graph) for graph in ring))
    return mvgp.FullGP(prior, gaussian(0.1)).fit(mvgp.ObservedMatrix([0], [0], [1.0], (4, 5)))


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
