"""Units in files: what was written comes back, and any damage shows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvgp.errors import InputError, StorageError
from mvgp.prioritise.studies import directory as unit_files
from mvgp.prioritise.studies import tables as tsv
from mvgp.prioritise.studies.directory import STAGES, Outcome, Unit, unit_seed

UNIT = Unit("fit", "sampled_1_0.5", 2, 1)
OUTCOME = Outcome(UNIT, {"scores": np.arange(12, dtype=np.float32).reshape(3, 4)}, {"rank": 3, "gap": float("nan")})
CONTENT = unit_files.to_bytes(OUTCOME, "me")


def test_there_and_back():
    found = unit_files.from_bytes(CONTENT, UNIT, "me")
    assert found.unit == UNIT
    assert found.arrays["scores"].dtype == np.float32
    assert np.array_equal(found.arrays["scores"], OUTCOME.arrays["scores"])
    assert found.info["rank"] == 3
    assert np.isnan(found.info["gap"])


@given(place=st.integers(0, len(CONTENT) - 1), change=st.integers(1, 255))
def test_any_changed_byte_shows(place, change):
    damaged = bytearray(CONTENT)
    damaged[place] ^= change
    with pytest.raises(StorageError):
        unit_files.from_bytes(bytes(damaged), UNIT, "me")


def test_any_changed_byte_of_the_first_line_shows():
    for place in range(unit_files.HEAD):
        damaged = bytearray(CONTENT)
        damaged[place] ^= 1
        with pytest.raises(StorageError):
            unit_files.from_bytes(bytes(damaged), UNIT, "me")


@given(length=st.integers(0, len(CONTENT) - 1))
def test_any_missing_end_shows(length):
    with pytest.raises(StorageError):
        unit_files.from_bytes(CONTENT[:length], UNIT, "me")


def test_a_unit_of_another_study_or_name_shows():
    with pytest.raises(StorageError, match="belongs"):
        unit_files.from_bytes(CONTENT, UNIT, "someone else")
    with pytest.raises(StorageError, match="unit"):
        unit_files.from_bytes(CONTENT, Unit("fit", "sampled_1_0.5", 2, 0), "me")


def test_seeds_differ_and_depend_on_nothing_else():
    every = [
        unit_seed(seed, stage, fold, number, model)
        for seed in (0, 1)
        for stage in STAGES
        for fold in range(5)
        for number in range(10)
        for model in ("", "trace", "ease")
    ]
    assert len(set(every)) == len(every)
    assert unit_seed(0, "fit", 1, 2, "ease") == unit_seed(0, "fit", 1, 2, "ease")


@given(
    st.lists(st.tuples(st.text(max_size=8), st.integers(0, 9), st.floats(allow_infinity=False, width=32)), max_size=5)
)
def test_tables_there_and_back(tmp_path_factory, lines):
    table = [{"col_name": name, "rank": rank, "score": score} for name, rank, score in lines]
    file = tmp_path_factory.mktemp("table") / "one.tsv"
    file.write_text(tsv.to_text(["col_name", "rank", "score"], table), encoding="utf-8")
    found = tsv.from_file(file)
    assert [entry["col_name"] for entry in found] == [name for name, _, _ in lines]
    assert [entry["rank"] for entry in found] == [rank for _, rank, _ in lines]
    assert np.allclose([e["score"] for e in found], [score for _, _, score in lines], rtol=1e-9, equal_nan=True)


@pytest.mark.parametrize("text", ["model\tmean\ntrace\n", "model\tmean\ntrace\tgood\n", "model\tfold\ntrace\t\n"])
def test_a_malformed_table_is_told_with_its_line(tmp_path, text):
    file = tmp_path / "one.tsv"
    file.write_text(text)
    with pytest.raises(InputError, match="line 2"):
        tsv.from_file(file)
