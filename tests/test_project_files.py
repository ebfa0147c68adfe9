"""What lies at the root agrees with the package: versions, commands, workflows, templates."""

import pathlib
import re
import tomllib

import pytest
import yaml

import mvgp

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def workflow(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def commands():
    """(file, target) of every ``make target`` that is mentioned."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".github" / "pull_request_template.md", *WORKFLOWS]
    pages += sorted((ROOT / "docs").glob("*.md"))
    return [
        (page.name, target)
        for page in pages
        for target in re.findall(
            r"(?:^|`|run: )make ([\w-]+)(?=`| +#| PYTHON| [a-z]+`|$)", page.read_text(), re.MULTILINE
        )
    ]


def test_every_extra_is_on_the_installation_page():
    table = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "installation.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(PROJECT["project"]["optional-dependencies"])


def test_commands_that_are_mentioned_exist():
    assert {"quick", "test", "lint", "docs", "bench", "bench-quick", "demo"} <= TARGETS
    assert len(commands()) > 10
    assert not [(page, target) for page, target in commands() if target not in TARGETS]


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == mvgp.__version__
    assert f"## {mvgp.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version = {{{mvgp.__version__}}}" in (ROOT / "docs" / "citing.md").read_text()


def test_the_paper_is_cited():
    (paper,) = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    assert paper["title"] in " ".join((ROOT / "README.md").read_text().split())
    assert [author["family-names"] for author in paper["authors"]] == ["Koyejo", "Lee", "Ghosh"]


def test_tests_run_on_what_is_promised():
    matrix = workflow("tests")["jobs"]["test"]["strategy"]["matrix"]
    promised = [text.split(" :: ")[-1] for text in PROJECT["project"]["classifiers"] if ":: 3." in text]
    assert matrix["python"] == promised
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]


def test_a_release_needs_no_token():
    publish = workflow("release")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"


@pytest.mark.parametrize("path", [*WORKFLOWS, *FORMS], ids=lambda path: path.stem)
def test_forms_and_workflows_can_be_read(path):
    found = yaml.safe_load(path.read_text())
    if path.parent.name == "ISSUE_TEMPLATE" and path.stem != "config":
        assert {"name", "description", "body"} <= set(found)
    if path in WORKFLOWS:
        assert found["permissions"] == {"contents": "read"}


def test_hooks_are_those_of_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff-check", "ruff-format", "mypy"]
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
