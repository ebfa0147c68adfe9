"""The registry of models and the defaults: one place each, used alike by ranked lists, studies and the demo."""

import inspect

import pytest

from mvgp.errors import ConvergenceError
from mvgp.prioritise import demo, fit_prioritiser, prioritise
from mvgp.prioritise.baselines import BASELINE_NAMES
from mvgp.prioritise.studies import Study
from mvgp.prioritise.tuning.settings import DEFAULT_MODEL, TOP, FitSettings
from mvgp.prioritise.tuning.tune import (
    CALIBRATED,
    MODELS,
    REGISTRY,
    SAMPLED,
    WITH_POSTERIOR,
    best_setting,
    family_of,
    grid,
    has_path,
    takes_negatives,
    tune,
)
from tests.prioritise.studies.planted import planted_links

LINKS = planted_links()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_path_or_a_grid(name):
    model, settings = REGISTRY[name], FitSettings()
    assert (model.trace_shares is None) != (model.grid is None)
    assert has_path(name) == has_path(family_of(name)) == (model.trace_shares is not None)
    assert takes_negatives(name) == takes_negatives(family_of(name))
    assert takes_negatives(name) == (name not in (*BASELINE_NAMES, "auto") and not name.startswith("whole"))
    assert model.title
    if model.trace_shares:
        assert all(0 <= share <= 1 for share in model.trace_shares(settings))
    else:
        texts = [text for text, _ in grid(name, settings, LINKS, 0)]
        assert len(set(texts)) == len(texts) > 0


def test_calibrated_models_have_a_posterior():
    assert set(CALIBRATED) < set(WITH_POSTERIOR) < set(MODELS)
    assert {family_of(name) for name in ("hilbert", "trace", "best")} == {SAMPLED}


def test_defaults_are_the_same_everywhere():
    study = Study()
    for name, value in FitSettings().__dict__.items():
        assert getattr(study, name) == value
    assert study.top == TOP
    signature = inspect.signature(fit_prioritiser).parameters
    assert signature["model"].default == DEFAULT_MODEL
    assert inspect.signature(prioritise).parameters["top"].default == TOP
    quick = Study.from_dict(demo.QUICK)
    changed = {name for name in study.__dict__ if getattr(quick, name) != getattr(study, name)}
    assert changed == set(demo.QUICK)


def test_a_single_setting_is_taken_without_a_validation_unless_asked():
    settings = FitSettings(strengths=(0.5,), metric="MAP@10")
    tuned = tune(SAMPLED, LINKS, settings, seed=0, trace_shares=(1.0,))
    assert (tuned.records, tuned.choice, tuned.setting.text) == ([], None, "trace_share 1, strength 0.5")
    validated = tune(SAMPLED, LINKS, settings, seed=0, trace_shares=(1.0,), skip_single=False)
    assert validated.setting.key == tuned.setting.key
    assert [record["strength"] for record in validated.records] == [0.5]
    assert tune("popularity", LINKS, settings, seed=0).records == []
    assert len(tune("popularity", LINKS, settings, seed=0, skip_single=False).records) == 1


def test_of_equal_scores_the_strongest_penalty_or_the_first_of_a_grid_is_best():
    path = [{"score": 0.5, "strength": strength, "trace_share": 1.0} for strength in (0.1, 0.4, 0.2)]
    assert best_setting(SAMPLED, path).strength == 0.4
    trials = [{"place": place, "text": str(place), "score": 0.5, "failure": ""} for place in range(3)]
    assert best_setting("ease", trials).index == 0
    trials[0] |= {"score": None, "failure": "NaN"}
    assert best_setting("ease", trials).index == 1
    with pytest.raises(ConvergenceError, match="ease: none of 1 settings could be fitted; NaN"):
        best_setting("ease", trials[:1])
