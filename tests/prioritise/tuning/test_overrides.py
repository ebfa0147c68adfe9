"""Options that fix settings of a model: used by those that have them, refused by name by the others."""

import pytest
import torch

from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise import fit_prioritiser
from mvgp.prioritise.cli.options import check_times
from mvgp.prioritise.studies import Study
from mvgp.prioritise.tables import LinkSet
from mvgp.prioritise.tuning.settings import FitSettings
from mvgp.prioritise.tuning.tune import (
    MODELS,
    OPTIONS,
    _prior,
    grid,
    models_with,
    overrides,
    takes_negatives,
)
from tests.prioritise.studies.planted import planted_links

LINKS = planted_links()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_a_setting_or_refused(model, option):
    if model in models_with(option):
        settings = FitSettings.from_dict(overrides(model, {option: 0.25}))
        changed = {name for name, value in settings.__dict__.items() if value != getattr(FitSettings(), name)}
        assert len(changed) == 1
    else:
        with pytest.raises(InputError, match=f"{option}: it is for .*, got model '{model}'"):
            overrides(model, {option: 0.25})
    assert overrides(model, dict.fromkeys(OPTIONS)) == {}


def test_a_noise_that_is_given_is_the_only_one():
    for model in ("full", "factor"):
        recipes = grid(model, FitSettings.from_dict(overrides(model, {"noise": 0.7})), LINKS, 0)
        assert all("noise 0.7" in text for text, _ in recipes)
    assert len(grid("full", FitSettings.from_dict(overrides("full", {"noise": 0.7})), LINKS, 0)) == 1


def test_ratio_is_for_models_that_sample_negatives():
    assert set(models_with("ratio")) == {name for name in MODELS if takes_negatives(name)}


def test_times_and_shifts_of_an_axis_are_those_of_both_when_left_out():
    both = _prior(FitSettings(time=2.0, shift=0.5), LINKS)
    assert both.row_kernel.time.item() == both.col_kernel.time.item() == pytest.approx(2.0)
    one = _prior(FitSettings(time=2.0, shift=0.5, row_time=0.25, col_shift=0.0), LINKS)
    kernels = (one.row_kernel, one.col_kernel)
    assert [kernel.time.item() for kernel in kernels] == pytest.approx([0.25, 2.0], rel=1e-5)
    assert [kernel.shift.item() for kernel in kernels] == pytest.approx([0.5, 0.0], rel=1e-5)


@pytest.mark.parametrize("name", ["row_time", "row_shift", "col_time", "col_shift"])
def test_settings_of_an_axis_are_checked_and_kept(name):
    for bad in (-1.0, float("nan"), "much", True):
        with pytest.raises(InputError, match=f"{name}: expected a"):
            FitSettings(**{name: bad})
    study = Study(**{name: 0.5})
    assert Study.from_json(study.to_json()) == study
    assert Study.from_json(Study().to_json()) == Study()


@pytest.mark.parametrize("option", ["row_time", "col_time"])
def test_a_time_needs_a_graph(option):
    links = LinkSet("ab", "xyz", [0, 1], [0, 1], Graph([], 2), Graph([], 3))
    with pytest.raises(InputError, match=f"--{option.replace('_', '-')}: expected a graph of the"):
        check_times({option: 2.0}, links)
    check_times({option: None, "row_shift": 1.0}, links)
    check_times({option: 2.0}, LINKS)


def test_fixed_settings_reach_the_fit():
    scores = [
        fit_prioritiser(LINKS, model="full", negatives=1, **overrides("full", {"row_time": time, "noise": 0.5}))
        .mixture.scores([0])
        .float()
        for time in (0.2, 5.0)
    ]
    assert not torch.allclose(*scores)
