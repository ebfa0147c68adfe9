import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import Split, split_pairs, split_rows
from mvgp.hyperparameters.splits import make_splits
from tests.hyperparameters.planted import cells


def names(size, letter):
    return [f"{letter}{i}" for i in range(size)]


@st.composite
def datasets(draw):
    m, n = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    found = draw(st.lists(st.integers(0, m * n - 1), min_size=1, max_size=m * n, unique=True))
    rows, cols = torch.tensor(found) // n, torch.tensor(found) % n
    options = {"row_names": names(m, "r"), "col_names": names(n, "c")}
    if draw(st.booleans()):
        return mvgp.PositiveUnlabelled(rows, cols, (m, n), 0.3, **options)
    values = torch.tensor(found).double() + 0.5  # says which cell it belongs to
    weights = values * 2 if draw(st.booleans()) else None
    return mvgp.ObservedMatrix(rows, cols, values, (m, n), weights=weights, **options)


def check_parts(data, split):
    for part in (split.train, split.held_out):
        assert type(part) is type(data)
        assert (part.shape, part.row_names, part.col_names) == (data.shape, data.row_names, data.col_names)
        key = part.rows * data.shape[1] + part.cols
        if isinstance(part, mvgp.PositiveUnlabelled):
            assert part.weight == data.weight
        else:
            assert (part.values == key + 0.5).all()
            assert (part.weights is None) == (data.weights is None)
            assert part.weights is None or (part.weights == 2 * part.values).all()
    assert not cells(split.train) & cells(split.held_out)
    assert cells(split.train) | cells(split.held_out) == cells(data)


@pytest.mark.slow
@given(datasets(), st.integers(2, 8), st.integers(0, 9))
def test_folds_partition_the_pairs(data, folds, seed):
    if folds > len(data):
        with pytest.raises(InputError, match="one would be empty"):
            split_pairs(data, folds=folds, seed=seed)
        return
    splits = split_pairs(data, folds=folds, seed=seed)
    assert len(splits) == folds
    for split in splits:
        check_parts(data, split)
    sizes = [len(split.held_out) for split in splits]
    assert sum(sizes) == len(data)  # and by the union below, each pair once
    assert max(sizes) - min(sizes) <= 1
    assert set().union(*(cells(split.held_out) for split in splits)) == cells(data)


@pytest.mark.slow
@given(datasets(), st.integers(2, 5), st.integers(0, 9))
def test_folds_partition_the_rows(data, folds, seed):
    rows = set(data.rows.tolist())
    if folds > len(rows):
        with pytest.raises(InputError, match="the number of rows"):
            split_rows(data, folds=folds, seed=seed)
        return
    splits = split_rows(data, folds=folds, seed=seed)
    seen = []
    for split in splits:
        check_parts(data, split)
        held_out = set(split.held_out.rows.tolist())
        assert not held_out & set(split.train.rows.tolist())
        seen += sorted(held_out)
    assert sorted(seen) == sorted(rows)


@pytest.mark.slow
@given(datasets(), st.floats(0.05, 0.95), st.sampled_from([split_pairs, split_rows]))
def test_a_share_is_held_out(data, share, split):
    count = len(data) if split is split_pairs else len(set(data.rows.tolist()))
    if not 0 < round(share * count) < count:
        with pytest.raises(InputError, match="part empty"):
            split(data, share=share)
        return
    (found,) = split(data, share=share)
    check_parts(data, found)
    held_out = found.held_out.rows if split is split_pairs else found.held_out.rows.unique()
    assert len(held_out) == round(share * count)


@pytest.mark.parametrize("split", [split_pairs, split_rows])
def test_the_seed_decides(split):
    data = mvgp.ObservedMatrix.from_dense(torch.arange(60.0).reshape(10, 6))
    one, same, other = (
        [sorted(cells(part.held_out)) for part in split(data, folds=3, seed=seed)] for seed in (4, 4, 5)
    )
    assert one == same
    assert one != other


def test_splits_can_be_given():
    data = mvgp.ObservedMatrix.from_dense(torch.arange(20.0).reshape(4, 5))
    splits = split_pairs(data, share=0.3)
    assert make_splits(data, "pairs", splits, 0.2, 0) == splits
    assert len(make_splits(data, "rows", 1, 0.5, 0)[0].held_out) == 10
    assert len(make_splits(data, "rows", 4, 0.5, 0)) == 4


LINKS = mvgp.PositiveUnlabelled([0, 1, 2], [0, 1, 2], (3, 3))
OTHER = mvgp.PositiveUnlabelled([0], [0], (3, 4))
BAD = [
    (lambda: split_pairs([1], folds=2), "data: expected an ObservedMatrix"),
    (lambda: split_pairs(LINKS), "either folds or share"),
    (lambda: split_pairs(LINKS, folds=2, share=0.5), "either folds or share"),
    (lambda: split_pairs(LINKS, folds=1), "at least 2, got 1"),
    (lambda: split_pairs(LINKS, folds=True), "got True"),
    (lambda: split_rows(LINKS, share=1.0), "between 0 and 1, got 1.0"),
    (lambda: split_rows(LINKS, share=0.1), "held-out part empty"),
    (lambda: split_rows(LINKS, share=0.9), "training part empty"),
    (lambda: split_rows(LINKS, folds=2, seed=-1), "seed"),
    (lambda: make_splits(LINKS, "cells", 2, 0.5, 0), "'pairs' or 'rows', got 'cells'"),
    (lambda: make_splits(LINKS, "pairs", [], 0.5, 0), "list of Split, got \\[\\]"),
    (lambda: make_splits(LINKS, "pairs", [Split(LINKS, OTHER)], 0.5, 0), r"folds\[0\].held_out.*\(3, 4\)"),
    (lambda: make_splits(LINKS, "pairs", [Split(LINKS, LINKS)], 0.5, 0), r"got \(0, 0\) in both"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
