"""What to measure next: the gain is what a refit shows, and copies are not measured twice."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from tests import randomness
from tests.chance import share_limit
from tests.oracles import dense_posterior, random_edges

M, N, NOISE = 6, 13, 0.3
RNG = randomness.numpy_generator(3)
KERNELS = [DiffusionKernel(Graph(random_edges(RNG, n, 2 * n), n), 2.0, 0.3) for n in (M, N)]


def gaussian(noise=NOISE):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


@pytest.fixture(scope="module")
def fitted():
    cells = torch.randperm(M * N, generator=randomness.generator(0))[:30]
    values = torch.randn(30, generator=randomness.generator(1), dtype=torch.float64)
    names = [f"gene{n}" for n in range(N)]
    data = mvgp.ObservedMatrix(cells // N, cells % N, values, (M, N), col_names=names)
    return mvgp.FullGP(mvgp.MatrixGP(*KERNELS), gaussian()).fit(data), data


def test_the_gain_is_what_measuring_the_item_takes_away(fitted):
    posterior, data = fitted
    row, k = 2, 4
    seen = data.cols[data.rows == row].tolist()
    plan = posterior.next_tests(row, count=1, k=k, num_samples=500, exclude=([row] * len(seen), seen))
    before = posterior.variances([row]).values[0]
    at_top = posterior.top_probability(row, k, num_samples=500, exclude=([row] * len(seen), seen))
    weight = at_top * (1 - at_top)
    expected = []
    for item in range(N):
        if item in seen:
            expected.append(-1.0)
            continue
        more = mvgp.ObservedMatrix(
            torch.cat([data.rows, torch.tensor([row])]),
            torch.cat([data.cols, torch.tensor([item])]),
            torch.cat([data.values, torch.zeros(1).double()]),
            (M, N),
        )
        after = mvgp.FullGP(mvgp.MatrixGP(*KERNELS), gaussian()).fit(more).variances([row]).values[0]
        expected.append(float((weight * (before - after)).sum() / (weight * before).sum()))
    assert float(plan.gain[0]) == pytest.approx(max(expected), rel=1e-6)
    assert expected[int(plan.items[0])] == pytest.approx(max(expected), rel=1e-6)  # one of the best


def test_a_copy_is_not_measured_twice():
    block = torch.eye(6, dtype=torch.float64)
    block[0, 1] = block[1, 0] = 0.999  # items 0 and 1 are all but the same
    prior = mvgp.MatrixGP(PrecomputedKernel(torch.eye(2, dtype=torch.float64)), PrecomputedKernel(block))
    data = mvgp.ObservedMatrix([1], [0], [1.0], (2, 6))
    plan = mvgp.FullGP(prior, gaussian(1e-3)).fit(data).next_tests(0, count=3, k=2, num_samples=4000)
    assert int(plan.items[0]) in (0, 1)  # it says something about both
    assert len({0, 1} & set(plan.items.tolist())) == 1
    assert (plan.gain[:-1] >= plan.gain[1:] - 0.02).all()
    assert 0 < float(plan.gain.sum()) < 1


def test_the_table(fitted):
    posterior, data = fitted
    plan = posterior.next_tests(1, count=5, exclude=data, num_samples=200)
    frame = plan.to_frame()
    assert list(frame.columns) == ["item", "name", "mean", "std", "top_probability", "gain"]
    assert frame.name.tolist() == [f"gene{item}" for item in plan.items.tolist()]
    assert "of the uncertainty of the top 20" in repr(plan)
    lines = str(plan).splitlines()
    assert lines[0].split() == ["order", "item", "name", "mean", "std", "P(top", "20)", "gain"]
    assert [line.split()[2] for line in lines[1:]] == list(plan.names)
    torch.testing.assert_close(plan.std.square(), posterior.variance([1] * 5, plan.items), atol=1e-8, rtol=0)
    assert len(posterior.next_tests(1, count=100, num_samples=50)) == N
    with pytest.raises(InputError, match="noise: expected a positive finite number"):
        posterior.next_tests(1, noise=0.0)
    with pytest.raises(InputError, match="count: expected a positive whole number"):
        posterior.next_tests(1, count=0)


@pytest.mark.slow
def test_one_item_beats_another_as_often_as_in_samples_and_by_dense_conditioning(fitted):
    posterior, data = fitted
    samples = posterior.sample([2] * N, range(N), 40_000, generator=randomness.generator(0))
    limit = share_limit(40_000, entries=3)  # 0.017
    with torch.no_grad():
        k_rows, k_cols = (kernel.operator().to_dense() for kernel in KERNELS)
    mean, covariance = dense_posterior(k_rows, k_cols, data.rows, data.cols, data.values, NOISE)
    for one, other in ((0, 5), (3, 7), (11, 2)):
        share = float((samples[:, one] > samples[:, other]).double().mean())
        assert posterior.beats(2, one, other) == pytest.approx(share, abs=limit)
        a, b = 2 * N + one, 2 * N + other
        spread = (covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]).sqrt()
        exact = torch.special.ndtr((mean[a] - mean[b]) / spread)
        assert posterior.beats(2, one, other) == pytest.approx(float(exact), abs=1e-8)
        assert posterior.beats(2, one, other) + posterior.beats(2, other, one) == pytest.approx(1)
    assert posterior.beats(2, 4, 4) == 0.5


def test_expected_hits_add_up(fitted):
    posterior, _ = fitted
    assert posterior.expected_hits(2, range(N), k=5) == pytest.approx(5)
    first, rest = posterior.expected_hits(2, [0, 1], k=5), posterior.expected_hits(2, range(2, N), k=5)
    assert first + rest == pytest.approx(5)
