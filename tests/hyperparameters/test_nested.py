import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import Split, nested_cross_validation, split_pairs, split_rows
from tests.hyperparameters.planted import cells, gaussian_model, make_links, make_numbers, ranking_model

NUMBERS = make_numbers()
GRID = {"trace_shares": (1.0, 0.9), "strengths": [0.5, 0.15], "progress": False}


class Spied(mvgp.TraceGP):
    """Notes the cells of the data of every path."""

    events = []  # noqa: RUF012

    def path(self, data, *args, **options):
        Spied.events.append(("fit", cells(data)))
        return super().path(data, *args, **options)


def spying(posterior, train, held_out):
    Spied.events.append(("judge", cells(train) | cells(held_out)))
    return -(posterior.mean(held_out.rows, held_out.cols) - held_out.values).square().mean()


@pytest.mark.slow
@pytest.mark.parametrize(("by", "split"), [("pairs", split_pairs), ("rows", split_rows)])
def test_the_choice_never_sees_the_outer_test_pairs(by, split):
    Spied.events.clear()
    found = nested_cross_validation(
        gaussian_model(Spied, tolerance=1e-3), NUMBERS, 2, folds=2, by=by, metric=spying, **GRID
    )
    events = iter(Spied.events)
    for outer in split(NUMBERS, folds=2):
        hidden = cells(outer.held_out)
        inner = [next(events) for _ in range(2 * 2 * (1 + 2) + 1)]  # shares x folds x (a path, 2 judged), and the refit
        assert [kind for kind, _ in inner].count("fit") == 5
        for _, seen in inner:
            assert seen
            assert not seen & hidden
        assert inner[-1] == ("fit", cells(outer.train))
        assert next(events) == ("judge", cells(NUMBERS))  # once, at the very end
    assert next(events, None) is None
    assert len(found.folds) == 2


@pytest.mark.slow
def test_the_choice_does_not_depend_on_the_outer_test_values():
    outer = split_pairs(NUMBERS, share=0.3)[0]
    spoiled = Split(outer.train, outer.held_out.with_values(outer.held_out.values + 100))
    one, two = (
        nested_cross_validation(gaussian_model(tolerance=1e-3), NUMBERS, [split], metric="-MSE", **GRID)
        for split in (outer, spoiled)
    )
    assert one.folds[0].choice.records == two.folds[0].choice.records
    assert one.folds[0].choice.chosen == two.folds[0].choice.chosen
    assert two.mean < one.mean - 1000


@pytest.mark.slow
def test_scores_choices_and_tables():
    options = {"metric": "-MSE", **GRID, "trace_shares": (0.9,), "strengths": [0.5, 0.2]}
    found = nested_cross_validation(gaussian_model(tolerance=1e-3), NUMBERS, 3, **options)
    assert len(found.scores) == 3
    assert found.mean == pytest.approx(sum(found.scores) / 3)
    assert found.standard_error == pytest.approx(torch.tensor(found.scores).double().std().item() / 3**0.5)
    frame = found.to_frame()
    assert list(frame.columns) == ["fold", "trace_share", "strength", "validation", "-MSE"]
    for outer, fold in zip(split_pairs(NUMBERS, folds=3), found.folds, strict=True):
        assert len(fold.choice.records) == 2
        posterior = fold.choice.refit(outer.train)
        error = posterior.mean(outer.held_out.rows, outer.held_out.cols) - outer.held_out.values
        assert fold.score.value == pytest.approx(-error.square().mean().item())
    again = nested_cross_validation(gaussian_model(tolerance=1e-3), NUMBERS, 3, **options)
    assert again.scores == found.scores
    assert "-MSE" in repr(found)


@pytest.mark.slow
def test_links_with_negatives_and_one_outer_split():
    found = nested_cross_validation(
        ranking_model(tolerance=1e-3), make_links(), 1, outer_share=0.3, metric="AUC", negatives=2, **GRID
    )
    assert found.mean > 0.75
    assert found.standard_error == found.folds[0].score.standard_error > 0


def test_bad_input_is_refused():
    with pytest.raises(InputError, match=r"expected mvgp.TraceGP"):
        nested_cross_validation(None, NUMBERS)
    with pytest.raises(InputError, match="at most 30, the number of rows, got 31"):
        nested_cross_validation(gaussian_model(tolerance=1e-3), NUMBERS, 31, by="rows", metric="-MSE")


def test_inner_splits_cannot_be_given():
    """They would hold pairs of the outer test parts."""
    inner = split_pairs(NUMBERS, share=0.2, seed=5)
    with pytest.raises(InputError, match="folds: expected a whole number"):
        nested_cross_validation(gaussian_model(tolerance=1e-3), NUMBERS, 2, folds=inner, metric="-MSE", **GRID)
