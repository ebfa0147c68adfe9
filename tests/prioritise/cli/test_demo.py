"""The demo, with a small set of links in the place of HPO's."""

import csv

import pytest
import torch

import mvgp.prioritise.demo
from mvgp.hyperparameters import split_pairs
from mvgp.kernels import Graph
from mvgp.prioritise.tables import LinkSet
from tests import randomness
from tests.prioritise.cli.runner import command

M, N = 24, 40


@pytest.fixture
def small(monkeypatch):
    generator = randomness.generator(0)
    chosen = torch.rand(M, N, generator=generator) < 0.3
    chosen &= torch.arange(M).unsqueeze(1) % 2 == torch.arange(N) % 2
    graphs = [Graph([(i, (i + 2) % size) for i in range(size)], size) for size in (M, N)]
    names = [f"disease {m}" for m in range(M)], [f"GENE{n}" for n in range(N)]
    links = LinkSet(range(M), range(N), *chosen.nonzero(as_tuple=True), *graphs, *names, "a made-up set")
    monkeypatch.setattr(mvgp.prioritise.demo, "hpo_links", lambda: links)
    return links


@pytest.mark.slow
def test_demo(small, tmp_path, capsysbinary):
    found = command(capsysbinary, "demo", "--out", tmp_path / "demo", "--jobs", "1")
    assert found.code == 0, found.err
    assert "a made-up set" in found.err
    assert "Please cite" in found.err
    for word in ("popularity", "neighbours", "prodige", "full", "whole", "MAP@100", "P(top 20)", "Held-out genes"):
        assert word in found.out
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "Genes of OMIM diseases" in page
    with open(tmp_path / "demo" / "tables" / "candidates.tsv", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert len(lines) == 20
    split = split_pairs(small.links(), folds=5, seed=0)[0]
    row = int(lines[0]["row_id"])
    held_out = set(split.held_out.cols[split.held_out.rows == row].tolist())
    assert {int(line["col_id"]) for line in lines if line["held_out"] == "1"} <= held_out
    known = set(split.train.cols[split.train.rows == row].tolist())
    assert not known & {int(line["col_id"]) for line in lines}
    again = command(capsysbinary, "demo", "--out", tmp_path / "demo", "--jobs", "1", "--row", "disease 3", "--quiet")
    assert again.code == 0
    assert again.err == ""
    assert "3  disease 3" in again.out


def test_an_unknown_disease_costs_no_work(small, tmp_path, capsysbinary):
    found = command(capsysbinary, "demo", "--out", tmp_path / "demo", "--row", "nobody", "--quiet")
    assert found.code == 2
    assert "nobody" in found.err
    assert not (tmp_path / "demo").exists()


def test_the_example_has_something_to_find(small):
    split = split_pairs(small.links(), folds=5, seed=0)[0]
    row = mvgp.prioritise.demo.example_row(small, split)
    assert int((split.train.rows == row).sum()) >= 2
    assert int((split.held_out.rows == row).sum()) == int(torch.bincount(split.held_out.rows).max())
