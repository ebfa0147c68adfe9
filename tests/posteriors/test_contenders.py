"""The union bound of contenders: against counting samples, ties, and everything at the edges."""

import gpytorch
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import PrecomputedKernel
from mvgp.posteriors.ranks import top_probability
from mvgp.posteriors.row_samples import find_contenders, narrow
from tests import randomness
from tests.chance import share_limit

M, N = 3, 520


@settings(max_examples=40)
@given(
    size=st.integers(1, 60),
    k=st.integers(1, 12),
    spread=st.sampled_from([0.0, 0.01, 0.3, 3.0]),
    epsilon=st.sampled_from([1e-6, 1e-3, 0.05]),
    seed=st.integers(0, 99),
)
def test_the_bound_holds_however_items_are_correlated(size, k, spread, epsilon, seed):
    generator, count = randomness.generator(seed), 2000
    mean = torch.randn(size, generator=generator, dtype=torch.float64).mul(3).round()  # with ties
    std = spread * torch.rand(size, generator=generator, dtype=torch.float64)
    found = find_contenders(mean, std, k, epsilon)
    assert found.dropped <= epsilon
    assert len(found) >= min(k, size)
    kept = torch.zeros(size, dtype=torch.bool)
    kept[found.items] = True
    leaders = mean.argsort(descending=True, stable=True)[:k]
    assert kept[leaders].all()
    alone = torch.randn(count, size, generator=generator, dtype=torch.float64)
    for noise in (alone, alone[:, :1].expand(-1, size), alone[:, :1] * torch.tensor([1.0, -1.0]).repeat(size)[:size]):
        samples = mean + std * noise
        if not kept.all():
            reached = (samples[:, ~kept].amax(1) >= samples[:, leaders].amin(1)).double().mean()
            assert float(reached) <= found.dropped + share_limit(count, entries=3 * 40, share=found.dropped)
        full, some = top_probability(samples, k), top_probability(samples[:, kept], k)
        limit = found.dropped + share_limit(count, entries=3 * 40 * 60, share=min(found.dropped, 0.5))
        assert ((full[kept] - some).abs() <= limit).all()
        assert (full[~kept] <= limit).all()


def test_edges():
    ones = torch.ones(5)
    assert len(find_contenders(ones, 0 * ones, 2, 1e-3)) == 5  # ties without doubt stay ties
    assert len(find_contenders(ones, ones, 5, 1e-3)) == 5  # as many places as items
    assert find_contenders(ones, ones, 9, 1e-3).dropped == 0
    mean = torch.tensor([0.0, 10.0, 0.0, 0.0])
    assert find_contenders(mean, 0.1 * torch.ones(4), 1, 1e-3).items.tolist() == [1]  # one contender
    assert len(find_contenders(mean, 100 * torch.ones(4), 1, 1e-3)) == 4  # all of them
    assert find_contenders(mean[:1], ones[:1], 1, 1e-3).items.tolist() == [0]
    larger = find_contenders(torch.arange(100.0), 3 * torch.ones(100), 5, 1e-6)
    smaller = find_contenders(torch.arange(100.0), 3 * torch.ones(100), 5, 1e-2)
    assert 5 < len(smaller) < len(larger) < 100


def test_better_standard_deviations_are_computed_for_those_who_are_left():
    mean, asked = torch.arange(1000.0).double() / 10, []

    def rough(which):
        asked.append(len(which))
        return torch.full((len(which),), 5.0)

    def exact(which):
        asked.append(len(which))
        return torch.full((len(which),), 0.05)

    found = narrow(mean, 20, 1e-3, [rough, exact])
    assert asked[0] == 1000
    assert 20 < asked[1] < 1000
    assert len(found) < 40
    assert found.dropped <= 1e-3
    assert len(narrow(mean, 20, 1e-3, [exact, rough])) < 40
    assert len(asked) == 3  # few were left


def decided(spread):
    """A row of N items whose means differ by ``spread``, and dense kernels."""
    generator = randomness.generator(4)
    basis = torch.randn(N, N, generator=generator, dtype=torch.float64)
    cols = PrecomputedKernel(basis @ basis.mT / N + 0.1 * torch.eye(N).double())
    rows = PrecomputedKernel(torch.eye(M).double() + 0.3)
    values = spread * torch.randn(M, N, generator=generator, dtype=torch.float64)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.05
    data = mvgp.ObservedMatrix.from_dense(torch.where(torch.rand(M, N, generator=generator) < 0.9, values, torch.nan))
    return mvgp.FullGP(mvgp.MatrixGP(rows, cols), likelihood).fit(data)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.3, 5.0])
def test_contenders_and_everybody_agree_and_say_how_they_were_drawn(spread):
    posterior, k, count = decided(spread), 10, 4000
    exclude = ([1, 1], [3, 5])
    options = {"exclude": exclude, "num_samples": count}
    everybody = posterior.top_probability(1, k, method="joint", **options)
    found = posterior.top_probability(1, k, **options)
    assert ((found - everybody).abs() <= 2 * share_limit(count, entries=4 * N) + 1e-3).all()
    assert float(found.sum()) == pytest.approx(k)
    drawn = posterior.row_samples(1, 20, k=k, exclude=exclude)
    assert (drawn.method, drawn.candidates, drawn.left_out) == ("contenders", N - 2, 0.0)
    assert 0 <= drawn.dropped <= 1e-3
    assert k <= len(drawn.items) <= N - 2
    if spread == 5.0:
        assert len(drawn.items) < N / 2
    table = posterior.top(1, k, **options)
    assert torch.equal(table.top_probability, found[table.items])
    full = posterior.top(1, k, method="joint", **options)
    assert torch.equal(full.items, table.items)
    whole = posterior.row_samples(1, 20, exclude=exclude)
    assert (whole.method, whole.values.shape) == ("joint", (20, N - 2))
    assert repr(drawn).startswith("RowSamples(20 samples of ")


def test_one_place_and_all_places():
    posterior = decided(5.0)
    assert float(posterior.top_probability(0, 1, num_samples=50).sum()) == pytest.approx(1)
    assert (posterior.top_probability(0, N, num_samples=5) == 1).all()
    assert (posterior.top_probability(0, 2 * N, num_samples=5) == 1).all()


BAD = [
    ({"method": "fast"}, "method: expected"),
    ({"epsilon": 0}, "epsilon: expected a number between 0 and 1"),
    ({"epsilon": "small"}, "epsilon"),
    ({"k": 0}, "k: expected a positive whole number"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_refused(options, message):
    posterior = mvgp.FullGP(
        mvgp.MatrixGP(PrecomputedKernel(torch.eye(2).double()), PrecomputedKernel(torch.eye(3).double())),
        gpytorch.likelihoods.GaussianLikelihood().double(),
    ).fit(mvgp.ObservedMatrix([0], [0], [1.0], (2, 3)))
    for call in (posterior.top_probability, posterior.top, posterior.row_samples):
        with pytest.raises(InputError, match=message):
            call(0, **options)
    with pytest.raises(InputError, match="'contenders' is about the top k"):
        posterior.rank_interval(0, method="contenders")
