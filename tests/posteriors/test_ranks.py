"""Ranks against counting, and against brute-force samples of the dense posterior."""

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.posteriors.ranks import beats, expected_hits, rank_interval, top_probability
from mvgp.posteriors.tables import TopTable
from mvgp.priors import GivenMean
from tests import randomness
from tests.chance import share_limit
from tests.oracles import dense_posterior, random_edges

M, N = 6, 13
RNG = randomness.numpy_generator(3)
ROWS, COLS = Graph(random_edges(RNG, M, 9), M), Graph(random_edges(RNG, N, 20), N)
NOISE = 0.1


def gaussian(noise=NOISE):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def kernels():
    return DiffusionKernel(ROWS, 1.0, 0.1), DiffusionKernel(COLS, 1.0, 0.1)


def observe(count=30, **options):
    generator = randomness.generator(1)
    cells = torch.randperm(M * N, generator=generator)[:count]
    values = torch.randn(count, generator=generator, dtype=torch.float64)
    return mvgp.ObservedMatrix(cells // N, cells % N, values, (M, N), **options)


@pytest.fixture(scope="module")
def posterior():
    return mvgp.FullGP(mvgp.MatrixGP(*kernels()), gaussian()).fit(observe())


# Functions of samples ---------------------------------------------------------------------------


def counted_top(samples, k):
    """Every item's share of the top places, one sample at a time."""
    out = torch.zeros(samples.shape[1], dtype=torch.float64)
    for sample in samples.tolist():
        for item, value in enumerate(sample):
            ahead, tied = sum(x > value for x in sample), sample.count(value)
            out[item] += min(max(k - ahead, 0), tied) / tied
    return out / len(samples)


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 8)),
    k=st.integers(1, 10),
    spread=st.sampled_from([1, 3, 10**6]),
    seed=st.integers(0, 99),
)
def test_the_top_equals_counting_with_and_without_ties_and_adds_up_to_k(size, k, spread, seed):
    samples = torch.from_numpy(randomness.numpy_generator(seed).integers(0, spread, size)).double()
    found = top_probability(samples, k)
    torch.testing.assert_close(found, counted_top(samples, k), atol=1e-12, rtol=0)
    assert float(found.sum()) == pytest.approx(min(k, size[1]), abs=1e-12)
    assert (found >= 0).all()
    assert (found <= 1).all()


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 8)),
    level=st.sampled_from([1e-12, 0.1, 0.5, 0.8, 0.9, 0.99]),
    spread=st.sampled_from([3, 10**6]),
    seed=st.integers(0, 99),
)
def test_intervals_of_ranks_leave_out_no_more_than_they_may(size, level, spread, seed):
    samples = torch.from_numpy(randomness.numpy_generator(seed).integers(0, spread, size)).double()
    low, high = rank_interval(samples, level)
    assert low.dtype == high.dtype == torch.int64
    assert (low >= 1).all()
    assert (low <= high).all()
    assert (high <= size[1]).all()
    best = 1 + (samples.unsqueeze(1) > samples.unsqueeze(2)).sum(2)  # (S, N)
    worst = (samples.unsqueeze(1) >= samples.unsqueeze(2)).sum(2)
    side = (1 - level) / 2 + 1e-9
    assert ((best < low).double().mean(0) <= side).all()
    assert ((worst > high).double().mean(0) <= side).all()
    # and it is the shortest such interval on either side
    assert ((best <= low).double().mean(0) > side - 2e-9).all()
    assert ((worst >= high).double().mean(0) > side - 2e-9).all()
    some = torch.arange(size[1]).flip(0)
    assert torch.equal(rank_interval(samples, level, some)[1], high.flip(0))


def test_ninety_percent_of_a_hundred_samples_leave_out_five_on_either_side():
    generator = randomness.generator(0)
    samples = torch.stack([torch.randperm(100, generator=generator) for _ in range(100)]).double()
    samples[:, 0] = torch.arange(100).double() + 0.5  # between two others, never tied
    low, high = rank_interval(samples, 0.9)
    ranks = (1 + (samples > samples[:, :1]).sum(1)).sort().values
    assert (int(low[0]), int(high[0])) == (int(ranks[5]), int(ranks[94]))


