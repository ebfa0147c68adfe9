"""Figures: everything inside its axes, any name is text, and colours for light and dark."""

import io
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.prioritise.report.figures import DARK, HEIGHT, LIGHT, WIDTH, Figure, Panel, Series

NUMBERS = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)
POSITIVE = st.floats(1e-12, 1e12)


def ticks_and_labels(axis):
    """Those within the view, as matplotlib draws them."""
    low, high = sorted(axis.get_view_interval())
    shown = [tick for tick in axis.get_majorticklocs() if low <= tick * (1 + 1e-12) and tick * (1 - 1e-12) <= high]
    return shown, axis.get_major_formatter().format_ticks(shown)


def drawn_axes(x, y, **options):
    series = [Series(0, "s", [point[0]], [point[1]], marks="dot") for point in zip(x, y, strict=True)]
    return Figure("f", "f", [Panel("p", "x", series, **options)]).canvas.axes[0]


def check_axis(axis, values):
    low, high = axis.get_view_interval()
    assert low < high
    for value in values:
        assert low - 1e-6 * (high - low) <= value <= high + 1e-6 * (high - low)
    ticks, labels = ticks_and_labels(axis)
    assert 1 <= len(ticks) <= 8
    return low, high, labels


@settings(max_examples=20)
@given(st.lists(NUMBERS, min_size=1, max_size=8), st.booleans())
def test_a_linear_axis_holds_its_numbers(values, from_zero):
    axes = drawn_axes(values, values, from_zero=from_zero)
    for axis, extra in ((axes.xaxis, []), (axes.yaxis, [0.0] if from_zero else [])):
        low, high, labels = check_axis(axis, [*values, *extra])
        assert len(set(labels)) == len(labels) or max(map(abs, values)) > 1e3 * (high - low)


@settings(max_examples=20)
@given(st.lists(POSITIVE, min_size=1, max_size=8))
def test_a_logarithmic_axis_holds_its_numbers(values):
    axes = drawn_axes(values, values, x_log=True, y_log=True)
    for axis in (axes.xaxis, axes.yaxis):
        _, _, labels = check_axis(axis, values)
        assert len(set(labels)) == len(labels)


def test_ticks_have_short_labels():
    def labels(values, **options):
        return ticks_and_labels(drawn_axes(values, values, **options).yaxis)[1]

    assert labels([0.02, 0.31]) == ["0.0", "0.1", "0.2", "0.3", "0.4"]
    assert labels([0.15, 0.9], y_log=True) == ["0.1", "0.2", "0.5", "1"]
    assert labels([0.5, 0.5], y_log=True)
    assert labels([0.002, 1.0], y_log=True) == ["0.001", "0.01", "0.1", "1"]
    assert labels([3e-9, 1e-6], y_log=True) == ["10⁻⁹", "10⁻⁸", "10⁻⁷", "10⁻⁶"]


def some_figure(label="model"):
    lines = [
        Series(index, label, [1, 2, 4], [0.1, 0.2, 0.15 + index / 100], [0.0, 0.1, 0.1], [0.2, 0.3, 0.3])
        for index in range(17)
    ]
    single = Series(0, label, [2], [0.2], line=False, marks="ring", tips=[label])
    panels = [Panel(label, label, [*lines, single], x_log=True, from_zero=True), Panel("b", "k", [single])]
    return Figure("name", label, panels, (label,) * 17)


@pytest.mark.parametrize("label", ["plain", "<script>&\"'", "\u202e名前 $x_1$ \x00\ud800 \\frac", "x" * 300, "_hidden"])
def test_every_form_takes_any_label(label):
    figure = some_figure(label)
    shown = label.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    for content in (figure.svg(), *figure.inline_panels()[:1]):
        root = ET.fromstring(content)
        assert not [element for element in root.iter() if element.tag.endswith("script")]
        texts = [element.text for element in root.iter() if element.tag.endswith(("text", "title"))]
        assert shown in texts  # whole, also where the font of matplotlib lacks a letter
    assert figure.png().startswith(b"\x89PNG")


def test_a_drawing_stays_inside():
    drawing = some_figure().inline_panels()[0]
    paths = re.findall(r'<path d="M ([\d. L]+)z?"', drawing)
    assert len(paths) > 34
    for pairs in paths:
        for pair in pairs.split("L"):
            x, y = map(float, pair.split())
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


def test_points_have_values_and_tips():
    root = ET.fromstring(some_figure("name").inline_panels()[0])
    series = [group for group in root.iter("g") if group.get("class") == "series"]
    assert {group.get("data-label") for group in series} == {"name"}
    assert {group.get("data-place") for group in series} == {str(index) for index in range(17)}
    lines = [group for group in series if group.get("data-points")]
    assert lines[3].get("data-points") == "1,0.1 2,0.2 4,0.18"
    assert [path.get("class") for path in lines[3]] == ["line"]
    assert [title.text for group in series for title in group.iter("title")] == ["name", "name"]  # a ring and its dot


def test_files_have_colours_and_pages_variables():
    figure = some_figure()
    assert b"var(" not in figure.svg()
    page = figure.inline_panels()[0]
    assert "var(--series-3)" in page
    assert not re.search("#[0-9a-f]{6}", page)
    assert "#1b1f24" in figure.svg().decode()
    assert "stroke-dasharray: 7,3" in page  # the ninth series is dashed


def test_settings_of_the_user_change_nothing():
    matplotlib = pytest.importorskip("matplotlib")
    figure = some_figure()
    with matplotlib.rc_context(
        {"axes.grid": True, "lines.linewidth": 9, "axes.facecolor": "red", "svg.fonttype": "path"}
    ):
        other = some_figure()
        assert other.svg() == figure.svg()
        assert other.png() == figure.png()


def test_a_png_has_a_white_background():
    image = pytest.importorskip("matplotlib.image").imread(io.BytesIO(some_figure().png()))
    assert image.shape[1] > 1200
    assert (image[:3, :3, :3] == 1).all()


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(("colours", "paper"), [(LIGHT, "#ffffff"), (DARK, "#14171b")])
def test_colours_stand_out_from_their_background(colours, paper):
    for colour in colours:
        bright, dark = sorted([luminance(colour), luminance(paper)], reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 3, colour
    assert len(set(colours)) == 8
    assert math.isclose(luminance("#ffffff"), 1)
