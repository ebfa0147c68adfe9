"""How many files of mvgp take part in what users do most: a reader of that path opens no more than these.

The limits are what there is today (the first version had 39, 50 and more than 100). They go down, but for new
capabilities: one of the files of a fit is the one that shows progress.
"""

import importlib
import sys
import threading
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import mvgp
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.prioritise.cli.commands import app
from tests import randomness

PACKAGE = str(Path(mvgp.__file__).parent)


def files_run(work):
    """The files of mvgp in which a function is called while ``work`` runs."""
    files = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename[len(PACKAGE) + 1 :])

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return files


def model_and_links():
    line = [(node, node + 1) for node in range(11)]
    kernels = (DiffusionKernel(Graph(line, 12)), DiffusionKernel(Graph([*line, (11, 12)], 13)))
    links = mvgp.PositiveUnlabelled([0, 1, 2, 5, 7], [0, 1, 2, 6, 8], shape=(12, 13), weight=0.1)
    likelihood = BipartiteRankingLikelihood(margin=1.0, noise=0.1)
    return mvgp.TraceGP(mvgp.MatrixGP(*kernels), likelihood, strength=0.3, trace_share=0.8), links


def test_a_fit_on_whole_lists():
    model, links = model_and_links()
    assert len(files_run(lambda: model.fit(links))) <= 20


def test_a_fit_and_a_ranked_row():
    model, links = model_and_links()
    assert len(files_run(lambda: model.fit(links).top(0, k=3, exclude=links))) <= 28


@pytest.fixture
def tables(tmp_path):
    generator = randomness.generator(0)
    pairs = {(int(row), int(col)) for row, col in torch.randint(0, 12, (40, 2), generator=generator)}
    (tmp_path / "pairs.tsv").write_text("".join(f"d{row}\tg{col}\n" for row, col in sorted(pairs)))
    for name, letter in (("rows", "d"), ("cols", "g")):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{letter}{node}\t{letter}{node + 1}\n" for node in range(11)))
    return tmp_path


def test_a_ranked_list_from_tables(tables):
    options = {"--pairs": "pairs.tsv", "--row-edges": "rows.tsv", "--col-edges": "cols.tsv"}
    arguments = ["rank", "--row", "d0", "--filters", "none"]
    for option, name in options.items():
        arguments += [option, str(tables / name)]
    outcome = []
    importlib.import_module(
        "mvgp.prioritise.studies"
    )  # a command imports what it needs; loading a file is no run of it
    files = files_run(lambda: outcome.append(CliRunner().invoke(app, arguments)))
    assert outcome[0].exit_code == 0, outcome[0].output
    assert len(files) <= 60, sorted(files)
