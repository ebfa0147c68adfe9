"""A user's own part of a likelihood or of a target set is used, on every kind of data, or refused by name."""

import gpytorch
import pytest
import torch
from linear_operator.operators import DiagLinearOperator

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import log_marginal
from mvgp.kernels import PrecomputedKernel
from mvgp.likelihoods import (
    BipartiteRankingLikelihood,
    GradedRankingLikelihood,
    OrderCone,
    OrderedSimplex,
    RankingLikelihood,
    RankingLists,
)
from mvgp.likelihoods.thresholds import WholeListRankingLoss, WholeListRetargetedLoss
from mvgp.priors import ZeroMean
from tests import randomness
from tests.oracles import assert_same_optimum, certified_distance

SHAPE = (5, 7)
LINKS = mvgp.PositiveUnlabelled([0, 0, 1, 3, 4], [1, 4, 2, 0, 6], SHAPE, weight=0.3)
LABELS = mvgp.ObservedMatrix([0, 0, 1, 1, 3, 3], [1, 2, 2, 5, 0, 6], [1.0, -1.0, 1.0, -1.0, 1.0, -1.0], SHAPE)


def prior():
    rng = randomness.numpy_generator(0)
    matrices = [torch.from_numpy(rng.normal(size=(n, n))) for n in SHAPE]
    return mvgp.MatrixGP(*(PrecomputedKernel(m @ m.T + torch.eye(len(m)).double()) for m in matrices))


def spelled_out(links):
    labels = -torch.ones(links.num_cells, dtype=torch.float64)
    weights = torch.full((links.num_cells,), links.weight, dtype=torch.float64)
    labels[links.positions], weights[links.positions] = 1.0, 1.0
    return mvgp.ObservedMatrix(links.pattern.rows, links.pattern.cols, labels, links.shape, weights=weights)


def trace_fit(likelihood, data):
    penalty = mvgp.SpectralElasticNet(0.5, 0.7)
    return mvgp.TraceGP(prior(), likelihood, penalty=penalty, tolerance=1e-10, max_iterations=5000).fit(data)


class HalfCone(OrderCone):
    """Projects onto a cone with half the margin it was given."""

    def projection(self, lists, weight=None):
        return OrderCone(self.margin / 2).projection(lists, weight)


class HalfLists(BipartiteRankingLikelihood):
    """Labels the other way round: the known links are to come last."""

    def lists(self, labels, task):
        return super().lists(-torch.as_tensor(labels), task)


class OwnRetargeting(BipartiteRankingLikelihood):
    """A margin of half, by the hook that solvers call."""

    def retargeting(self, labels, task, weight=None):
        return OrderCone(0.5).projection(self.lists(labels, task), weight)


class OwnRetarget(BipartiteRankingLikelihood):
    """The same by the method that is documented for one call."""

    def retarget(self, scores, labels, task, weight=None):
        return OrderCone(0.5).projection(self.lists(labels, task), weight)(scores)


class OwnLoss(BipartiteRankingLikelihood):
    def loss(self, scores, labels, task, weight=None):
        return 2 * super().loss(scores, labels, task, weight)


HALF = BipartiteRankingLikelihood(margin=0.5)
OWN = {
    "a target set's projection": (lambda: BipartiteRankingLikelihood(target=HalfCone(1.0)), HALF),
    "retargeting": (OwnRetargeting, HALF),
    "retarget": (OwnRetarget, HALF),
}


@pytest.mark.slow
@pytest.mark.parametrize("data", [LINKS, LABELS], ids=["whole lists", "labels"])
@pytest.mark.parametrize("kind", OWN)
def test_an_own_part_is_used(kind, data):
    own, same = OWN[kind]
    found, wanted = trace_fit(own(), data), trace_fit(same, data)
    torch.testing.assert_close(found.scores(), wanted.scores(), atol=1e-5, rtol=1e-5)
    plain = trace_fit(BipartiteRankingLikelihood(margin=1.0), data)
    assert float((plain.scores() - wanted.scores()).abs().max()) > 0.01  # and it makes a difference


def full_fit(likelihood, data):
    return mvgp.FullGP(prior(), likelihood, tolerance=1e-10, max_iterations=20_000).fit(data)


def factor_fit(likelihood, data):
    """At full rank, so that the optimum is the trace norm's."""
    return mvgp.FactorGP(prior(), likelihood, rank=5, max_iterations=5000).fit(data)


@pytest.mark.slow
@pytest.mark.parametrize("data", [LINKS, LABELS], ids=["whole lists", "labels"])
@pytest.mark.parametrize("kind", OWN)
def test_the_other_models_use_an_own_part_as_well(kind, data):
    own, same = OWN[kind]
    plain = BipartiteRankingLikelihood(margin=1.0)
    found, expected, other = (full_fit(likelihood, data) for likelihood in (own(), same, plain))
    assert found.certificate.converged
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-8)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-3, rtol=0)
    assert float((other.scores() - expected.scores()).abs().max()) > 0.01  # and it makes a difference
    objectives = [factor_fit(likelihood, data).objective for likelihood in (own(), same, plain)]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-5)
    assert objectives[2] > 1.5 * objectives[1]