def test_beats_and_expected_hits():
    generator = randomness.generator(0)
    samples = torch.randn(500, 4, generator=generator, dtype=torch.float64)
    samples[:, 3] = samples[:, 2]
    assert beats(samples, 0, 1) == pytest.approx(float((samples[:, 0] > samples[:, 1]).double().mean()))
    assert beats(samples, 0, 1) + beats(samples, 1, 0) == pytest.approx(1)
    assert beats(samples, 2, 3) == beats(samples, 1, 1) == 0.5
    p = top_probability(samples, 2)
    assert expected_hits(p, range(4)) == pytest.approx(2)
    best = samples.argsort(1, descending=True)[:, :2]
    assert expected_hits(p, [0, 1]) == pytest.approx(float((best < 2).double().sum(1).mean()))  # ties are among 2, 3
    assert expected_hits(p, []) == 0


def test_arrays_and_whole_numbers_are_samples_too():
    assert top_probability(np.array([[1, 2, 3], [3, 2, 1]]), 1).tolist() == [0.5, 0, 0.5]
    assert beats(np.array([[1, 2]]), 1, 0) == 1


GOOD = torch.eye(3)
BAD_SAMPLES = [
    (lambda: top_probability(torch.zeros(3), 1), r"samples: expected .*\(S, N\), got .*\(3,\)"),
    (lambda: top_probability(torch.zeros(0, 3), 1), "samples"),
    (lambda: top_probability("no", 1), "samples: expected"),
    (lambda: top_probability([[0.0, float("nan")]], 1), r"samples\[0, 1\]: expected a finite number, got nan"),
    (lambda: top_probability(GOOD, 0), "k: expected a positive whole number, got 0"),
    (lambda: top_probability(GOOD, True), "k: expected"),
    (lambda: top_probability(GOOD, 1.5), "k: expected .* got 1.5"),
    (lambda: rank_interval(GOOD, 1.0), "level: expected a number between 0 and 1, got 1.0"),
    (lambda: rank_interval(GOOD, float("nan")), "level"),
    (lambda: rank_interval(GOOD, "0.9"), "level"),
    (lambda: rank_interval(GOOD, 0.9, [3]), r"items\[0\].*\[0, 3\), got 3"),
    (lambda: beats(GOOD, 0, 3), r"j\[0\].*\[0, 3\), got 3"),
    (lambda: beats(GOOD, [0, 1], 2), "i: expected one position .* got 2 of them"),
    (lambda: expected_hits([0.5, 1.5], [0]), r"probabilities\[1\]: expected a number from 0 to 1, got 1.5"),
    (lambda: expected_hits([0.5, 0.5], [0, 0]), "chosen: expected distinct items, got 0"),
    (lambda: expected_hits([0.5, 0.5], [2]), r"chosen\[0\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD_SAMPLES)
def test_bad_samples_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# A posterior's row ------------------------------------------------------------------------------


@pytest.mark.parametrize("exclude", [None, ([2, 2, 0], [1, 4, 0])])
def test_agrees_with_samples_of_the_dense_posterior(posterior, exclude):
    row, k, count = 2, 4, 20_000
    data, prior = observe(), mvgp.MatrixGP(*kernels())
    with torch.no_grad():
        factors = [axis.covariance().to_dense() for axis in (prior.row_axis, prior.col_axis)]
    mean, covariance = dense_posterior(*factors, data.rows, data.cols, data.values, NOISE)
    items = torch.tensor([n for n in range(N) if exclude is None or n not in (1, 4)])
    at = row * N + items
    root = torch.linalg.cholesky(covariance[at][:, at])
    noise = torch.randn(20000, len(items), generator=randomness.generator(5), dtype=torch.float64)
    samples = mean[at] + noise @ root.T
    truth = top_probability(samples, k)
    found = posterior.top_probability(row, k, exclude=exclude, num_samples=count)
    assert found.shape == (N,)
    assert float(found.sum()) == pytest.approx(k, abs=1e-10)
    limit = 2 * share_limit(count, entries=8 * N)  # ours and theirs are shares of samples: 0.05
    assert ((found[items] - truth).abs() < limit).all()
    assert ((truth > 2 * limit) & (truth < 1 - 2 * limit)).any()  # it was not a foregone conclusion
    low, high = (bound[items] for bound in posterior.rank_interval(row, 0.8, exclude=exclude, num_samples=count))
    ranks = 1 + (samples.unsqueeze(1) > samples.unsqueeze(2)).sum(2)  # (S, items) of theirs, against our interval
    assert ((ranks < low).double().mean(0) <= 0.1 + limit).all()
    assert ((ranks <= low).double().mean(0) >= 0.1 - limit).all()
    assert ((ranks > high).double().mean(0) <= 0.1 + limit).all()
    assert ((ranks >= high).double().mean(0) >= 0.1 - limit).all()

    table = posterior.top(row, k, exclude=exclude, num_samples=count)
    order = mean[at].argsort(descending=True)[:k]
    torch.testing.assert_close(table.mean, mean[at][order], atol=1e-8, rtol=0)
    torch.testing.assert_close(
        table.mean, mean[row * N + table.items], atol=1e-8, rtol=0
    )  # items with ties in any order
    torch.testing.assert_close(table.std, covariance.diagonal()[row * N + table.items].sqrt(), atol=1e-8, rtol=0)
    assert set(table.items.tolist()) <= set(items.tolist())
    assert torch.equal(table.top_probability, found[table.items])


def test_the_same_seed_gives_the_same_answer_and_leaves_other_random_numbers_alone(posterior):
    randomness.seed_torch(4)
    expected = torch.rand(3)
    randomness.seed_torch(4)
    seeds = [randomness.seed(number) for number in (0, 0, 1)]
    first, again = (posterior.top(1, 3, num_samples=200, seed=seed) for seed in seeds[:2])
    whole, other = (posterior.top_probability(1, 3, num_samples=200, seed=seed) for seed in seeds[1:])
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.top_probability, again.top_probability)
    assert torch.equal(first.top_probability, whole[first.items])
    assert not torch.equal(whole, other)
    low, high = posterior.rank_interval(1, num_samples=200, seed=seeds[0])
    assert torch.equal(low[first.items], first.rank_low)
    assert torch.equal(high[first.items], first.rank_high)


def test_certain_when_everything_was_measured_precisely():
    values = torch.randperm(M * N, generator=randomness.generator(2)).double().reshape(M, N) / 10
    data = mvgp.ObservedMatrix.from_dense(values)
    posterior = mvgp.FullGP(mvgp.MatrixGP(*kernels()), gaussian(1e-6)).fit(data)
    for row in range(M):
        found = posterior.top_probability(row, 3, num_samples=200)
        best = values[row].argsort(descending=True)
        assert (found[best[:3]] > 0.999).all()
        assert (found[best[3:]] < 0.001).all()
        low, high = posterior.rank_interval(row, num_samples=200)
        assert torch.equal(low, high)
        assert torch.equal(low[best], torch.arange(1, N + 1))


def test_certain_when_the_prior_leaves_no_room():
    mean = torch.randperm(M * N, generator=randomness.generator(2)).double().reshape(M, N)
    rows, cols = kernels()
    small = gpytorch.kernels.ScaleKernel(cols).double()
    small.outputscale = 1e-6
    posterior = mvgp.FullGP(mvgp.MatrixGP(rows, small, mean=GivenMean(mean)), gaussian()).fit(observe())
    table = posterior.top(4, 3, num_samples=200)
    assert torch.equal(table.items, mean[4].argsort(descending=True)[:3])
    assert (table.top_probability > 0.999).all()
    assert table.rank_low.tolist() == table.rank_high.tolist() == [1, 2, 3]
    assert (table.std < 0.01).all()


def test_excluded_positives_are_absent_in_every_form(posterior):
    data = observe()
    row = next(m for m in range(M) if len(data.values[data.rows == m].sign().unique()) == 2)
    mine = data.rows == row
    positive = data.cols[mine & (data.values > 0)]
    assert 0 < len(positive) < int(mine.sum())  # entries that are not positive stay
    cells = data.rows[data.values > 0], data.cols[data.values > 0]
    forms = [data, cells, mvgp.PositiveUnlabelled(*cells, shape=(M, N)), [c.tolist() for c in cells]]
    tables = [posterior.top(row, N, exclude=form, num_samples=50) for form in forms]
    for form, table in zip(forms, tables, strict=True):
        assert len(table) == N - len(positive)
        assert not set(table.items.tolist()) & set(positive.tolist())
        assert torch.equal(table.items, tables[0].items)
        assert (posterior.top_probability(row, 3, exclude=form, num_samples=50)[positive] == 0).all()
        low, high = posterior.rank_interval(row, exclude=form, num_samples=50)
        assert (low[positive] == 0).all()
        assert (high[positive] == 0).all()
        assert int(high.max()) <= N - len(positive)


def test_more_places_than_candidates(posterior):
    table = posterior.top(0, 50, num_samples=20)
    assert len(table) == N
    assert sorted(table.items.tolist()) == list(range(N))
    assert (table.top_probability == 1).all()
    assert (posterior.top_probability(0, 50, num_samples=20) == 1).all()


def test_the_table_can_be_read(posterior):
    names = [f"gene {n}" for n in range(N)]
    table = posterior.top(1, 3, exclude=observe(col_names=names), level=0.8, num_samples=100)
    assert isinstance(table, TopTable)
    assert table.names == tuple(names[item] for item in table.items)
    lines = str(table).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "P(top 3)" in lines[0]
    assert "80% ranks" in lines[0]
    assert table.names[0] in lines[1]
    assert repr(table) == "TopTable(3 items, P(top 3))"
    frame = table.to_frame()
    assert list(frame.columns) == ["item", "name", "mean", "std", "top_probability", "rank_low", "rank_high"]
    assert list(frame.index) == [1, 2, 3]
    assert frame["mean"].is_monotonic_decreasing
    plain = posterior.top(1, 3, num_samples=100)
    assert plain.names is None
    assert "name" not in plain.to_frame()
    assert "name" not in str(plain)


def test_single_precision_and_the_other_models():
    single = mvgp.MatrixGP(*kernels()).to(torch.float32)
    models = [
        mvgp.FullGP(single, gaussian()),
        mvgp.TraceGP(mvgp.MatrixGP(*kernels()), gaussian(), strength=0.1, trace_share=0.8),
        mvgp.FactorGP(mvgp.MatrixGP(*kernels()), gaussian(), rank=2),
    ]
    for model in models:
        posterior = model.fit(observe())
        assert float(posterior.top_probability(0, 4, num_samples=100).sum()) == pytest.approx(4)
        assert len(posterior.top(0, 4, num_samples=100)) == 4


def test_a_ranker_without_covariance_says_why():
    ranker = mvgp.PairwiseSVM(mvgp.MatrixGP(*kernels())).fit(
        mvgp.ObservedMatrix([0, 0, 1], [0, 1, 2], [1.0, -1.0, 1.0], shape=(M, N))
    )
    for call in (lambda: ranker.top(0), lambda: ranker.top_probability(0, 3), lambda: ranker.next_tests(0)):
        with pytest.raises(InputError, match="a support vector machine has scores"):
            call()


BAD = [
    (dict(row=M), r"row\[0\].*\[0, 6\), got 6"),
    (dict(row=[0, 1]), "row: expected one position .* got 2"),
    (dict(row=0.5), r"row\[0\]: expected a whole number, got 0.5"),
    (dict(k=0), "k: expected a positive whole number, got 0"),
    (dict(num_samples=0), "num_samples: expected a positive whole number, got 0"),
    (dict(seed=None), "seed: expected a whole number of at least 0, got None"),
    (dict(level=2), "level: expected a number between 0 and 1, got 2"),
    (dict(exclude="all"), "exclude: expected an ObservedMatrix, .* or a pair .* got str"),
    (dict(exclude=([0], [N])), r"exclude cols\[0\].*\[0, 13\), got 13"),
    (dict(exclude=([0, 1], [0])), "exclude: rows and cols differ in length: 2 and 1"),
    (dict(exclude=([0, 0], [2, 2])), r"duplicate pair \(0, 2\)"),
    (dict(exclude=mvgp.ObservedMatrix([0], [0], [1.0], (N, M))), r"exclude: expected shape \(6, 13\) .* got \(13, 6\)"),
    (dict(exclude=([0] * N, range(N))), "at least one item of row 0 to be left, got all 13 excluded"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_refused(posterior, options, message):
    with pytest.raises(InputError, match=message):
        posterior.top(**{"row": 0, "num_samples": 5, **options})
