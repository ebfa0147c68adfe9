"""Settings: what is accepted, what is refused, and JSON there and back."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.prioritise.studies import Study


@pytest.mark.slow
@given(
    models=st.lists(st.sampled_from(["trace", "hilbert", "popularity", "ease", "whole"]), min_size=1, unique=True),
    split=st.sampled_from(["pairs", "rows", "known", "new"]),
    folds=st.integers(2, 9),
    strengths=st.integers(1, 40) | st.just((0.5, 0.25)),
    subsample=st.floats(0.01, 1.0),
    patience=st.none() | st.integers(1, 5),
    title=st.text(max_size=20),
)
def test_json_there_and_back(**options):
    study = Study(**options)
    assert Study.from_json(study.to_json()) == study
    assert study.split in ("pairs", "rows")
    assert list(study.path) == sorted(study.path, reverse=True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"models": ()}, "models"),
        ({"models": ("trace", "trace")}, "models"),
        ({"models": ("nonsense",)}, "popularity"),
        ({"split": "cells"}, "split"),
        ({"split": 3}, "split"),
        ({"folds": 1}, "folds"),
        ({"folds": 2.5}, "folds"),
        ({"folds": True}, "folds"),
        ({"run_folds": 6}, "run_folds"),
        ({"run_folds": 0}, "run_folds"),
        ({"negative_sets": 0}, "negative_sets"),
        ({"ratio": 0}, "ratio"),
        ({"within_rows": 1}, "within_rows"),
        ({"ratio": float("nan")}, "ratio"),
        ({"strengths": 0}, "strength"),
        ({"strengths": (0.1, 0.2)}, "strengths"),
        ({"strengths": (0.1, -0.2)}, "strengths"),
        ({"strengths": "all"}, "strengths"),
        ({"lowest": 2.0}, "lowest"),
        ({"trace_shares": (1.5,)}, "trace_shares"),
        ({"trace_shares": ()}, "trace_shares"),
        ({"trace_shares": (1.0, 1.0)}, "trace_shares"),
        ({"whole_shares": (0.0,)}, "whole_shares"),
        ({"whole_weight": 1.5}, "whole_weight"),
        ({"noises": (0.0,)}, "noises"),
        ({"costs": ("much",)}, "costs"),
        ({"factor_ranks": (0,)}, "factor_ranks"),
        ({"metric": "accuracy"}, "metric"),
        ({"metric": "MAP@0"}, "metric"),
        ({"metric": 5}, "metric"),
        ({"validation_share": 1.0}, "validation_share"),
        ({"patience": 0}, "patience"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"dtype": "half"}, "dtype"),
        ({"subsample": 0.0}, "subsample"),
        ({"subsample": 5}, "subsample"),
        ({"seed": -1}, "seed"),
        ({"k": 0}, "k:"),
        ({"time": -1.0}, "time"),
        ({"shift": -1.0}, "shift"),
        ({"models": ("popularity",), "candidate_rows": 3}, "candidate_rows"),
        ({"models": ("prodige",), "calibration_rows": 3}, "calibration_rows"),
    ],
)
def test_bad_settings_are_refused(options, word):
    with pytest.raises(InputError, match=word):
        Study(**options)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"flods": 3}', '{"folds": "many"}'])
def test_bad_json_is_refused(text):
    with pytest.raises(InputError):
        Study.from_json(text)


def test_defaults_are_the_protocol_of_the_paper():
    study = Study()
    assert (study.folds, study.negative_sets, len(study.path), study.path[-1]) == (5, 10, 30, pytest.approx(1e-3))
    assert study.trace_shares == (1.0, 0.8, 0.6, 0.4, 0.0)
    assert (study.time, study.shift, study.metric) == (1.0, 1.0, "MAP@100")


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Study().folds = 3


def test_metrics_are_spelled_as_tables_have_them():
    assert [Study(metric=one).metric for one in ("map@10", "auc", "ndcg@5", "p@3")] == [
        "MAP@10",
        "AUC",
        "nDCG@5",
        "P@3",
    ]
