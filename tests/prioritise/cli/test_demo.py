"""The demo, with a small set of links in the place of HPO's."""

import csv
import re

import pytest
import torch

from mvgp.hyperparameters import split_pairs
from mvgp.kernels import Graph
from mvgp.metrics import ranking_scores
from mvgp.prioritise import demo
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.studies import Study, run_study
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
    monkeypatch.setattr(demo, "hpo_links", lambda: links)
    return links


@pytest.mark.slow
def test_demo(small, tmp_path, capsysbinary):
    found = command(capsysbinary, "demo", "--out", tmp_path / "demo", "--jobs", "1")
    assert found.code == 0, found.err
    assert "a made-up set" in found.err
    assert "Please cite" in found.err
    for word in ("auto", "popularity", "neighbours", "propagation", "katz", "MAP@100", "P(top 20)", "Hidden genes"):
        assert word in found.out
    assert len([line for line in found.out.splitlines() if line.startswith("- ")]) == 3
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "Genes of OMIM diseases" in page
    with open(tmp_path / "demo" / "tables" / "candidates.tsv", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert len(lines) == 20
    split = split_pairs(small.links(), folds=5, seed=0)[0]
    row = int(lines[0]["row_id"])
    held_out = set(split.held_out.cols[split.held_out.rows == row].tolist())
    assert {int(line["col_id"]) for line in lines if line["held_out"] == "1"} <= held_out
    shown = re.search(r"Hidden genes.*: (GENE.*)", found.out)[1]
    places = {name: int(place) for name, place in re.findall(r"(GENE\d+) \(rank (\d+)\)", shown)}
    assert set(places) == {f"GENE{col}" for col in held_out}
    assert all(places[line["col_name"]] == int(line["rank"]) for line in lines if line["held_out"] == "1")
    assert list(places.values()) == sorted(places.values())
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


def test_findings_are_those_of_the_study(small, tmp_path):
    study = run_study(small, Study.from_dict({**demo.QUICK, "k": 5}), tmp_path, progress=False)
    split = split_pairs(small.links(), folds=5, seed=0)[0]
    first, second, third = demo.findings(study, split, "Gout", [2, 17])
    scores = ranking_scores(Popularity().fit(split.train), split.held_out, exclude=split.train, k=5)
    hits = 5 * scores.per_task("P@5").nansum() / len(split.held_out)
    assert f"popularity {float(hits):.0%}" in first
    assert f"of the {len(split.held_out)} hidden genes among the first 5 of {N}" in first
    best = max(demo.BASELINES, key=lambda name: study.mean(name, "MAP@5"))
    assert best in second
    assert third == f"2 hidden genes of Gout: ranks 2, 17 of {N} genes"
    assert demo.findings(study, split, "Gout", [])[2] == "no gene of Gout was hidden"


def test_the_example_has_something_to_find(small):
    split = split_pairs(small.links(), folds=5, seed=0)[0]
    row = demo.example_row(small, split)
    assert int((split.train.rows == row).sum()) >= 2
    assert int((split.held_out.rows == row).sum()) == int(torch.bincount(split.held_out.rows).max())


def test_a_quick_demo_has_the_diseases_with_the_most_genes(small):
    few = demo.few_diseases(small, 10)
    degrees = torch.bincount(small.rows, minlength=M)
    assert few.shape[0] == 10
    assert sorted(torch.bincount(few.rows).tolist()) == degrees.sort().values[-10:].tolist()
    assert int(torch.bincount(few.cols, minlength=few.shape[1]).min()) > 0