@pytest.mark.slow
@pytest.mark.parametrize("lists", ["linked", "all"])
@pytest.mark.parametrize("fit", [full_fit, factor_fit, trace_fit])
def test_a_set_written_from_the_protocol_works_on_whole_lists(fit, lists):
    """Positives at 1, the others at most 0: against the loss by hand, at the optimum of every model."""

    class OneAndBelow:
        supports_weights, shift_invariant = True, False

        def projection(self, lists, weight=None):
            positive = lists.cell_level[lists.cell] == 1
            return lambda psi: torch.where(positive, torch.ones_like(psi), psi.clamp(max=0.0))

    links = mvgp.PositiveUnlabelled(LINKS.rows, LINKS.cols, SHAPE, 0.3, lists=lists)
    likelihood = BipartiteRankingLikelihood(target=OneAndBelow(), noise=0.2)
    fitted = fit(likelihood, links)
    scores = fitted.scores()[links.pattern.chosen].reshape(-1)
    other = torch.ones_like(scores).index_fill(0, links.positions, 0.0)
    loss = ((1 - other) * (scores - 1).square() + 0.3 * other * scores.clamp(min=0.0).square()).sum() / 2
    if fit is factor_fit:
        norm = torch.linalg.svdvals(torch.linalg.solve(root(0), fitted.scores()) @ torch.linalg.inv(root(1)).mT)
        assert float(loss + 0.2 * norm.sum()) == pytest.approx(fitted.objective, rel=1e-6)
        return
    weight = 0.2 if fit is full_fit else None
    b = torch.linalg.solve(root(0), fitted.scores()) @ torch.linalg.inv(root(1)).mT
    penalty = (
        weight / 2 * b.square().sum() if weight else 0.35 * torch.linalg.svdvals(b).sum() + 0.075 * b.square().sum()
    )
    assert float(loss + penalty) == pytest.approx(fitted.certificate.primal, rel=1e-6)
    assert fitted.certificate.converged


def root(axis):
    covariance = (prior().row_axis, prior().col_axis)[axis].covariance().to_dense().detach()
    return torch.linalg.cholesky(covariance)


@pytest.mark.slow
@pytest.mark.parametrize("data", [LINKS, LABELS], ids=["whole lists", "labels"])
def test_own_lists_are_used(data):
    found, plain = trace_fit(HalfLists(), data), trace_fit(BipartiteRankingLikelihood(), data)
    at = (data.rows, data.cols) if data is LINKS else (data.rows[data.values > 0], data.cols[data.values > 0])
    assert float(found.mean(*at).mean()) < 0 < float(plain.mean(*at).mean())


@pytest.mark.parametrize(("model", "data"), [(mvgp.TraceGP, LINKS), (mvgp.TraceGP, LABELS), (mvgp.FullGP, LABELS)])
def test_an_own_loss_is_refused_by_name(model, data):
    with pytest.raises(InputError, match="OwnLoss overrides loss"):
        model(prior(), OwnLoss()).fit(data)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: BipartiteRankingLikelihood(margin=0.7), lambda: GradedRankingLikelihood(2)])
def test_the_closed_form_equals_the_projection_of_the_spelled_out_lists(make):
    class Same(OrderCone):
        def projection(self, lists, weight=None):
            return super().projection(lists, weight)

    likelihood = make()
    found = [trace_fit(likelihood, LINKS)]
    likelihood.target = Same(likelihood.target.margin)
    found.append(trace_fit(likelihood, LINKS))
    if isinstance(likelihood, BipartiteRankingLikelihood):
        found.append(trace_fit(likelihood, spelled_out(LINKS)))
    assert_same_optimum(*found)
    for one in found:
        assert one.certificate.relative_gap <= 1e-10
        limit = certified_distance(prior(), one, found[0])
        assert limit < 0.01 * found[0].scores().abs().max()
        torch.testing.assert_close(one.scores(), found[0].scores(), atol=limit, rtol=0)


@pytest.mark.slow
def test_any_target_set_works_on_whole_lists():
    """The ordered simplex takes no weights: refused with them, used without."""
    simplex = BipartiteRankingLikelihood(target=OrderedSimplex(margin=0.1, total=3.0))
    with pytest.raises(InputError, match="OrderedSimplex takes none"):
        trace_fit(simplex, LINKS)
    links = mvgp.PositiveUnlabelled(LINKS.rows, LINKS.cols, SHAPE, weight=1.0)
    found = trace_fit(simplex, links)
    labelled = spelled_out(links)
    labelled = mvgp.ObservedMatrix(labelled.rows, labelled.cols, labelled.values, SHAPE)
    torch.testing.assert_close(found.scores(), trace_fit(simplex, labelled).scores(), atol=1e-4, rtol=1e-4)


def test_large_lists_are_made_anew_in_every_call():
    def retargeting_of(positive, task, weight):
        made.append(len(positive))
        return OrderCone(1.0).projection(RankingLists.bipartite(positive, task), weight)

    made = []
    psi = torch.randn(LINKS.num_cells, dtype=torch.float64)
    kept, anew = (
        WholeListRetargetedLoss(LINKS.positions, SHAPE[1], LINKS.num_cells, 0.3, retargeting_of, keep_cells=limit)
        for limit in (10**6, 0)
    )
    values = [loss(psi).value for loss in (kept, kept, anew, anew)]  # sums may be taken in another order
    assert values == pytest.approx([values[0]] * 4, rel=1e-13)
    assert len(made) == 3


