"""Axes and drawings: everything inside, in both renderers."""

import io
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvgp.reports.figure import Figure, Series, panel
from mvgp.reports.layout import HEIGHT, WIDTH
from mvgp.reports.palette import DARK, LIGHT, fixed
from mvgp.reports.raster import png_file
from mvgp.reports.svg import inline_svg, svg_file
from mvgp.reports.ticks import linear_axis, log_axis

NUMBERS = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)
POSITIVE = st.floats(1e-12, 1e12)


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.booleans())
def test_a_linear_axis_holds_its_numbers(values, tight):
    axis = linear_axis(values, tight=tight)
    assert axis.low < axis.high
    for value in [*values, *axis.ticks]:
        assert -1e-6 <= axis.share(value) <= 1 + 1e-6
    assert len(axis.ticks) <= 8
    assert len(set(axis.labels)) == len(axis.labels) or max(map(abs, values)) > 1e3 * (axis.high - axis.low)


@given(st.lists(POSITIVE, min_size=1, max_size=8))
def test_a_logarithmic_axis_holds_its_numbers(values):
    axis = log_axis(values)
    for value in [*values, *axis.ticks]:
        assert -1e-6 <= axis.share(value) <= 1 + 1e-6
    assert 1 <= len(axis.ticks) <= 8
    assert len(set(axis.labels)) == len(axis.labels)


def test_a_range_within_a_decade_has_ticks():
    assert log_axis([0.15, 0.9]).labels == ("0.2", "0.5")
    assert log_axis([0.5, 0.5]).labels == ("0.5",)


def some_figure(label="model"):
    lines = [
        Series(place, label, [1, 2, 4], [0.1, 0.2, 0.15 + place / 100], [0.0, 0.1, 0.1], [0.2, 0.3, 0.3])
        for place in range(17)
    ]
    single = Series(0, label, [2], [0.2], line=False, marks="ring", tips=[label])
    return Figure(
        "one",
        label,
        (panel(label, label, [*lines, single], x_log=True, y_from=0.0), panel("b", "k", [single])),
        (label,) * 17,
    )


@pytest.mark.slow
@pytest.mark.parametrize("label", ["plain", "<script>&\"'", "\u202e名前 $x_1$ \x00\ud800 \\frac", "x" * 300])
def test_both_renderers_take_any_label(label):
    figure = some_figure(label)
    root = ET.fromstring(svg_file(figure))
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert png_file(figure).startswith(b"\x89PNG")


def test_a_drawing_stays_inside():
    figure = some_figure()
    drawing = inline_svg(figure.panels[0], "p")
    for pairs in re.findall(r' d="M([\d. L]+)Z?"', drawing):
        for pair in pairs.split("L"):
            x, y = map(float, pair.split())
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


def test_files_have_colours_and_pages_variables():
    figure = some_figure()
    assert b"var(" not in svg_file(figure)
    assert "var(--series-3)" in inline_svg(figure.panels[0], "p")
    assert fixed("var(--ink)").startswith("#")
    assert 'stroke-dasharray="7 3"' in inline_svg(figure.panels[0], "p")  # the ninth series is dashed


def test_a_png_has_a_white_background():
    image = pytest.importorskip("matplotlib.image").imread(io.BytesIO(png_file(some_figure())))
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
