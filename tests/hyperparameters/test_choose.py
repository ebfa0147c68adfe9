import math
import pickle

import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import Choice, ChoiceInterrupted, NegativeSets, choose, split_pairs, split_rows
from mvgp.hyperparameters.records import AveragedRanker, PathRecord, Score
from mvgp.hyperparameters.validation import Point, best_of, strongest_within, summarise
from mvgp.metrics import ranking_scores
from mvgp.models.trace_sum import path_strengths
from tests.hyperparameters.planted import gaussian_model, make_links, make_numbers, ranking_model

NUMBERS, LINKS = make_numbers(), make_links()
GRID = {"trace_shares": (1.0, 0.9), "strengths": 6, "lowest": 0.02, "progress": False}


@pytest.fixture(scope="module")
def numbers():
    """Three folds of a Gaussian problem."""
    return choose(gaussian_model(), NUMBERS, folds=3, metric="-MSE", **GRID)


@pytest.fixture(scope="module")
def links():
    """One split of links with two sets of negatives."""
    return choose(ranking_model(tolerance=1e-3), LINKS, metric="MAP@10", negatives=2, **GRID)


class Counted(mvgp.TraceGP):
    """Notes the share and the data of every path."""

    seen = ()

    def path(self, data, *args, **options):
        Counted.seen = (*Counted.seen, (self.trace_share, data))
        return super().path(data, *args, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numbers", "links"])
def test_the_best_strength_beats_the_extremes(name, request):
    choice = request.getfixturevalue(name)
    own = [point for point in choice.points if point.trace_share == choice.best.trace_share]
    assert own[0].strength > choice.best.strength > own[-1].strength
    assert choice.best.mean > max(own[0].mean, own[-1].mean)
    assert choice.best.mean == max(point.mean for point in choice.points)


@pytest.mark.slow
def test_the_table_is_complete(numbers):
    wanted = [(share, fold, s) for share in (1.0, 0.9) for fold in range(3) for s in path_strengths(6, 0.02)]
    assert [(one.trace_share, one.fold, one.strength) for one in numbers.records] == wanted
    assert all(one.relative_gap <= 1e-4 and one.seconds >= 0 for one in numbers.records)
    assert all(one.iterations > 0 for one in numbers.records if one.rank)
    assert all(len(one.score.tasks) == len(one.score.per_task) > 20 for one in numbers.records)
    frame = numbers.to_frame()
    assert list(frame.columns[:5]) == ["trace_share", "strength", "fold", "-MSE", "standard_error"]
    assert len(frame) == 36
    means = frame.groupby(["trace_share", "strength"])["-MSE"].agg(["mean", "sem"])
    for point in numbers.points:
        line = means.loc[(point.trace_share, point.strength)]
        assert (point.mean, point.standard_error) == (pytest.approx(line["mean"]), pytest.approx(line["sem"]))


@pytest.mark.slow
def test_one_fold_has_standard_errors_over_tasks(links):
    assert len(links.points) == len(links.records)
    for point, record in zip(links.points, links.records, strict=True):
        assert (point.mean, point.standard_error) == (record.score.value, record.score.standard_error)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_table(links):
    again = choose(
        ranking_model(tolerance=1e-3), LINKS, metric="MAP@10", negatives=2, **{**GRID, "trace_shares": [0.9]}
    )
    assert again.records == tuple(one for one in links.records if one.trace_share == 0.9)
    short = {**GRID, "strengths": [0.3], "trace_shares": [1.0]}
    one, other = (choose(gaussian_model(), NUMBERS, metric="-MSE", seed=seed, **short) for seed in (1, 2))
    assert one.best.mean != other.best.mean


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numbers", "links"])
def test_one_standard_error_is_never_weaker(name, request):
    choice = request.getfixturevalue(name)
    careful, best = choice.best_one_standard_error, choice.best
    assert careful.trace_share == best.trace_share
    assert careful.strength >= best.strength
    assert careful.mean >= best.mean - best.standard_error
    stronger = [p for p in choice.points if p.trace_share == best.trace_share and p.strength > careful.strength]
    assert all(point.mean < best.mean - best.standard_error for point in stronger)
    assert choice.chosen == best


@pytest.mark.slow
def test_one_standard_error_can_be_the_choice(numbers):
    careful = choose(gaussian_model(), NUMBERS, folds=3, metric="-MSE", one_standard_error=True, resume=numbers, **GRID)
    assert careful.records == numbers.records
    assert careful.chosen == numbers.best_one_standard_error
    posterior, weaker = careful.refit(NUMBERS), numbers.refit(NUMBERS)
    ratio = careful.chosen.strength / numbers.best.strength
    assert posterior.penalty.trace == pytest.approx(ratio * weaker.penalty.trace)
    assert posterior.rank <= weaker.rank


def test_points_by_hand():
    def record(share, strength, fold, value):
        return PathRecord(share, strength, fold, Score(value, math.nan), 2, 0.0, 1, 0.0)

    values = {(1.0, 1.0): (1, 2), (1.0, 0.5): (3, 4), (1.0, 0.1): (3, 6), (0.5, 1.0): (4, 5), (0.5, 0.5): (2, None)}
    records = [record(*key, fold, v) for key, both in values.items() for fold, v in enumerate(both) if v is not None]
    points = summarise(records, 2)
    assert len(points) == 4  # one fold did not reach the last
    best = best_of(points)
    assert best == Point(0.5, 1.0, 4.5, 0.5, 2.0)  # a tie with (1.0, 0.1): the stronger penalty
    weaker = points[2]
    assert (weaker.mean, weaker.standard_error) == (4.5, pytest.approx(1.5))
    assert strongest_within(points, weaker).strength == 0.5
    assert strongest_within(points, best) == best


@pytest.mark.slow
def test_refit_is_the_fit_at_the_chosen_strength(numbers):
    posterior = numbers.refit(NUMBERS)
    best = numbers.best
    direct = gaussian_model(strength=best.strength, trace_share=best.trace_share).fit(NUMBERS)
    assert posterior.certificate.primal == pytest.approx(direct.certificate.primal, rel=2e-4)
    torch.testing.assert_close(posterior.scores(), direct.scores(), atol=2e-2, rtol=0)
    torch.testing.assert_close(posterior.variance([0, 3], [1, 7]), direct.variance([0, 3], [1, 7]))


@pytest.mark.slow
def test_negative_sets_are_averaged(links):
    ranker = links.refit(LINKS)
    assert isinstance(ranker, AveragedRanker)
    assert len(ranker.posteriors) == 2
    assert not torch.allclose(ranker.posteriors[0].scores(), ranker.posteriors[1].scores())
    best = links.best
    for posterior, data in zip(ranker.posteriors, NegativeSets(2).draw(LINKS, 0, 0), strict=True):
        model = ranking_model(tolerance=1e-3, strength=best.strength, trace_share=best.trace_share)
        assert posterior.certificate.primal == pytest.approx(model.fit(data).certificate.primal, rel=2e-3)
    assert ranking_scores(ranker, LINKS, k=10).summary([10])["MAP@10"] > 0.5


def test_whole_lists_and_new_rows():
    choice = choose(
        ranking_model(tolerance=1e-2),
        LINKS,
        by="rows",
        metric="AUC",
        trace_shares=[1.0],
        strengths=[0.5, 0.2],
        progress=False,
    )
    assert choice.best.mean > 0.6
    split = split_rows(LINKS, share=0.2)[0]
    assert choice.records[0].score.tasks.tolist() == split.held_out.rows.unique().tolist()
    assert choice.refit(LINKS).rank >= 1


def test_functions_and_given_splits():
    def error(posterior, train, held_out):
        return -float((posterior.mean(held_out.rows, held_out.cols) - held_out.values).square().mean())

    splits = split_pairs(NUMBERS, share=0.25, seed=9)
    short = {**GRID, "strengths": [0.5, 0.1], "trace_shares": [1.0]}
    named, own = (choose(gaussian_model(), NUMBERS, folds=splits, metric=metric, **short) for metric in ("-MSE", error))
    assert [one.mean for one in own.points] == pytest.approx([one.mean for one in named.points])
    assert "error" in own.to_frame().columns[3]
    with pytest.raises(InputError, match="there is no standard error"):
        _ = own.best_one_standard_error
    assert named.best_one_standard_error.strength >= named.best.strength


@pytest.mark.slow
def test_paths_end_early():
    values = iter([1.0, 3.0, 2.0, 3.0, 5.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    options = {"strengths": 6, "lowest": 0.1, "progress": False, "metric": lambda *_: next(values)}
    choice = choose(gaussian_model(), NUMBERS, trace_shares=[1.0, 0.9], patience=2, **options)
    assert [one.score.value for one in choice.records if one.trace_share == 1.0] == [1.0, 3.0, 2.0, 3.0]
    assert [one.score.value for one in choice.records if one.trace_share == 0.9] == [5.0, 9.0, 1.0, 2.0]
    assert choice.complete
    assert choice.best.mean == 9.0
    options["metric"] = "-MSE"
    short = choose(gaussian_model(), NUMBERS, trace_shares=[1.0], max_rank=1, **options)
    assert [one.rank > 1 for one in short.records] == [False] * (len(short.records) - 1) + [True]
    assert len(short.records) < 6


@pytest.mark.slow
def test_an_interrupted_choice_resumes_and_repeats_nothing():
    model = gaussian_model(Counted, tolerance=1e-3)
    options = {"trace_shares": (1.0, 0.9), "strengths": 3, "lowest": 0.1, "folds": 2, "progress": False}
    whole = choose(model, NUMBERS, metric="-MSE", **options)
    Counted.seen, calls = (), []
    error = -whole.best.mean

    def interrupting(posterior, train, held_out):
        calls.append(1)
        if len(calls) == 8:  # in the third of four paths
            raise KeyboardInterrupt
        return -(posterior.mean(held_out.rows, held_out.cols) - held_out.values).square().mean()

    with pytest.raises(KeyboardInterrupt, match=r"Choice\(2 of 4 paths\)") as stop:
        choose(model, NUMBERS, metric=interrupting, **options)
    assert isinstance(stop.value, ChoiceInterrupted)
    partial = stop.value.partial
    assert partial.finished == {(1.0, 0), (1.0, 1)}
    assert len(partial.records) == 6  # nothing of the third path
    assert not partial.complete
    for ask in (lambda: partial.best, lambda: partial.best_one_standard_error, lambda: partial.refit(NUMBERS)):
        with pytest.raises(InputError, match="expected all 4 paths, got 2"):
            ask()
    Counted.seen = ()
    done = choose(model, NUMBERS, metric=interrupting, resume=partial, **options)
    assert [share for share, _ in Counted.seen] == [0.9, 0.9]
    assert done.records[:6] == partial.records
    assert [one.score.value for one in done.records] == pytest.approx([one.score.value for one in whole.records])
    assert done.best.mean == pytest.approx(-error)
    Counted.seen = ()
    more = choose(model, NUMBERS, metric=interrupting, resume=done, **{**options, "trace_shares": (0.9, 0.8)})
    assert [share for share, _ in Counted.seen] == [0.8, 0.8]
    assert {one.trace_share for one in more.records} == {0.9, 0.8}


def test_resume_wants_the_same_settings(numbers):
    for change, what in [
        ({"seed": 1}, "seed"),
        ({"folds": 4}, "num_folds"),
        ({"metric": "log density"}, "metric"),
        ({"strengths": 3}, "strengths"),
        ({"patience": 2}, "patience"),
        ({"max_rank": 2}, "max_rank"),
        ({"by": "rows"}, "splits"),
    ]:
        options = {**GRID, "folds": 3, "metric": "-MSE", **change}
        with pytest.raises(InputError, match=f"resume: expected a choice with the same {what}"):
            choose(gaussian_model(), NUMBERS, resume=numbers, **options)
    with pytest.raises(InputError, match="the same model"):
        choose(gaussian_model(noise=0.1), NUMBERS, folds=3, metric="-MSE", resume=numbers, **GRID)
    with pytest.raises(InputError, match="the same splits"):
        choose(gaussian_model(), make_numbers(seed=1), folds=3, metric="-MSE", resume=numbers, **GRID)


@pytest.mark.slow
def test_a_choice_is_a_snapshot_and_pickles():
    model = gaussian_model(trace_share=0.3)
    options = {"trace_shares": [1.0], "strengths": [0.5, 0.2], "metric": "log density", "progress": False}
    choice = choose(model, NUMBERS, **options)
    assert model.trace_share == 0.3
    before = choice.refit(NUMBERS).scores()
    model.likelihood.noise = torch.tensor(2.0).double()
    model.tolerance = 0.5
    torch.testing.assert_close(choice.refit(NUMBERS).scores(), before, atol=0, rtol=0)
    copy = pickle.loads(pickle.dumps(choice))
    assert isinstance(copy, Choice)
    assert copy.best == choice.best
    assert "log density" in repr(copy)


def test_a_progress_bar_is_shown(capsys):
    choose(gaussian_model(), NUMBERS, trace_shares=[1.0], strengths=[0.9, 0.5], metric="-MSE", progress=True)
    assert "choose: 2 of 2 fits" in capsys.readouterr().err


BAD = [
    ({"model": mvgp.FullGP(gaussian_model().prior, gaussian_model().likelihood)}, "expected mvgp.TraceGP, got FullGP"),
    ({"model": gaussian_model(penalty=mvgp.TraceBall(1.0))}, "absolute penalty"),
    ({"data": [1, 2]}, "data: expected"),
    ({"trace_shares": ()}, "at least one"),
    ({"trace_shares": (1.0, 1.0)}, "trace_shares: expected different"),
    ({"trace_shares": 1.0}, "trace_shares"),
    ({"trace_shares": (1.5,)}, "from 0 to 1"),
    ({"strengths": [0.1, 0.2]}, "decreasing"),
    ({"strengths": [0.2, 0.2]}, "strengths: expected different"),
    ({"strengths": 0}, "at least one strength"),
    ({"folds": 0}, "at least 2, got 0"),
    ({"folds": "three"}, "list of Split"),
    ({"folds": True}, "list of Split"),
    ({"share": 1.2}, "share"),
    ({"by": "columns"}, "'pairs' or 'rows'"),
    ({"metric": "best"}, "metric: expected"),
    ({"patience": 0}, "patience: expected a positive"),
    ({"max_rank": 1.5}, "max_rank: expected a positive"),
    ({"negatives": 2}, r"expected links \(PositiveUnlabelled\) as data, got ObservedMatrix"),
    ({"data": LINKS, "metric": "AUC", "negatives": "many"}, "negatives: expected a number of sets"),
    ({"seed": -1}, "seed"),
    ({"resume": 3}, "resume: expected a Choice, got int"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_refused(change, message):
    options = {"model": gaussian_model(), "data": NUMBERS, "metric": "-MSE", "progress": False, **change}
    with pytest.raises(InputError, match=message):
        choose(options.pop("model"), options.pop("data"), **options)


def test_a_path_without_a_trace_norm_is_walked_to_its_end():
    options = {"strengths": 5, "lowest": 0.1, "progress": False, "metric": lambda *_: 0.0, "patience": 1, "max_rank": 1}
    choice = choose(gaussian_model(), NUMBERS, trace_shares=[1.0, 0.0], **options)
    walked = [sum(one.trace_share == share for one in choice.records) for share in (1.0, 0.0)]
    assert walked == [2, 5]
