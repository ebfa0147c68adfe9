"""The tool that runs the suite on stand-ins for other machines."""

import json

import pytest

from tests import everywhere

pytestmark = pytest.mark.slow


def test_counts_of_the_last_line():
    found = everywhere.counts("FAILED 3 failed things\n1 failed, 12 passed, 2 skipped, 1 error in 3.2s\n")
    assert found == {"passed": 12, "failed": 2, "skipped": 2}
    assert everywhere.counts("") == {"passed": 0, "failed": 0, "skipped": 0}


def test_every_seed_and_every_setting_is_there():
    seeds, settings, _, busy = zip(*everywhere.RUNS, strict=True)
    assert sorted(seeds) == list(range(1, 11))
    values = {(name, value) for one in settings for name, value in one.items()}
    assert values == {
        ("ATEN_CPU_CAPABILITY", "default"), ("ATEN_CPU_CAPABILITY", "avx2"), ("MKL_CBWR", "COMPATIBLE"),
        ("MKL_CBWR", "AVX2"), ("OMP_NUM_THREADS", "2"), ("OMP_WAIT_POLICY", "PASSIVE"),
    }  # fmt: skip
    assert any(busy)


def test_runs_are_noted_told_and_not_repeated(tmp_path, monkeypatch, capsys):
    test = tmp_path / "test_seed.py"
    test.write_text("import os\ndef test_seed():\n    assert os.environ['MVGP_TEST_SEED'] != '2'\n")
    given = ["--notes", str(tmp_path / "notes.jsonl"), "--seeds", "1", "2", "--", str(test), "-p", "no:cacheprovider"]
    assert everywhere.main(given) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert "MVGP_TEST_SEED=1" in first
    assert "1 passed, 0 failed" in first
    assert "0 passed, 1 failed" in second
    assert [json.loads(line)["exit"] for line in (tmp_path / "notes.jsonl").read_text().splitlines()] == [0, 1]
    test.write_text("def test_seed():\n    pass\n")
    assert everywhere.main(given) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("(before)")
    assert "1 passed, 0 failed" in second
    assert len((tmp_path / "notes.jsonl").read_text().splitlines()) == 3
