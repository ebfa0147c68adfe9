import csv
import os

import numpy as np
import pytest
import torch
from scipy import sparse

import mvgp
from mvgp.errors import ConvergenceError, InputError, StorageError
from mvgp.metrics import ranking_scores
from mvgp.prioritise import MODELS, fit_prioritiser, load_prioritiser, prioritise
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.ranking.outputs import HEADER
from mvgp.prioritise.tuning import tune
from mvgp.storage import Budget
from tests.prioritise.ranking.examples import LINKS, M, N

QUICK = {"model": "trace", "negatives": 2, "strength": 0.2, "dtype": "double", "tolerance": 1e-4}


@pytest.fixture(scope="module")
def fitted():
    return fit_prioritiser(LINKS, **QUICK)


def test_lists_are_sorted_and_without_known_links(fitted):
    known = set(zip(LINKS.rows.tolist(), LINKS.cols.tolist(), strict=True))
    scores = fitted.mixture.scores()
    for row in fitted.ranked(None, 5, uncertainty=False):
        assert len(row) == 5
        assert not known & {(row.row, col) for col in row.cols.tolist()}
        assert torch.equal(row.score, scores[row.row, row.cols])
        left = [scores[row.row, n] for n in range(N) if (row.row, n) not in known]
        assert torch.equal(row.score, torch.stack(left).sort(descending=True).values[:5])


def test_metrics_take_it_as_any_ranker(fitted):
    """With links as scipy matrices, of numbers and of booleans; a stored 0 is none."""
    held_out = sparse.csr_array(([1.0, 1.0, 0.0], ([0, 1, 2], [1, 2, 3])), shape=LINKS.shape)
    known = sparse.csr_array((np.ones(len(LINKS), dtype=bool), (LINKS.rows, LINKS.cols)), shape=LINKS.shape)
    found = ranking_scores(fitted, held_out, exclude=known, k=5)
    expected = ranking_scores(fitted.mixture.scores(), ([0, 1], [1, 2]), exclude=LINKS.links(), k=5)
    torch.testing.assert_close(found.auc, expected.auc, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(fitted.scores([3, 1]), fitted.mixture.scores()[[3, 1]])


def test_known_links_on_request_and_a_top_of_all_columns(fitted):
    every = next(fitted.ranked([3], N, include_known=True, uncertainty=False))
    assert sorted(every.cols.tolist()) == list(range(N))
    assert every.cols[every.known].sort().values.tolist() == LINKS.cols[LINKS.rows == 3].tolist()
    rest = next(fitted.ranked([3], N, uncertainty=False))
    assert len(rest) == N - int(every.known.sum())


def test_uncertainties_agree_with_the_posteriors(fitted):
    row = next(fitted.ranked([4], 6, seed=5))
    parts = [one.top_probability(4, 6, exclude=LINKS.links(), seed=5) for one in fitted.rankers]
    assert torch.allclose(row.top_probability, torch.stack(parts).mean(0)[row.cols])
    at = torch.full_like(row.cols, 4)
    variances = torch.stack([one.variance(at, row.cols) for one in fitted.rankers])
    means = torch.stack([one.mean(at, row.cols) for one in fitted.rankers])
    expected = variances.mean(0) + (means**2).mean(0) - means.mean(0) ** 2
    assert torch.allclose(row.std**2, expected, rtol=0.03)


@pytest.mark.slow
def test_negative_sets_differ_and_the_seed_decides(fitted):
    assert len(fitted.rankers) == 2
    assert not torch.equal(*(one.scores() for one in fitted.rankers))
    again, other = (fit_prioritiser(LINKS, **QUICK, seed=seed) for seed in (0, 1))
    assert torch.equal(again.mixture.scores(), fitted.mixture.scores())
    assert not torch.equal(other.mixture.scores(), fitted.mixture.scores())


@pytest.mark.slow
def test_settings_are_chosen_by_validation():
    found = fit_prioritiser(LINKS, model="best", negatives=1, strengths=3, lowest=0.1, trace_shares=(1.0, 0.8))
    assert found.choice is not None
    assert found.choice.complete
    best = found.choice.best
    assert found.setting == f"trace_share {best.trace_share:g}, strength {best.strength:.4g}"
    assert fit_prioritiser(LINKS, model="whole", strength=0.3, trace_share=0.9).choice is None


@pytest.mark.slow
@pytest.mark.parametrize("model", [name for name in MODELS if name not in ("als", "bpr")])
def test_every_model_beats_chance(model):
    found = fit_prioritiser(LINKS, model=model, strengths=3, lowest=0.1, **({"negatives": 1} if model in NEEDY else {}))
    scores = ranking_scores(found.mixture, (LINKS.rows, LINKS.cols), k=5)
    assert scores.summary()["AUC"] > 0.55
    assert found.mixture.has_uncertainty == (
        model in ("auto", "hilbert", "trace", "best", "whole", "whole-popular", "full", "factor")
    )
    assert len(next(found.ranked([1], 3, uncertainty=found.mixture.has_uncertainty))) == 3


NEEDY = ("hilbert", "trace", "best", "full", "factor", "prodige")


def test_saved_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "kept.mvgp")
    loaded = load_prioritiser(tmp_path / "kept.mvgp")
    assert repr(loaded) == repr(fitted)
    assert (loaded.row_ids, loaded.col_names, loaded.source) == (fitted.row_ids, fitted.col_names, "made up")
    one, two = (next(which.ranked([2], 4)) for which in (fitted, loaded))
    assert str(one) == str(two)
    assert loaded.find(["disease 2"]) == [2]


