"""Ranking through the models: sampled lists, whole lists, and the likelihood swapped in everywhere."""

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood, OrderedSimplex, RetargetedLoss
from mvgp.likelihoods.losses import WholeListSquaredLoss
from mvgp.likelihoods.thresholds import WholeListRankingLoss
from mvgp.metrics import ranking_scores
from mvgp.priors import GivenMean
from tests import randomness
from tests.oracles import assert_same_optimum, certified_distance, random_edges

SHAPE = (24, 40)


def make_prior(**options):
    graphs = [Graph(random_edges(randomness.numpy_generator(seed), n, 2 * n), n) for seed, n in enumerate(SHAPE)]
    return mvgp.MatrixGP(*(DiffusionKernel(g) for g in graphs), **options)


def planted_links(seed=0, share=0.12):
    """Positives are the largest entries of a matrix of rank 3; half of them are held out."""
    rng = randomness.numpy_generator(seed)
    scores = rng.normal(size=(SHAPE[0], 3)) @ rng.normal(size=(3, SHAPE[1]))
    pairs = np.argwhere(scores > np.quantile(scores, 1 - share))
    pairs = pairs[rng.permutation(len(pairs))]
    return pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]


def labelled(pairs, seed=1, weights=False):
    rng = randomness.numpy_generator(seed)
    taken = {tuple(p) for p in pairs.tolist()}
    free = [(r, c) for r in range(SHAPE[0]) for c in range(SHAPE[1]) if (r, c) not in taken]
    chosen = np.array([free[i] for i in rng.permutation(len(free))[: 2 * len(pairs)]])
    both = np.concatenate([pairs, chosen])
    labels = np.concatenate([np.ones(len(pairs)), -np.ones(len(chosen))])
    extra = {"weights": rng.uniform(0.5, 2.0, len(both))} if weights else {}
    return mvgp.ObservedMatrix(both[:, 0], both[:, 1], labels, shape=SHAPE, **extra)


def spelled_out(links):
    """The same lists as an ObservedMatrix with weights."""
    labels = -torch.ones(links.num_cells, dtype=torch.float64)
    weights = torch.full((links.num_cells,), links.weight, dtype=torch.float64)
    labels[links.positions], weights[links.positions] = 1.0, 1.0
    return mvgp.ObservedMatrix(links.pattern.rows, links.pattern.cols, labels, shape=links.shape, weights=weights)


# Losses over whole lists -------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6),
    cols=st.integers(1, 12),
    weight=st.sampled_from([0.01, 0.05, 1.0]),
    margin=st.sampled_from([0.0, 1.0, 3.0]),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 30.0]),
    seed=st.integers(0, 10**6),
)
def test_the_whole_list_loss_equals_retargeting_entry_by_entry(rows, cols, weight, margin, scale, seed):
    rng = randomness.numpy_generator(seed)
    mask = rng.random((rows, cols)) < 0.3
    mask[:, 0] = True  # every list has a positive
    links = mvgp.PositiveUnlabelled(*np.nonzero(mask), shape=(rows, cols), weight=weight)
    plain = spelled_out(links)
    likelihood = BipartiteRankingLikelihood(margin=margin)
    slow = RetargetedLoss(likelihood.retargeting(plain.values, plain.rows, plain.weights), plain.weights)
    fast = WholeListRankingLoss(links.positions, cols, weight, margin)
    for _ in range(3):  # the second and third start warm
        psi = torch.from_numpy(scale * rng.normal(size=rows * cols)).round(decimals=2)  # with ties
        one, two = slow(psi), fast(psi)
        size = 1 + scale**2 * rows * cols
        assert two.value == pytest.approx(one.value, abs=1e-12 * size)
        assert (two.gradient - one.gradient).abs().max() <= 1e-12 * (1 + scale)
        assert two.linear == pytest.approx(one.linear, abs=1e-11 * size)
        assert two.quadratic == pytest.approx(one.quadratic, abs=1e-11 * size)
        assert fast.quadratic_bound(psi) == pytest.approx(slow.quadratic_bound(psi), rel=1e-12, abs=1e-300)


