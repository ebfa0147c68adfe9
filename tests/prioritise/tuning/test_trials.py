"""A search by Optuna: a trial has the score that the project's own choice gives the same setting."""

import optuna
import pytest

from mvgp.errors import InputError
from mvgp.prioritise import fit_prioritiser, trial_objective
from mvgp.prioritise.tuning.settings import OF_ONE_LIST, FitSettings
from mvgp.prioritise.tuning.tune import tune
from tests.prioritise.studies.planted import planted_links

LINKS = planted_links()
COMMON = {"metric": "AUC", "strengths": (1.0, 0.3)}


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def fixed(objective, **values):
    return objective(optuna.trial.FixedTrial(values))


@pytest.mark.parametrize("model", ["full", "katz"])
def test_a_trial_scores_as_the_choice_among_a_grid_does(model):
    noises = {"noises": (0.1, 1.0)} if model == "full" else {}
    settings = FitSettings.from_dict({**OF_ONE_LIST, "metric": "AUC", **noises})
    records = tune(model, LINKS, settings, seed=0).records
    if model == "katz":
        with pytest.raises(InputError, match="suggest: expected one setting of 'katz', got"):
            fixed(trial_objective(LINKS, lambda trial: {}, model=model, metric="AUC"))
        return
    objective = trial_objective(
        LINKS, lambda trial: {"noises": (trial.suggest_float("noise", 0.01, 10, log=True),)}, model=model, metric="AUC"
    )
    scores = [fixed(objective, noise=noise) for noise in settings.noises]
    assert scores == pytest.approx([record["score"] for record in records], abs=1e-6)


@pytest.mark.slow
def test_a_study_finds_the_best_strength_and_its_best_trial_is_fitted():
    def suggest(trial):
        return {"strength": trial.suggest_categorical("strength", [1.0, 0.1, 0.01])}

    objective = trial_objective(LINKS, suggest, metric="AUC")
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.GridSampler({"strength": [1.0, 0.1, 0.01]})
    )
    study.optimize(objective, n_trials=3)
    assert study.best_value == max(fixed(objective, strength=strength) for strength in (1.0, 0.1, 0.01))
    fitted = fit_prioritiser(LINKS, model="trace", negatives=1, **suggest(study.best_trial))
    assert f"strength {study.best_params['strength']:g}" in fitted.setting


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("trace", {}, "suggest: expected one setting of 'trace', got no strength"),
        ("best", {"strength": 0.1}, "suggest: expected one setting of 'best', got no trace_share"),
        ("trace", {"strength": 0.1, "metric": "AUC"}, "suggest: expected settings of a single trial, got metric"),
        ("full", {"strength": 0.1}, "strength, trace_share: they are for"),
        ("trace", {"strengh": 0.1}, "settings: expected names among"),
    ],
)
def test_mistakes(model, given, message):
    with pytest.raises(InputError, match=message):
        trial_objective(LINKS, lambda trial: given, model=model)(None)
    with pytest.raises(InputError, match="model: expected one of"):
        trial_objective(LINKS, lambda trial: given, model="forest")
