"""Everything readable is executed: README, docs, and the examples in docstrings."""

import doctest
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import mvgp

ROOT = pathlib.Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCKS = [
    (page, number, code)
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
MODULES = sorted(info.name for info in pkgutil.walk_packages(mvgp.__path__, "mvgp."))


def test_nothing_is_left_out():
    """Every fence that says python, however it is written, is one of the blocks that are executed."""
    fences = re.compile(r"^[ \t]*(?:```|~~~|:::) *\{?(?:python|code-cell)", re.MULTILINE)
    assert sum(len(fences.findall(page.read_text())) for page in PAGES) == len(BLOCKS)
    assert len(BLOCKS) >= 24
    assert len(MODULES) >= 30


@pytest.mark.parametrize(("page", "number", "code"), BLOCKS, ids=[f"{p.name}-{n}" for p, n, _ in BLOCKS])
def test_code_blocks_run(page, number, code, tmp_path):
    """In a process of their own, as a reader would."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_example_is_short_and_the_commands_are_shown():
    text = (ROOT / "README.md").read_text()
    lines = [line for line in BLOCKS[0][2].splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 15
    assert "make demo" in text
    assert "make test" in text


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


def test_links_between_pages_resolve():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_is_documented():
    packages = [
        mvgp,
        *(
            importlib.import_module(f"mvgp.{p}")
            for p in (
                "kernels",
                "likelihoods",
                "linalg",
                "metrics",
                "solvers",
                "priors",
                "posteriors",
                "evidence",
                "storage",
                "models",
                "selection",
            )
        ),
    ]
    for package in packages:
        for name in package.__all__:
            if name != "__version__":
                assert (getattr(package, name).__doc__ or "").strip(), f"{package.__name__}.{name}"


def test_imports_point_downstream():
    """data and kernels stand on linalg; priors on those; posteriors on priors; models on posteriors."""
    order = [
        "errors",
        "linalg",
        "data",
        "kernels",
        "likelihoods",
        "solvers",
        "priors",
        "posteriors",
        "evidence",
        "storage",
        "models",
        "metrics",
        "selection",
        "datasets",
        "baselines",
        "studies",
        "reports",
        "prioritise",
        "testing",
    ]
    rank = {name: place for place, name in enumerate(order)}
    rank["data"] = rank["kernels"]  # side by side
    for path in (ROOT / "mvgp").rglob("*.py"):
        package = path.relative_to(ROOT / "mvgp").parts[0].removesuffix(".py")
        if package not in rank:
            continue
        for target in re.findall(r"^\s*from \.\.(\w+)", path.read_text(), re.MULTILINE):
            assert rank[target] <= rank[package], f"{path}: {package} imports {target}"
