"""A small round of hostile files: refused, or loaded with answers to every question. The large one is a benchmark."""

import pytest
import torch

import mvgp
from mvgp.errors import StorageError
from tests.storage import forgery, hostile

pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
SOME = (
    "full",
    "full, weighted",
    "full, cg, single",
    "trace, features",
    "trace, biases",
    "factor",
    "whole lists beyond the limit",
    "no covariance",
    "scaled",
    "kernel: precomputed",
    "kernel: nested",
    "kernel: diffusion, polynomial",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def saved(folder):
    return hostile.save_all(folder, SOME)


@pytest.mark.slow
def test_files_as_they_are(folder, saved):
    assert {one.name for one in saved} == set(SOME)
    for one in saved:
        assert hostile.try_file(folder / "file", one, one.data) == ("equal", ""), one.name
        again = forgery.built(one.manifest, one.arrays)
        assert hostile.try_file(folder / "file", one, again) == ("equal", ""), one.name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_round(folder, saved, seed):
    found = hostile.run(folder, saved, range(100), seed, limits=False)  # no clocks in tests
    assert found.failures == []
    assert found.outcomes["refused"] > 50


@pytest.mark.slow
def test_a_round_knows_a_failure(folder, saved, monkeypatch):
    """What it is there for."""
    one = saved[0]

    def failing(path):
        raise KeyError("raw")

    monkeypatch.setattr(mvgp, "load", failing)
    assert hostile.try_file(folder / "file", one, one.data)[0] == "FAILED"
    monkeypatch.undo()
    loaded = mvgp.load(folder / "file")
    loaded.coefficients.values.fill_(torch.nan)
    monkeypatch.setattr(mvgp, "load", lambda path: loaded)
    assert hostile.try_file(folder / "file", one, one.data)[0] == "FAILED"

    def refusing(path):
        raise StorageError("no")

    monkeypatch.setattr(mvgp, "load", refusing)
    assert hostile.try_file(folder / "file", one, one.data)[0] == "refused"
