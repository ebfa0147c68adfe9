"""Coverage: intervals hold what they promise when the model is right, and the curve shows it when they do not."""

import gpytorch
import matplotlib
import numpy as np
import pytest
import torch
from scipy import stats

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.metrics import adversarial_calibration, calibration_error, group_calibration
from mvgp.metrics.calibration import LEVELS, coverage
from tests import chance, randomness
from tests.oracles import random_edges

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


@pytest.mark.slow
def test_refitting_samples_of_the_model_covers_what_is_promised():
    """The entries of one refit hang together, so that a share of them has no simple limit.

    What is left of them after dividing by a root of their joint covariance is independent and standard normal,
    exactly, if mean and covariance are right; their shares have the limits of tests/chance.py. The joint covariance
    has the variances of the posterior, and coverage() counts with those. Noise that is forgotten or counted twice, or
    a variance that is off by a tenth, breaks it.
    """
    rng, generator = randomness.numpy_generator(0), randomness.generator(0)
    prior = mvgp.MatrixGP(
        DiffusionKernel(Graph(random_edges(rng, M, 30), M), 2.0, 0.2),
        DiffusionKernel(Graph(random_edges(rng, N, 45), N), 2.0, 0.2),
    )
    model = mvgp.FullGP(prior, gaussian(NOISE))
    standard = {0.0: [], NOISE: []}  # of noise-free and of noisy values
    certain, right = [], []
    for _ in range(100):
        data, truth, noisy = draw(prior, generator)
        posterior = model.fit(data)
        joint = posterior.joint(truth.rows, truth.cols)
        mean, variance = posterior.mean(truth.rows, truth.cols), posterior.variance(truth.rows, truth.cols)
        torch.testing.assert_close(joint.mean, mean)
        torch.testing.assert_close(joint.matrix.diagonal(), variance)
        for held_out, noise in ((truth, 0.0), (noisy, NOISE)):
            root = torch.linalg.cholesky(joint.matrix + noise * torch.eye(len(held_out), dtype=torch.float64))
            off = (held_out.values - mean)[:, None]  # (Q, 1)
            standard[noise].append(torch.linalg.solve_triangular(root, off, upper=False).flatten())
        found = coverage(posterior, noisy)
        by_hand = coverage((mean, (variance + NOISE).sqrt()), noisy.values)
        torch.testing.assert_close(
            found.covered, by_hand.covered, atol=1.5 / len(noisy), rtol=0
        )  # one value at an edge
        right.append(found)
        certain.append(coverage(posterior, noisy, noise=0.0))
    for values in map(torch.cat, standard.values()):
        count = len(values)
        assert count >= 20_000
        found = coverage((torch.zeros(count), torch.ones(count)), values)
        for level, share in zip(LEVELS, found.covered.tolist(), strict=True):
            assert abs(share - level) < chance.share_limit(count, 2 * len(LEVELS), level)
        assert abs(float(values.mean())) < chance.mean_limit(count, 2)
        assert abs(float(values.square().mean()) - 1) < chance.variance_limit(count, 2)
    # noisy values in noise-free intervals: narrower ones never hold more, and here they hold less
    assert all((one.covered <= other.covered).all() for one, other in zip(certain, right, strict=True))
    assert any((one.covered < other.covered).all() for one, other in zip(certain, right, strict=True))


def test_equals_counting():
    generator = randomness.generator(0)
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
    values = torch.randn(50_000, generator=randomness.generator(0), dtype=torch.float64)
    zero, one = torch.zeros_like(values), torch.ones_like(values)
    assert coverage((zero, one), values).worst < chance.share_limit(len(values), len(LEVELS))
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


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_values_have_the_noise_of_the_likelihood(weighted, tmp_path):
    """It used to be 0, so that a perfect model read "0.264 off"."""
    prior = mvgp.MatrixGP(*(PrecomputedKernel(torch.eye(n, dtype=torch.float64)) for n in (4, 5)))
    extra = {"weights": [0.5, 2.0]} if weighted else {}
    data = mvgp.ObservedMatrix([0, 1], [0, 2], [1.0, -1.0], (4, 5), **extra)
    held_out = mvgp.ObservedMatrix([2, 3], [0, 2], [1.0, -2.0], (4, 5))
    for model in (
        mvgp.FullGP(prior, gaussian(0.7)),
        mvgp.TraceGP(prior, gaussian(0.7)),
        mvgp.FactorGP(prior, gaussian(0.7), rank=1),
    ):
        posterior = model.fit(data)
        assert posterior.noise == pytest.approx(0.7)
        levels = torch.linspace(0.01, 0.99, 99)
        wanted = coverage(posterior, held_out, noise=0.7, levels=levels).covered
        assert torch.equal(coverage(posterior, held_out, levels=levels).covered, wanted)
        assert not torch.equal(coverage(posterior, held_out, noise=0.0, levels=levels).covered, wanted)
        posterior.save(tmp_path / "file")
        assert mvgp.load(tmp_path / "file").noise == posterior.noise
    assert mvgp.FullGP(prior, gaussian(0.7)).fit(data).rescaled(2.0).noise == pytest.approx(1.4)


