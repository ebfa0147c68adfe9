"""Pictures hold the numbers they are of, use the axes they are given, and leave matplotlib's settings alone."""

import gpytorch
import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

import mvgp
from mvgp import metrics, plot
from mvgp.errors import InputError, SizeError
from mvgp.hyperparameters import choose
from mvgp.kernels import PrecomputedKernel
from tests.randomness import generator

mpl.use("agg")
KERNELS = [PrecomputedKernel((torch.eye(size) + 0.5).double()) for size in (4, 6)]
PRIOR = mvgp.MatrixGP(*KERNELS)
NOISE = gpytorch.likelihoods.GaussianLikelihood().double()
CELLS = torch.randperm(24, generator=generator(0))[:12]
NAMES = {"row_names": list("abcd"), "col_names": ["g$1", "g2", "g3", "g4", "g5", "g6"]}
DATA = mvgp.ObservedMatrix(CELLS // 6, CELLS % 6, torch.randn(12, generator=generator(1)).double(), (4, 6), **NAMES)
POSTERIOR = mvgp.FullGP(PRIOR, NOISE).fit(DATA)
POINTS = list(mvgp.TraceGP(PRIOR, NOISE).path(DATA, [1.0, 0.5, 0.1]))
TABLE = POSTERIOR.top(0, k=4, exclude=DATA)
P = torch.rand(200, generator=generator(2)).double()
Y = (torch.rand(200, generator=generator(3)) < P).double()
GROUPS = metrics.group_calibration(P, Y, ["few", "many"] * 100)


@pytest.fixture(autouse=True)
def _close():
    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


def line(axes, label):
    return next(one for one in axes.lines if one.get_label() == label)


class TestMatrix:
    def test_mean_and_deviation(self):
        mean, std = plot.matrix(POSTERIOR, DATA)
        assert np.allclose(mean.images[0].get_array(), POSTERIOR.scores())
        assert np.allclose(std.images[0].get_array(), POSTERIOR.variances().std)
        low, high = mean.images[0].get_clim()
        assert low == -high  # 0 is the middle of the colours
        dots = line(mean, "observed")
        assert set(zip(dots.get_ydata(), dots.get_xdata(), strict=True)) == set(
            zip(DATA.rows.tolist(), DATA.cols.tolist(), strict=True)
        )
        assert [text.get_text() for text in mean.get_yticklabels()] == NAMES["row_names"]
        assert mean.get_xticklabels()[0].get_text() == r"g\$1"

    def test_some_rows_and_columns(self):
        mean, _ = plot.matrix(POSTERIOR, DATA, rows=[2, 0], cols=[5, 1, 3])
        assert np.allclose(mean.images[0].get_array(), POSTERIOR.mean([[2], [0]], [5, 1, 3]))
        seen = {(row, col) for row, col in zip(DATA.rows.tolist(), DATA.cols.tolist(), strict=True)}
        dots = line(mean, "observed")
        found = {([2, 0][int(y)], [5, 1, 3][int(x)]) for y, x in zip(dots.get_ydata(), dots.get_xdata(), strict=True)}
        assert found == {(row, col) for row, col in seen if row in (2, 0) and col in (5, 1, 3)}
        assert [text.get_text() for text in mean.get_yticklabels()] == ["c", "a"]

    def test_without_data_and_on_given_axes(self):
        pair = plt.subplots(1, 2)[1]
        mean, std = plot.matrix(POSTERIOR, ax=pair)
        assert (mean, std) == tuple(pair)
        assert not mean.lines

    def test_links(self):
        links = mvgp.PositiveUnlabelled([0, 3], [1, 2], (4, 6))
        mean, _ = plot.matrix(POSTERIOR, links)
        assert sorted(line(mean, "observed").get_ydata()) == [0, 3]


class TestPath:
    @pytest.mark.parametrize(
        ("what", "value", "label"),
        [
            (None, lambda posterior: posterior.rank, "rank of the mean"),
            ("gap", lambda posterior: posterior.certificate.relative_gap, "relative duality gap"),
            ("objective", lambda posterior: posterior.certificate.primal, "objective"),
            (lambda posterior: posterior.trace_norm, lambda posterior: posterior.trace_norm, "lambda"),
        ],
    )
    def test_by_strength(self, what, value, label):
        axes = plot.path(iter(POINTS), what)
        assert axes.lines[0].get_xdata().tolist() == [1.0, 0.5, 0.1]
        assert axes.lines[0].get_ydata().tolist() == pytest.approx([value(point.posterior) for point in POINTS])
        assert axes.get_ylabel() == label
        left, right = axes.get_xlim()
        assert left > right  # from strong to weak

    def test_a_choice_with_its_metric(self):
        model = mvgp.TraceGP(PRIOR, NOISE)
        choice = choose(model, DATA, folds=2, trace_shares=[1.0, 0.5], strengths=[0.5, 0.1], metric="-MSE")
        axes = plot.path(choice)
        for share in (1.0, 0.5):
            means = [point.mean for point in choice.points if point.trace_share == share]
            assert line(axes, f"trace share {share:g}").get_ydata().tolist() == means
        assert line(axes, "chosen").get_xdata()[0] == choice.chosen.strength
        with pytest.raises(InputError, match="what: a choice shows its metric"):
            plot.path(choice, "rank")


class TestCalibration:
    def test_groups(self):
        axes = plot.calibration(GROUPS)
        points = line(axes, "groups")
        assert points.get_xdata().tolist() == GROUPS.predicted.tolist()
        assert points.get_ydata().tolist() == GROUPS.observed.tolist()
        assert [text.get_text() for text in axes.texts] == ["few", "many"]

    def test_adversarial(self):
        found = metrics.adversarial_calibration(P, Y, [0.2, 1.0], num_groups=3, trials=2)
        axes = plot.calibration(found)
        assert line(axes, "of a right predictor").get_ydata().tolist() == found.chance.tolist()
        assert axes.containers[0].lines[0].get_ydata().tolist() == found.worst.tolist()

    def test_uniformity(self):
        found = metrics.uniformity(P, bins=20)
        axes = plot.calibration(found)
        assert line(axes, "200 values").get_ydata() == pytest.approx((found.ecdf - found.edges).numpy())

    def test_coverage(self):
        curve = metrics.coverage(POSTERIOR, DATA)
        axes = plot.coverage(curve)
        assert line(axes, "12 held-out values").get_ydata().tolist() == curve.covered.tolist()
        both = plot.coverage({"one": curve, "other": curve})
        assert [one.get_label() for one in both.lines] == ["perfect", "one", "other"]


class TestLists:
    def test_ranks(self):
        axes = plot.ranks(TABLE)
        (intervals,) = axes.collections
        drawn = [(segment[0][0], segment[1][0]) for segment in intervals.get_segments()]
        assert drawn == list(zip(TABLE.rank_low.tolist(), TABLE.rank_high.tolist(), strict=True))
        shown = [text.get_text() for text in axes.texts]
        assert shown == [*(f"{share:.2f}" for share in TABLE.top_probability.tolist()), "P(top 4)"]
        assert [text.get_text().replace("\\", "") for text in axes.get_yticklabels()] == list(TABLE.names)

    def test_long_ranks_are_on_a_logarithmic_axis(self):
        one = torch.ones(2)
        table = type(TABLE)(torch.tensor([3, 4]), None, one, one, one, one.long(), 100 * one.long(), k=2, level=0.9)
        axes = plot.ranks(table)
        assert axes.get_xscale() == "log"
        assert [text.get_text() for text in axes.get_yticklabels()] == ["3", "4"]

    @pytest.mark.parametrize("most", [3, 50])
    def test_an_explanation_sums_to_the_score(self, most):
        why = POSTERIOR.explain(0, 1)
        axes = plot.explanation(why, most=most, row_names=NAMES["row_names"])
        widths = [bar.get_width() for bar in axes.patches]
        assert sum(widths) == pytest.approx(why.score, abs=1e-6)
        shown = min(most, 12)
        assert widths[:shown] == pytest.approx(why.shares[:shown].tolist())
        first = axes.get_yticklabels()[0].get_text()
        assert first == f"{NAMES['row_names'][int(why.rows[0])]} \N{EN DASH} {int(why.cols[0])}"
        assert ("9 other pairs" in [text.get_text() for text in axes.get_yticklabels()]) == (most == 3)

    def test_terms_have_parts_of_a_bar(self):
        flat = mvgp.MatrixGP(PrecomputedKernel(torch.ones(4, 4).double()), KERNELS[1])
        why = mvgp.FullGP(PRIOR + flat, NOISE).fit(DATA).explain(0, 1)
        axes = plot.explanation(why, most=5, term_names=["own", "column"])
        own, column = axes.containers
        assert [bar.get_width() for bar in own][:5] == pytest.approx(why.term_shares[0, :5].tolist())
        assert [bar.get_width() for bar in column][:5] == pytest.approx(why.term_shares[1, :5].tolist())
        for first, second in zip(own, column, strict=True):  # on one side of 0 they are put end to end
            same = first.get_width() * second.get_width() > 0
            assert second.get_x() == pytest.approx(first.get_width() if same else 0.0)
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["own", "column"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plot.path(POINTS, ax=ax),
        lambda ax: plot.calibration(GROUPS, ax=ax),
        lambda ax: plot.coverage(metrics.coverage(POSTERIOR, DATA), ax=ax),
        lambda ax: plot.ranks(TABLE, ax=ax),
        lambda ax: plot.explanation(POSTERIOR.explain(0, 1), ax=ax),
    ],
)
def test_given_axes_are_used_in_any_style(draw):
    with plt.style.context("dark_background"):
        axes = plt.subplots()[1]
        assert draw(axes) is axes
        for one in axes.lines:
            assert one.get_color() not in ("black", "k", "#000000")


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.matrix(DATA), "posterior: expected a posterior"),
        (lambda: plot.matrix(POSTERIOR, [1]), "data: expected"),
        (lambda: plot.matrix(POSTERIOR, mvgp.ObservedMatrix([0], [0], [1.0], (2, 2))), "data: expected shape"),
        (lambda: plot.matrix(POSTERIOR, rows=[]), "at least one cell"),
        (lambda: plot.matrix(POSTERIOR, ax=[1, 2, 3]), "ax: expected two axes"),
        (lambda: plot.matrix(POSTERIOR, ax=[1, 2]), "ax: expected axes of matplotlib"),
        (lambda: plot.path([]), "points: expected at least one"),
        (lambda: plot.path([1]), r"points\[0\]: expected"),
        (lambda: plot.path(POINTS, "loss"), "what: expected"),
        (lambda: plot.path(POINTS, 3), "what: expected"),
        (lambda: plot.calibration(metrics.coverage(POSTERIOR, DATA)), "use mvgp.plot.coverage"),
        (lambda: plot.coverage({}), "curves: expected at least one"),
        (lambda: plot.coverage(3), "curves: expected"),
        (lambda: plot.ranks(3), "table: expected"),
        (lambda: plot.explanation(3), "why: expected"),
        (lambda: plot.explanation(POSTERIOR.explain(0, 1), term_names=["a", "b"]), "term_names: expected 1"),
        (lambda: plot.ranks(TABLE, ax="here"), "ax: expected axes"),
    ],
)
def test_bad_input(draw, message):
    with pytest.raises(InputError, match=message):
        draw()


def test_a_picture_has_limits(monkeypatch):
    monkeypatch.setattr(plot, "MOST_CELLS", 10)
    with pytest.raises(SizeError, match="rows, cols: a picture has up to 10 cells, got 24"):
        plot.matrix(POSTERIOR)