def test_budgets_and_paths(fitted, tmp_path):
    fitted.save(tmp_path / "kept.mvgp")
    assert repr(load_prioritiser(tmp_path / "kept.mvgp", budget=Budget())) == repr(fitted)
    with pytest.raises(StorageError, match="expected at most 1 kernels, got 2"):
        load_prioritiser(tmp_path / "kept.mvgp", budget=Budget(kernels=1))
    with pytest.raises(InputError, match="path: expected a path"):
        load_prioritiser(True)


def test_files_of_another_kind(fitted, tmp_path):
    single = tmp_path / "single.mvgp"
    fitted.rankers[0].save(single)
    with pytest.raises(StorageError, match="mvgp.load"):
        load_prioritiser(single)
    fitted.save(tmp_path / "kept.mvgp")
    with pytest.raises(StorageError, match="Prioritiser"):
        mvgp.load(tmp_path / "kept.mvgp")
    content = bytearray((tmp_path / "kept.mvgp").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kept.mvgp").write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        load_prioritiser(tmp_path / "kept.mvgp")
    popularity = fit_prioritiser(LINKS, model="popularity")
    with pytest.raises(InputError, match="cannot be saved"):
        popularity.save(tmp_path / "none.mvgp")
    assert not (tmp_path / "none.mvgp").exists()


def test_tables(tmp_path):
    found = prioritise(LINKS, rows=["D1", "disease 3"], top=3, **QUICK)
    found.write(tmp_path / "out.tsv")
    with open(tmp_path / "out.tsv", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert tuple(lines[0]) == HEADER
    assert [line["row_id"] for line in lines] == ["D1"] * 3 + ["D3"] * 3
    assert [line["rank"] for line in lines] == ["1", "2", "3"] * 2
    frame = found.to_frame()
    assert list(frame.columns) == list(HEADER)
    assert frame["score"].tolist() == pytest.approx([float(line["score"]) for line in lines])
    assert frame["p_top"].tolist() == pytest.approx([float(line["p_top"]) for line in lines])
    assert "P(top 3)" in str(found)
    assert os.listdir(tmp_path) == ["out.tsv"]


def test_names_cannot_break_a_table():
    odd = [f"a\tb\nc{n}" for n in range(N)]
    links = type(LINKS)(LINKS.row_ids, LINKS.col_ids, LINKS.rows, LINKS.cols, LINKS.row_graph, LINKS.col_graph, (), odd)
    found = prioritise(links, rows=["D1"], top=2, model="popularity")
    assert all("\t" not in field and "\n" not in field for line in found[0].lines() for field in line)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "magic"}, "model: expected one of"),
        ({"negatives": 0}, "negatives"),
        ({"negatives": True}, "negatives"),
        ({"negatives": 2, "model": "whole"}, "without sampled negatives"),
        ({"strength": -1}, "strength"),
        ({"strength": float("nan")}, "strength"),
        ({"strength": "strong"}, "strength"),
        ({"trace_share": 1.5}, "trace_share"),
        ({"trace_share": 0.5, "model": "ease"}, "hilbert, trace, best, whole"),
        ({"trace_share": 0.0, "model": "whole"}, "trace norm"),
        ({"seed": -1}, "seed"),
        ({"metric": "luck"}, "metric"),
        ({"magic": 1}, "magic"),
        ({"top": 0}, "top"),
        ({"top": N + 1}, f"at most {N}"),
        ({"rows": ["nobody"]}, "nobody"),
        ({"model": "popularity", "uncertainty": True}, "no uncertainty"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(InputError, match=words):
        prioritise(LINKS, **{"top": 3, **options})


def test_no_link_set():
    with pytest.raises(InputError, match="LinkSet"):
        fit_prioritiser("links.tsv")


def test_rows_are_checked_before_the_first_is_asked_for(fitted):
    with pytest.raises(InputError, match="rows"):
        fitted.ranked([M], 3)


def test_a_path_without_a_trace_norm_is_tried_to_its_end():
    """As in a study: strong penalties rank alike there, which is no reason to stop."""
    options = {"negatives": 1, "strengths": (2.0, 1.9, 1.8, 1.7), "patience": 1}
    found = fit_prioritiser(LINKS, model="hilbert", **options)
    assert len(found.choice.records) == 4
    assert len(fit_prioritiser(LINKS, model="trace", **options).choice.records) == 2


class Diverging:
    """A recipe that blows up."""

    def fit(self, data):
        raise ConvergenceError("NaN after 3 steps")


def test_a_setting_that_cannot_be_fitted_is_passed_over_and_told(monkeypatch):
    original = tune.grid
    monkeypatch.setattr(tune, "grid", lambda *given: [("bad", Diverging()), *original(*given)])
    with pytest.warns(RuntimeWarning, match="popularity: bad is passed over: NaN after 3 steps"):
        assert fit_prioritiser(LINKS, model="popularity").setting == "Popularity()"
    monkeypatch.setattr(tune, "grid", lambda *given: [("bad", Diverging()), ("worse", Diverging())])
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(ConvergenceError, match="popularity: none of 2 settings could be fitted"),
    ):
        fit_prioritiser(LINKS, model="popularity")