def test_a_prior_mean_shifts_the_scores_of_whole_lists():
    links = mvgp.PositiveUnlabelled([0, 1, 1], [2, 0, 3], shape=(2, 5), weight=0.1)
    plain = spelled_out(links)
    randomness.seed_torch(0)
    offset, psi = torch.randn(10).double(), torch.randn(10).double()
    retarget = BipartiteRankingLikelihood().retargeting(plain.values, plain.rows, plain.weights)
    slow = RetargetedLoss(lambda p: retarget(p + offset) - offset, plain.weights)(psi)
    fast = WholeListRankingLoss(links.positions, 5, 0.1, 1.0, offset)(psi)
    assert torch.allclose(slow.gradient, fast.gradient, atol=1e-12)
    assert (slow.value, slow.linear) == pytest.approx((fast.value, fast.linear))
    squared = WholeListSquaredLoss(links.positions, 0.1, offset)(psi)
    targets = (plain.values + 1) / 2 - offset
    assert squared.value == pytest.approx(float((plain.weights * (psi - targets) ** 2).sum() / 2))
    assert squared.linear == pytest.approx(float((squared.gradient * targets).sum()))


# Models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 0.8])
@pytest.mark.parametrize("kind", ["ranking", "squared"])
def test_whole_lists_equal_the_same_lists_spelled_out(share, kind):
    train, _ = planted_links()
    links = mvgp.PositiveUnlabelled(train[:, 0], train[:, 1], shape=SHAPE, weight=0.1)
    plain = spelled_out(links)
    likelihood = BipartiteRankingLikelihood()
    if kind == "squared":
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        plain = plain.with_values((plain.values + 1) / 2)
    prior = make_prior()
    model = mvgp.TraceGP(prior, likelihood, strength=0.2, trace_share=share, tolerance=1e-5, strict=True)
    one, two = model.fit(links), model.fit(plain)
    assert_same_optimum(one, two)
    assert one.penalty.trace == pytest.approx(two.penalty.trace, rel=1e-4)
    # with a Hilbert norm, or the squared loss with weights of at least 0.1, the mean is unique, and the gaps bound it
    limit = certified_distance(prior, one, two)
    if kind == "squared":
        limit = min(limit, sum((2 * fit.certificate.gap / links.weight) ** 0.5 for fit in (one, two)))
    assert (one.scores() - two.scores()).abs().max() <= limit
    assert torch.allclose(one.variance([0, 3, 5], [1, 7, 39]), two.variance([0, 3, 5], [1, 7, 39]), atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True])
def test_ranking_models_agree_where_theory_says_so(weights):
    """FullGP is TraceGP without a trace norm; FactorGP reaches the trace norm's optimum; covariances are the same."""
    data, prior = labelled(planted_links()[0], weights=weights), make_prior()
    likelihood = BipartiteRankingLikelihood(noise=0.5)
    full = mvgp.FullGP(prior, likelihood, tolerance=1e-8).fit(data)
    hilbert = mvgp.TraceGP(prior, likelihood, penalty=mvgp.SpectralElasticNet(0.5, 0.0), tolerance=1e-8).fit(data)
    assert full.certificate.converged
    assert (full.scores() - hilbert.scores()).abs().max() < 1e-6
    trace = mvgp.TraceGP(prior, likelihood, penalty=mvgp.SpectralElasticNet(0.5, 1.0), tolerance=1e-5).fit(data)
    factor = mvgp.FactorGP(prior, likelihood, rank=max(trace.rank, 8) + 2).fit(data)
    assert factor.objective == pytest.approx(trace.certificate.primal, rel=1e-4)
    cells = ([0, 3, 5], [1, 7, 39])
    regression = gpytorch.likelihoods.GaussianLikelihood()
    regression.noise = 0.5
    plain = mvgp.FullGP(prior, regression.double()).fit(data)
    assert torch.allclose(full.variance(*cells), plain.variance(*cells), atol=1e-7)
    assert torch.allclose(trace.variance(*cells), plain.variance(*cells), atol=1e-7)


