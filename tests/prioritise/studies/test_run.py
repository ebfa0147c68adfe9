"""What a study computes: tables against the parts done by hand."""

import math

import numpy as np
import pytest
import torch

from mvgp.data import PositiveUnlabelled
from mvgp.errors import ConvergenceError, InputError
from mvgp.hyperparameters import NegativeSets, choose, split_pairs, with_negatives
from mvgp.kernels import Graph
from mvgp.metrics import compare, ranking_scores
from mvgp.prioritise.report import write_report
from mvgp.prioritise.studies import Study, StudyError, load_study, run_study
from mvgp.prioritise.studies.directory import StudyDirectory, unit_seed
from mvgp.prioritise.studies.tables import to_text
from mvgp.prioritise.studies.work import Workload, binned, in_top
from mvgp.prioritise.tables import LinkSet
from mvgp.prioritise.tuning import tune
from tests.prioritise.studies.planted import M, N, planted_links, small_study, tables_of, tiny_study

LINKS = planted_links()
COLUMNS = {  # what reports rely on, seconds apart
    "metrics": "model metric mean std folds fold_0 fold_1",
    "comparisons": "metric model_a model_b mean_a mean_b difference low high t_pvalue wilcoxon_pvalue wins losses ties tasks",
    "curves": "model k precision precision_std recall recall_std map map_std",
    "path": "model fold trace_share strength metric score standard_error rank relative_gap iterations chosen",
    "choices": "model fold setting score",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("study") / "new"
    return run_study(LINKS, small_study(), directory, progress=False)


def by_hand(study, fold, share):
    """Choice, refits and average of one model, from the parts of mvgp.hyperparameters."""
    links = LINKS.links(study.whole_weight)
    split = split_pairs(links, folds=study.folds, seed=study.seed)[fold]
    model = tune.trace_recipe(study, LINKS, share)
    choice = choose(
        model,
        split.train,
        trace_shares=[share],
        strengths=study.strengths,
        share=study.validation_share,
        metric=study.metric,
        negatives=NegativeSets(1),
        seed=unit_seed(study.seed, "choice", fold),
        progress=False,
    )
    total = torch.zeros(M, N, dtype=torch.float64)
    for number in range(study.negative_sets):
        data = with_negatives(split.train, seed=unit_seed(study.seed, "fit", fold, number))
        *_, last = model.path(data, [s for s in study.path if s >= choice.best.strength])
        total += last.posterior.scores().double() / study.negative_sets
    rows = split.held_out.rows.unique()
    return choice, ranking_scores(total, split.held_out, exclude=split.train, k=study.k, rows=rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the mean's relative duality gap")
@pytest.mark.parametrize(("model", "share"), [("trace", 1.0), ("hilbert", 0.0)])
def test_metrics_equal_those_by_hand(ran, model, share):
    for fold in range(2):
        choice, scores = by_hand(ran.study, fold, share)
        for metric, value in scores.summary().items():
            entry = next(e for e in ran.metrics if (e["model"], e["metric"]) == (model, metric))
            assert entry[f"fold_{fold}"] == pytest.approx(value, abs=2e-6)
        chosen = [e for e in ran.path if (e["model"], e["fold"], e["chosen"]) == (model, fold, 1)]
        assert [entry["strength"] for entry in chosen] == [choice.best.strength]
        assert chosen[0]["score"] == pytest.approx(choice.best.mean, abs=1e-9)


@pytest.mark.slow
def test_the_model_finds_what_was_planted(ran):
    assert ran.mean("trace", "AUC") > ran.mean("popularity", "AUC") + 0.2
    with pytest.raises(InputError, match="nonsense"):
        ran.mean("nonsense", "AUC")


def test_every_table_has_its_columns(ran):
    header = {name: text.decode().split("\n")[0].split("\t") for name, text in tables_of(ran.directory).items()}
    for name, columns in COLUMNS.items():
        assert " ".join(header[f"{name}.tsv"]) == columns
    assert len(ran.curves) == 4 * ran.study.k
    assert len(ran.choices) == 4 * 2
    assert {entry["metric"] for entry in ran.metrics} >= {"AUC", "P@10", "R@10", "MAP@20", "nDCG@20"}


def test_mean_and_spread_are_over_folds(ran):
    for entry in ran.metrics:
        each = [entry["fold_0"], entry["fold_1"]]
        assert entry["mean"] == pytest.approx(np.mean(each), abs=1e-9)
        assert entry["std"] == pytest.approx(np.std(each, ddof=1), abs=1e-9)


def test_the_description_says_what_was_run(ran):
    told = ran.description
    assert (told["format"], told["finished"], told["data"]["links"]) == (1, True, len(LINKS))
    assert told["data"]["digest"] == LINKS.digest()
    assert told["units"]["done"] == told["units"]["total"] > 10
    assert told["seconds"] >= 0
    assert "torch" in told["versions"]
    assert "trace" in str(ran)
    assert " ± " in str(ran)
    assert "finished" in repr(ran)


def test_best_chooses_among_the_paths_of_the_others(ran):
    for fold in range(2):
        tried = {m: [e["score"] for e in ran.path if (e["model"], e["fold"]) == (m, fold)] for m in ("trace", "best")}
        assert set(tried["trace"]) < set(tried["best"])
        chosen = next(e["score"] for e in ran.choices if (e["model"], e["fold"]) == ("best", fold))
        assert chosen == max(tried["best"])


def test_scores_of_test_rows_do_not_stay(ran, tmp_path):
    assert not list(ran.directory.glob("units/fit/*"))
    run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False, keep_scores=True)
    assert len(list(tmp_path.glob("units/fit/*"))) == 1


@pytest.mark.slow
def test_comparisons_are_those_of_pooled_tasks(ran):
    study = ran.study
    pooled = {"trace": [], "hilbert": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)
        for model, share in (("trace", 1.0), ("hilbert", 0.0)):
            for fold in range(2):
                pooled[model].append(by_hand(study, fold, share)[1].per_task("AUC"))
    wanted = compare(torch.cat(pooled["hilbert"]), torch.cat(pooled["trace"]), "AUC")
    names = ("metric", "model_a", "model_b")
    found = next(e for e in ran.comparisons if tuple(e[n] for n in names) == ("AUC", "hilbert", "trace"))
    assert found["tasks"] == wanted.num_tasks
    for name in ("difference", "t_pvalue", "wilcoxon_pvalue"):
        assert found[name] == pytest.approx(getattr(wanted, name), rel=1e-4, abs=1e-6)
    assert (found["wins"], found["losses"], found["ties"]) == (wanted.wins, wanted.losses, wanted.ties)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return run_study(LINKS, tiny_study(), tmp_path_factory.mktemp("tiny") / "new", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_seed_gives_the_same_tables_whatever_the_threads_of_the_caller(tiny, tmp_path, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run_study(LINKS, tiny_study(), tmp_path, progress=False)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert tables_of(tmp_path) == tables_of(tiny.directory)


@pytest.mark.slow
def test_another_seed_gives_other_tables_and_random_numbers_of_the_caller_are_left_alone(tiny, tmp_path):
    state = torch.get_rng_state()
    run_study(LINKS, tiny_study(seed=1), tmp_path, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert tables_of(tmp_path) != tables_of(tiny.directory)


@pytest.mark.slow
def test_models_and_folds_may_be_added(ran, tmp_path):
    run_study(LINKS, small_study(models=("hilbert",), run_folds=1), tmp_path, progress=False)
    run_study(LINKS, small_study(), tmp_path, progress=False)
    assert tables_of(tmp_path) == tables_of(ran.directory)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["pairs", "rows"])
def test_choices_and_fits_never_see_the_test_fold(tmp_path, monkeypatch, split):
    study = small_study(models=("popularity", "trace"), split=split, negative_sets=1)
    held_out = [s.held_out for s in Workload(LINKS, study).splits]
    seen = []

    def spy(given, what):
        if isinstance(given, PositiveUnlabelled):
            seen.append((what, set(zip(given.rows.tolist(), given.cols.tolist(), strict=True))))

    fold, original_choice, original_fit = [], tune.choose, tune.fit
    monkeypatch.setattr(tune, "choose", lambda m, d, **o: (spy(d, "choice"), original_choice(m, d, **o))[1])
    original_grid = tune.grid

    def grid(model, study, link_set, seed):
        spy(link_set.links(), "grid")
        return original_grid(model, study, link_set, seed)

    def fit(study, link_set, setting, sets, seed):
        spy(link_set.links(), "fit")
        positive = sets[0] if isinstance(sets[0], PositiveUnlabelled) else None
        spy(positive, "fit")
        return original_fit(study, link_set, setting, sets, seed)

    monkeypatch.setattr(tune, "grid", grid)
    monkeypatch.setattr(tune, "fit", fit)
    original = Workload.choices

    def choices(self):
        fold.append([task.unit.fold for task in original(self)])
        return original(self)

    monkeypatch.setattr(Workload, "choices", choices)
    run_study(LINKS, study, tmp_path, progress=False)
    tests = [set(zip(part.rows.tolist(), part.cols.tolist(), strict=True)) for part in held_out]
    every = set(zip(LINKS.rows.tolist(), LINKS.cols.tolist(), strict=True))
    assert {what for what, _ in seen} == {"choice", "grid", "fit"}
    for what, pairs in seen:
        inside = [at for at, test in enumerate(tests) if not pairs & test]
        assert inside, f"{what} saw links of every test fold"
        if what != "grid":
            assert any(pairs == every - tests[at] for at in inside)  # the training part, and all of it


def test_tasks_of_a_choice_hold_no_test_link():
    load = Workload(LINKS, small_study())
    for task in load.choices():
        held_out = load.splits[task.unit.fold].held_out
        test = set((held_out.rows * N + held_out.cols).tolist())
        assert not test & set((task.train.rows * N + task.train.cols).tolist())
        assert len(test) + len(task.train) == len(LINKS)
        assert task.everything is None
        assert task.rows is None


@pytest.mark.slow
def test_patience_ends_paths_with_a_trace_norm_only(tmp_path):
    strengths = (2.0, 1.5, 1.2, 1.1, 1.0)  # the trace norm leaves nothing: no new best
    study = tiny_study(models=("hilbert", "trace"), strengths=strengths, patience=1)
    found = run_study(LINKS, study, tmp_path, progress=False)
    walked = {m: sum(entry["model"] == m for entry in found.path) for m in study.models}
    assert walked == {"hilbert": 5, "trace": 2}


@pytest.mark.slow
def test_new_rows(tmp_path):
    found = run_study(LINKS, tiny_study(split="new"), tmp_path, progress=False)
    load = Workload(LINKS, found.study)
    for split in load.splits:
        assert not set(split.train.rows.tolist()) & set(split.held_out.rows.tolist())
    assert found.mean("trace", "AUC") > 0.7


@pytest.mark.slow
def test_a_subsample(tmp_path):
    study = tiny_study(subsample=0.5, candidate_rows=4)
    found = run_study(LINKS, study, tmp_path, progress=False)
    assert found.description["data"]["used_links"] == round(0.5 * len(LINKS))
    load = Workload(LINKS, study)
    assert sum(len(split.held_out) for split in load.splits) == round(0.5 * len(LINKS))
    marks = found.tables["candidates"]
    known = {(LINKS.row_ids[r], LINKS.col_ids[c]) for r, c in zip(LINKS.rows, LINKS.cols, strict=True)}
    assert sum(e["held_out"] for e in marks) > 0  # links outside of the subsample are found
    assert all(e["held_out"] == ((e["row_id"], e["col_id"]) in known) for e in marks)


@pytest.mark.slow
def test_calibration_and_candidates(tmp_path):
    study = tiny_study(models=("trace", "whole"), calibration_rows=3, candidate_rows=2, whole_shares=(0.9,))
    found = run_study(LINKS, study, tmp_path, progress=False)
    bins = found.tables["calibration"]
    for model in ("trace", "whole"):
        mine = [entry for entry in bins if entry["model"] == model]
        load = Workload(LINKS, study)
        rows = load.calibration(entry_setting(found, load, model)).rows
        train = load.training[0]
        assert sum(e["count"] for e in mine) == sum(N - int((train.rows == row).sum()) for row in rows)
        assert sum(e["share"] * e["count"] for e in mine) == pytest.approx(3 * study.top)  # k members in each row
        assert sum(e["mean_probability"] * e["count"] for e in mine) == pytest.approx(3 * study.top, rel=1e-3)
    known = set(zip(LINKS.rows.tolist(), LINKS.cols.tolist(), strict=True))
    rows = {name: at for at, name in enumerate(LINKS.row_ids)}
    cols = {name: at for at, name in enumerate(LINKS.col_ids)}
    listed = found.tables["candidates"]
    assert len(listed) == 2 * study.top
    for entry in listed:
        assert (rows[entry["row_id"]], cols[entry["col_id"]]) not in known
        assert 0 <= entry["p_top"] <= 1
        assert entry["std"] > 0
    # without them the tables go, so that none is out of date
    run_study(LINKS, tiny_study(models=("trace",), whole_shares=(0.9,)), tmp_path, progress=False)
    assert not {"calibration", "candidates"} & set(load_study(tmp_path).tables)


def entry_setting(found, load, model):
    from mvgp.prioritise.studies.directory import StudyDirectory
    from mvgp.prioritise.studies.work import chosen_setting

    place = StudyDirectory(found.directory, found.study, LINKS.digest())
    return chosen_setting([place.load(unit) for unit in load.choice_units(model, 0)])


def test_bins_of_probability():
    found = binned(np.array([0.0, 0.05, 0.1, 0.95, 1.0]), np.array([False, True, False, True, True]))
    assert found[2].tolist() == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert found[1].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert found[0][0] == pytest.approx(0.05)
    there = in_top(torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor([True, True, True, False]), 2)
    assert there.tolist() == [True, False, True, False]


@pytest.mark.slow
def test_every_kind_of_model_runs(tmp_path):
    models = (
        "full",
        "factor",
        "prodige",
        "neighbours",
        "ease",
        "edlae",
        "row-gp",
        "rp3beta",
        "gfcf",
        "katz",
        "propagation",
        "puresvd",
        "whole",
        "whole-popular",
    )
    study = small_study(
        models=models, run_folds=1, factor_ranks=(2,), factor_noises=(0.5,), costs=(1.0,), noises=(0.1, 1.0),
        whole_shares=(0.9,), negative_sets=1,
    )  # fmt: skip
    found = run_study(LINKS, study, tmp_path, progress=False)
    assert {entry["model"] for entry in found.metrics} == set(models)
    assert all(entry["mean"] > 0.5 for entry in found.metrics if entry["metric"] == "AUC")
    assert {e["model"] for e in found.tables["grids"]} == set(models) - {"whole", "whole-popular"}
    assert all(np.isnan(entry["std"]) for entry in found.metrics)  # one fold has no spread
    assert " ± " not in str(found)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"link_set": [1, 2]}, "link_set"),
        ({"study": {"folds": 3}}, "study"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 2.5}, "jobs"),
        ({"jobs": 2, "dask": "tcp://x:1"}, "dask"),
        ({"study": small_study(folds=1000)}, "folds"),
    ],
)
def test_bad_arguments(tmp_path, change, word):
    given = {"link_set": LINKS, "study": small_study(), "directory": tmp_path / "new", "progress": False, **change}
    with pytest.raises(InputError, match=word):
        run_study(**given)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_unit_that_fails_is_named_and_the_others_are_kept(tmp_path, monkeypatch):
    original = tune.fit

    def fit(study, link_set, setting, sets, seed):
        if setting.family == "popularity":
            raise RuntimeError("no luck\ntoday")
        return original(study, link_set, setting, sets, seed)

    monkeypatch.setattr(tune, "fit", fit)
    with pytest.raises(StudyError, match="2 units.*fit of popularity_0, fold 0, set 0: RuntimeError: no luck today"):
        run_study(LINKS, small_study(models=("popularity", "hilbert")), tmp_path, progress=False)
    partial = load_study(tmp_path)
    assert not partial.finished
    assert {entry["model"] for entry in partial.metrics} == {"hilbert"}
    assert any("failed" in note for note in partial.notes)
    monkeypatch.setattr(tune, "fit", original)
    found = run_study(LINKS, small_study(models=("popularity", "hilbert")), tmp_path, progress=False)
    assert found.finished
    assert {entry["model"] for entry in found.metrics} == {"popularity", "hilbert"}