def test_every_validation_set_counts(monkeypatch):
    fitted = []

    class Counting:
        def fit(self, data):
            fitted.append(data)
            return Popularity().fit(LINKS.links())

    monkeypatch.setattr(tune, "grid", lambda *given: [("one", Counting()), ("two", Counting())])
    fit_prioritiser(LINKS, model="full", negatives=1, validation_sets=3)
    assert len(fitted) == 2 * 3 + 1


@pytest.mark.slow
@pytest.mark.parametrize("model", ["trace", "ease"])
def test_validation_can_hold_out_rows(model, monkeypatch):
    seen = []
    real = ranking_scores

    def spy(scores, positives, *, exclude, **options):
        seen.append(set(positives.rows.tolist()) & set(exclude.rows.tolist()))
        return real(scores, positives, exclude=exclude, **options)

    monkeypatch.setattr("mvgp.hyperparameters.records.ranking_scores", spy)
    fit_prioritiser(LINKS, model=model, split="new", strengths=2, lowest=0.1)
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("name", ["subsample", "folds", "negative_sets", "models", "candidate_rows", "k", "top"])
def test_settings_of_a_study_that_a_fit_does_not_have(name):
    value = ("trace",) if name == "models" else 1
    with pytest.raises(InputError, match=f"{name}: .* of a study"):
        fit_prioritiser(LINKS, model="trace", strength=0.1, **{name: value})