@pytest.mark.parametrize(
    ("targets", "match"),
    [
        (lambda psi: psi * torch.nan, "a finite target"),
        (lambda psi: psi[:-1], "shape"),
        (lambda psi: psi.long(), "int64"),
        (lambda psi: None, "None"),
    ],
)
@pytest.mark.parametrize("data", [LINKS, LABELS], ids=["whole lists", "labels"])
def test_targets_that_are_no_targets_are_refused(data, targets, match):
    class Wrong:
        supports_weights, shift_invariant = True, True

        def projection(self, lists, weight=None):
            return targets

    with pytest.raises(InputError, match=match):
        trace_fit(BipartiteRankingLikelihood(target=Wrong()), data)


class Clicks(RankingLikelihood):
    """Labels 1 and 0; a likelihood that is written from the base class."""

    binary_labels = (1.0, 0.0)

    def __init__(self, margin=1.0):
        super().__init__(OrderCone(margin), 0.1)

    def lists(self, labels, task):
        return RankingLists.bipartite(torch.as_tensor(labels) > 0, task)

    def forward(self, function_samples, *params, **lists):
        raise NotImplementedError


class FastClicks(Clicks):
    """Declares that whole lists may take the closed form, next to the lists that make it true."""

    closed_form = True
    lists = Clicks.lists


class SlowClicks(FastClicks):
    def lists(self, labels, task):
        return super().lists(labels, task)


class HalfLoss(Clicks):
    """A loss of its own on every kind of data, by the protocol."""

    def data_loss(self, data, mean):
        return Clicks(0.5).data_loss(data, mean)


def test_the_closed_form_is_declared_next_to_the_lists():
    kinds = {Clicks: WholeListRetargetedLoss, FastClicks: WholeListRankingLoss, SlowClicks: WholeListRetargetedLoss}
    mean, psi = ZeroMean(), torch.randn(LINKS.num_cells, dtype=torch.float64)
    losses = [likelihood().data_loss(LINKS, mean) for likelihood in kinds]
    assert [type(loss) for loss in losses] == list(kinds.values())
    assert [loss(psi).value for loss in losses] == pytest.approx([losses[0](psi).value] * 3, rel=1e-12)


@pytest.mark.parametrize("data", [LINKS, LABELS], ids=["whole lists", "labels"])
def test_a_data_loss_of_ones_own_is_used(data):
    torch.testing.assert_close(
        trace_fit(HalfLoss(), data).scores(), trace_fit(HALF, data).scores(), atol=1e-5, rtol=1e-5
    )


# Gaussian noise of one's own ---------------------------------------------------------------------


class NoiseOfItsOwn(gpytorch.likelihoods.GaussianLikelihood):
    """Noise that grows from entry to entry."""

    def _shaped_noise_covar(self, base_shape, *params, **kwargs):
        return DiagLinearOperator(self.noise * torch.arange(1, base_shape[-1] + 1))


class TenTimes(gpytorch.likelihoods.GaussianLikelihood):
    """The property that is read can be overridden."""

    @property
    def noise(self):
        return 10 * self.noise_covar.noise

    @noise.setter
    def noise(self, value):
        self.noise_covar.initialize(noise=value)


VALUES = mvgp.ObservedMatrix([0, 1, 4], [1, 5, 2], [1.0, -1.0, 0.5], SHAPE)
MODELS = {
    "FullGP": lambda likelihood: mvgp.FullGP(prior(), likelihood),
    "TraceGP": lambda likelihood: mvgp.TraceGP(prior(), likelihood),
    "FactorGP": lambda likelihood: mvgp.FactorGP(prior(), likelihood, rank=1),
    "the marginal likelihood": lambda likelihood: log_marginal(prior(), likelihood, VALUES),
}


@pytest.mark.parametrize("who", MODELS)
def test_a_gaussian_likelihood_with_noise_of_its_own_is_refused_by_name(who):
    with pytest.raises(
        InputError, match=rf"{who} uses one noise variance.*NoiseOfItsOwn overrides _shaped_noise_covar"
    ):
        MODELS[who](NoiseOfItsOwn().double())
    other = gpytorch.likelihoods.GaussianLikelihood().double()
    other.noise_covar = gpytorch.likelihoods.noise_models.MultitaskHomoskedasticNoise(num_tasks=1).double()
    with pytest.raises(InputError, match="MultitaskHomoskedasticNoise"):
        MODELS[who](other)


def test_a_gaussian_likelihood_with_another_noise_property_is_used():
    ten, plain = TenTimes().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    ten.noise_covar.initialize(noise=0.02)
    plain.noise = 0.2
    found, wanted = (mvgp.FullGP(prior(), likelihood).fit(VALUES).scores() for likelihood in (ten, plain))
    torch.testing.assert_close(found, wanted)