class Diverging:
    """A model that blows up."""

    def fit(self, data):
        raise ConvergenceError("NaN after\n3 steps")


def test_a_setting_that_cannot_be_fitted_is_passed_over(tmp_path, monkeypatch):
    original = tune.grid
    monkeypatch.setattr(tune, "grid", lambda *given: [("bad", Diverging()), *original(*given)])
    found = run_study(LINKS, tiny_study(models=("popularity",)), tmp_path / "a", progress=False)
    tried = found.tables["grids"]
    assert [entry["failure"] for entry in tried] == ["NaN after 3 steps", ""]
    assert [entry["chosen"] for entry in tried] == [0, 1]
    assert math.isnan(tried[0]["score"])
    write_report(tmp_path / "a")
    monkeypatch.setattr(tune, "grid", lambda *given: [("bad", Diverging()), ("worse", Diverging())])
    with pytest.raises(StudyError, match="popularity: none of 2 settings could be fitted; NaN after 3 steps"):
        run_study(LINKS, tiny_study(models=("popularity",)), tmp_path / "b", progress=False)


def test_load_study_of_something_else(tmp_path):
    with pytest.raises(InputError, match="study.json"):
        load_study(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="format"):
        load_study(tmp_path)
    (tmp_path / "study.json").write_text("nonsense")
    with pytest.raises(InputError, match="description"):
        load_study(tmp_path)