def test_a_predictor_that_knows_no_noise_is_asked_for_it():
    class Known:
        shape = (2, 3)

        def mean(self, rows, cols):
            return torch.zeros(len(rows))

        variance = mean

    with pytest.raises(InputError, match="noise: this posterior does not say"):
        coverage(Known(), HELD_OUT)


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


class TestProbabilities:
    """Calibration errors of probabilities beside loops over bins, groups and draws."""

    def events(self, size=400):
        rng = randomness.numpy_generator(5)
        p = rng.random(size) ** 3
        return p, (rng.random(size) < p).astype(float), rng

    def plain_error(self, p, y, bins):
        """Sorted, cut into parts of equal size; no ties."""
        order = np.argsort(p)
        parts = [order[(len(p) * at) // bins : (len(p) * (at + 1)) // bins] for at in range(bins)]
        return sum(abs(p[part].mean() - y[part].mean()) * len(part) for part in parts if len(part)) / len(p)

    @pytest.mark.parametrize("bins", [1, 7, 20, 400, 1000])
    def test_error_beside_a_loop(self, bins):
        p, y, _ = self.events()
        assert calibration_error(p, y, bins) == pytest.approx(self.plain_error(p, y, bins), abs=1e-12)

    def test_ties_stay_together(self):
        """Half of the events at one probability: whatever the order and the bins, the error is 0."""
        for outcomes in ([1, 1, 0, 0], [0, 0, 1, 1], [True, False, True, False]):
            assert calibration_error([0.5] * 4, outcomes, 2) == 0

    def test_weights_are_repetitions(self):
        p, y, rng = self.events(50)
        times = rng.integers(0, 4, 50)
        repeated = calibration_error(p.repeat(times), y.repeat(times), 6)
        assert calibration_error(p, y, 6, weights=times) == pytest.approx(repeated, abs=1e-12)
        assert calibration_error(p, y, 6, weights=0.3 * np.ones(50)) == pytest.approx(calibration_error(p, y, 6))

    def test_a_share_stands_for_several(self):
        """One probability with 3 of 8 events, or 8 events."""
        one = calibration_error([0.5, 0.9], [3 / 8, 1], 9, weights=[8, 1])
        assert one == pytest.approx(calibration_error([0.5] * 8 + [0.9], [1] * 3 + [0] * 5 + [1], 9), abs=1e-12)

    def test_bins_of_equal_width(self):
        p, y = [0.05, 0.05, 0.95, 1.0, 0.1], [0, 1, 1, 1, 0]
        expected = (2 * 0.45 + 0.05 + 0.1) / 5  # 0.1 is in the second of ten
        assert calibration_error(p, y, 10, equal="widths") == pytest.approx(expected)
        weighted = calibration_error(p, y, 10, equal="widths", weights=[1, 0, 2, 0, 0])
        assert weighted == pytest.approx((0.05 + 2 * 0.05) / 3)

    def test_groups_beside_a_loop(self):
        p, y, rng = self.events()
        groups = rng.integers(0, 3, len(p))
        found = group_calibration(torch.tensor(p), torch.tensor(y), torch.tensor(groups), 5)
        assert found.groups == (0, 1, 2)
        for at, name in enumerate(found.groups):
            own = groups == name
            assert found.counts[at] == own.sum()
            assert float(found.error[at]) == pytest.approx(self.plain_error(p[own], y[own], 5), abs=1e-12)
            assert float(found.predicted[at]) == pytest.approx(p[own].mean())
            assert float(found.observed[at]) == pytest.approx(y[own].mean())
        assert found.worst == int(found.error.argmax())
        assert str(found).count("\n") == 3

    def test_a_group_that_is_off_is_found(self):
        """Over all, the mistakes of two groups cancel; within them they do not."""
        groups = ["many"] * 2000 + ["few"] * 2000
        y = [1, 1, 1, 0] * 500 + [1, 0, 0, 0] * 500
        found = group_calibration([0.5] * 4000, y, groups, seed=3)
        assert calibration_error([0.5] * 4000, y) == 0
        assert found.groups == ("few", "many")
        torch.testing.assert_close(found.error, torch.full((2,), 0.25, dtype=torch.float64))
        assert (found.error > found.limit).all()
        assert (found.limit >= found.chance).all()

    def test_the_chance_level_is_that_of_outcomes_drawn_from_the_probabilities(self):
        """One bin, p = 1 / 2: the error is |mean - 1/2|, whose mean is known."""
        size, draws = 100, 4000
        found = group_calibration([0.5] * size, [0, 1] * (size // 2), [0] * size, 1, num_draws=draws)
        counts = np.arange(size + 1)
        errors = np.abs(counts / size - 0.5)
        weights = stats.binom.pmf(counts, size, 0.5)
        mean = float(errors @ weights)
        # errors lie between 0 and 1/2: Hoeffding
        assert abs(float(found.chance[0]) - mean) < 0.5 * (np.log(2 / chance.CHANCE) / (2 * draws)) ** 0.5

    def test_random_groups_are_worse_the_smaller_they_are(self):
        p, y, _ = self.events(600)
        found = adversarial_calibration(p, y, (0.02, 1.0), 5, trials=3)
        assert found.worst[0] > found.worst[1]
        assert float(found.worst[1]) == pytest.approx(calibration_error(p, y, 5), abs=1e-12)
        assert float(found.standard_error[1]) == pytest.approx(0, abs=1e-12)
        assert found.shares.tolist() == [0.02, 1.0]
        again = adversarial_calibration(p, y, (0.02, 1.0), 5, trials=3)
        assert torch.equal(found.worst, again.worst)
        assert torch.equal(found.chance, again.chance)
        assert str(found).count("\n") == 2

    def test_random_groups_find_what_is_off_and_chance_does_not_hide_it(self):
        y = [1] * 100 + [0] * 900
        found = adversarial_calibration([0.9] * 1000, y, (0.1, 1.0))
        assert (found.worst > found.chance + 0.5).all()

    def test_a_group_of_one(self):
        found = adversarial_calibration([0.25, 0.25], [1, 1], (0.01,), num_groups=2)
        assert float(found.worst[0]) == pytest.approx(0.75)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: calibration_error([0.5, 1.5], [0, 1]), "probabilities"),
            (lambda: calibration_error([0.5, 0.5], [0, 2]), "outcomes"),
            (lambda: calibration_error([0.5, 0.5], [0]), "outcomes"),
            (lambda: calibration_error([], []), "probabilities: expected at least one"),
            (lambda: calibration_error([0.5], [1], 0), "bins"),
            (lambda: calibration_error([0.5], [1], equal="width"), "equal: expected 'counts' or 'widths'"),
            (lambda: calibration_error([0.5], [1], weights=[-1.0]), "weights"),
            (lambda: calibration_error([0.5], [1], weights=[0.0]), "weights: expected some above 0"),
            (lambda: calibration_error([0.5], [1], weights=[1.0, 1.0]), "weights"),
            (lambda: group_calibration([0.5], [0.5], [0]), "outcomes"),
            (lambda: group_calibration([0.5], [1], [0, 1]), "groups: expected shape"),
            (lambda: group_calibration([0.5], [1], [0], num_draws=0), "num_draws"),
            (lambda: adversarial_calibration([0.5], [1], [0.0]), r"shares\[0\]"),
            (lambda: adversarial_calibration([0.5], [1], trials=0), "trials"),
            (lambda: adversarial_calibration([0.5], [1], num_groups=0), "num_groups"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, call, message):
        with pytest.raises(InputError, match=message):
            call()