def test_ranking_finds_planted_structure():
    """Four groups of rows like four groups of columns, every column in as many rows as any other.

    One link of three is held out. A column of 20 links, or a row of 30, loses all of them with a chance below
    120 * 3^-20 + 80 * 3^-30 < 4e-8; otherwise its group is known, and members of the group come before the others.
    Labels turned around, or lists of columns for rows, would give an AUC of 0.5 or less.
    """
    rng = randomness.numpy_generator(3)
    shape = (80, 120)
    pairs = np.argwhere(np.arange(shape[0])[:, None] % 4 == np.arange(shape[1]) % 4)
    pairs = pairs[rng.permutation(len(pairs))]
    train, test = pairs[: len(pairs) * 2 // 3], pairs[len(pairs) * 2 // 3 :]
    prior = mvgp.MatrixGP(*(DiffusionKernel(Graph(random_edges(rng, n, 2 * n), n)) for n in shape))
    links = mvgp.PositiveUnlabelled(train[:, 0], train[:, 1], shape=shape, weight=0.1)
    count = torch.bincount(torch.from_numpy(train[:, 1]), minlength=shape[1]).double().expand(shape)

    def auc(scores):
        return ranking_scores(scores, (test[:, 0], test[:, 1]), exclude=(train[:, 0], train[:, 1])).summary()["AUC"]

    model = mvgp.TraceGP(prior, BipartiteRankingLikelihood(), trace_share=1.0)
    found = {round(p.strength, 2): auc(p.posterior) for p in model.path(links, strengths=[0.5, 0.3, 0.2, 0.1])}
    assert max(found.values()) > 0.9
    assert auc(count) < 0.7


def test_a_given_mean_is_part_of_the_scores():
    train, _ = planted_links()
    mean = torch.linspace(-1, 1, SHAPE[1]).double().expand(SHAPE)
    prior = make_prior(mean=GivenMean(mean.contiguous()))
    links = mvgp.PositiveUnlabelled(train[:, 0], train[:, 1], shape=SHAPE)
    model = mvgp.TraceGP(prior, BipartiteRankingLikelihood(), strength=10.0, trace_share=1.0)
    for data in (links, labelled(train)):  # above lam_max nothing is left but the mean
        assert torch.allclose(model.fit(data).scores(), mean)


def test_single_precision_and_a_path_over_whole_lists():
    train, _ = planted_links()
    links = mvgp.PositiveUnlabelled(train[:, 0], train[:, 1], shape=SHAPE, weight=0.05)
    graphs = [Graph(random_edges(randomness.numpy_generator(seed), n, 2 * n), n) for seed, n in enumerate(SHAPE)]
    prior = mvgp.MatrixGP(*(DiffusionKernel(g, dtype=torch.float32) for g in graphs), dtype=torch.float32)
    model = mvgp.TraceGP(prior, BipartiteRankingLikelihood(), trace_share=0.9)
    points = list(model.path(links, strengths=[0.5, 0.2, 0.1]))
    assert all(p.posterior.certificate.converged for p in points)
    assert points[-1].posterior.scores().dtype == torch.float32


# Bad input ---------------------------------------------------------------------------------------


def test_what_does_not_go_together_is_refused():
    train, _ = planted_links()
    links = mvgp.PositiveUnlabelled(train[:, 0], train[:, 1], shape=SHAPE)
    data, prior, ranking = labelled(train), make_prior(), BipartiteRankingLikelihood()
    with pytest.raises(InputError, match="OrderedSimplex takes none, got weights"):
        mvgp.TraceGP(prior, BipartiteRankingLikelihood(target=OrderedSimplex())).fit(links)
    with pytest.raises(InputError, match="offset of a whole row|blind to an offset"):
        mvgp.TraceGP(prior, ranking, row_bias=0.0).fit(data)
    with pytest.raises(InputError):
        mvgp.TraceGP(prior, ranking).fit(data.with_values(data.values * 2))
    for bad in ({"weight": 0.0}, {"weight": 2.0}):
        with pytest.raises(InputError, match="weight"):
            mvgp.PositiveUnlabelled([0], [0], shape=SHAPE, **bad)
    with pytest.raises(InputError, match="duplicate pair"):
        mvgp.PositiveUnlabelled([0, 0], [1, 1], shape=SHAPE)
    with pytest.raises(InputError, match="at least one"):
        mvgp.PositiveUnlabelled([], [], shape=SHAPE)