def test_a_metric_that_a_fold_does_not_have_is_empty(tmp_path):
    """One row with a link to every column: the only candidates are held-out links, so there is no AUC."""
    links = LinkSet(["d"], list("abcdef"), [0] * 6, range(6), Graph([], 1), Graph([], 6))
    found = run_study(links, Study(models=("popularity",), folds=2, k=3), tmp_path, progress=False)
    entry = next(one for one in found.metrics if one["metric"] == "AUC")
    assert [math.isnan(entry[name]) for name in ("mean", "std", "fold_0")] == [True] * 3
    assert found.mean("popularity", "P@3") == 1
    write_report(tmp_path)


def test_failed_units_are_not_done(tmp_path, monkeypatch):
    def fit(*given):
        raise RuntimeError("no luck")

    monkeypatch.setattr(tune, "fit", fit)
    with pytest.raises(StudyError):
        run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False)
    assert load_study(tmp_path).description["units"]["done"] == 1  # the choice


def test_a_unit_that_is_lost_on_the_way_is_told(tmp_path, monkeypatch):
    real = StudyDirectory.save

    def save(self, outcome):
        real(self, outcome)
        if outcome.unit.stage == "choice":
            (self.path / outcome.unit.path).write_bytes(b"")

    monkeypatch.setattr(StudyDirectory, "save", save)
    with pytest.warns(RuntimeWarning, match="done again"), pytest.raises(StudyError, match="choice of popularity"):
        run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False)
    assert not load_study(tmp_path).finished


def test_ids_are_the_same_in_tables():
    """Two spaces stay two; what would break a line is escaped, and read again."""
    text = to_text(["row_id"], [{"row_id": "a  b\u2028c\td\r\n"}])
    assert text == "row_id\na  b\\u2028c\\td\\r\\n\n"


def test_negatives_within_rows(tmp_path, monkeypatch):
    """Every list of a fit then has as many negatives as links; without it some lists have none."""
    seen = []
    original = tune.fit

    def noting(study, link_set, setting, sets, seed):
        seen.extend(sets)
        return original(study, link_set, setting, sets, seed)

    monkeypatch.setattr(tune, "fit", noting)
    lonely = {}
    for within in (True, False):
        seen.clear()
        run_study(LINKS, tiny_study(models=("hilbert",), within_rows=within), tmp_path / str(within), progress=False)
        assert seen
        positive, negative = (
            torch.stack([torch.bincount(one.rows[one.values * sign > 0], minlength=LINKS.shape[0]) for one in seen])
            for sign in (1, -1)
        )
        lonely[within] = int(((positive > 0) & (negative == 0)).sum())
        if within:
            assert torch.equal(positive, negative)
    assert lonely[True] == 0
