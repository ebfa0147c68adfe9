"""Every notebook runs, in a quick mode, and has its outputs stored."""

import os
import pathlib
import re
import subprocess
import sys

import nbformat
import pytest

EXECUTE = pathlib.Path(__file__).parent / "execute_notebook.py"
FOLDER = pathlib.Path(__file__).parent.parent / "tutorials"
NAMES = [
    "01_compose",
    "02_variances",
    "03_spectral_elastic_net",
    "04_ranking",
    "05_genes",
    "06_hyperparameters",
    "07_extend",
    "08_sums_and_counts",
    "09_own_tables",
]
MOST_BYTES = 1_000_000  # of a notebook: figures that are too fine make the repository grow


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def texts(notebook):
    """What a reader sees as text: (all of it, what went to stderr)."""
    streams = [output for output in outputs(notebook) if output.output_type == "stream"]
    values = [text for output in outputs(notebook) for kind, text in output.get("data", {}).items() if "text/" in kind]
    return "".join(output.text for output in streams) + "".join(values), "".join(
        output.text for output in streams if output.name == "stderr"
    )


def test_the_folder_has_these_notebooks_and_nothing_else():
    assert sorted(path.name for path in FOLDER.iterdir() if path.name != ".ipynb_checkpoints") == [
        f"{name}.ipynb" for name in NAMES
    ]


@pytest.mark.parametrize("name", NAMES)
class TestStored:
    def test_it_is_valid(self, name):
        nbformat.validate(read(name))

    def test_it_was_run_from_top_to_bottom_without_an_error(self, name):
        cells = code_cells(read(name))
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]

    def test_it_shows_what_a_reader_should_see(self, name):
        """Figures, and what to look at in them; no warning, no path of the machine it was run on."""
        notebook = read(name)
        kinds = [kind for cell in code_cells(notebook) for output in cell.outputs for kind in output.get("data", ())]
        assert "image/png" in kinds or "image/svg+xml" in kinds
        printed, warned = texts(notebook)
        assert warned == ""
        assert not re.search(r"/(home|root|tmp|work|Users)/", printed)
        assert "\x1b" not in printed  # colours of a terminal

    def test_it_says_what_to_look_at(self, name):
        figures = sum("image/png" in output.get("data", ()) for output in outputs(read(name)))
        explained = sum(cell.source.count("**What to look at.**") for cell in read(name).cells)
        assert explained >= figures - 1  # one explanation may be for two

    def test_no_cell_is_left_out(self, name):
        """A cell with a tag could be skipped, or fail unnoticed."""
        assert not [cell.metadata.get("tags") for cell in read(name).cells if cell.metadata.get("tags")]

    def test_it_has_a_quick_mode(self, name):
        assert any("MVGP_QUICK" in cell.source for cell in code_cells(read(name)))

    def test_it_begins_with_its_title(self, name):
        first = read(name).cells[0]
        assert first.cell_type == "markdown"
        assert first.source.startswith(f"# {int(name[:2])}. ")

    def test_it_says_what_it_is_about(self, name):
        """How long it takes, the question, and the answer, before anything else."""
        first = read(name).cells[0].source
        places = [
            first.index(part) for part in ("*Time: ", f"{name}.ipynb)", "**Question.** ", "**Answer in short.** ")
        ]
        assert places == sorted(places)

    def test_it_is_small(self, name):
        assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_BYTES

    def test_links_to_other_notebooks_resolve(self, name):
        for cell in read(name).cells:
            for target in (
                re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", cell.source) if cell.cell_type == "markdown" else []
            ):
                assert target.startswith("https://") or (FOLDER / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name, tmp_path):
    """In a process of its own, with the warnings and none of the settings of whoever runs the tests."""
    environment = {**os.environ, "MVGP_QUICK": "1", "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, str(EXECUTE), str(FOLDER / f"{name}.ipynb")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
