"""The root of the package: few names, subpackages as attributes, and nothing heavy before it is used."""

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

import mvgp

ROOT = pathlib.Path(mvgp.__file__)

FRESH = """
import sys
import mvgp
assert "torch" not in sys.modules and "gpytorch" not in sys.modules
assert mvgp.metrics.auc([[0.5, 0.1]], ([0], [0])).tolist() == [1.0]
assert "mvgp.prioritise" not in sys.modules and "mvgp.testing" not in sys.modules
assert mvgp.testing.Contract and mvgp.kernels.Graph and mvgp.hyperparameters.choose and mvgp.prioritise.prioritise
"""

SAVE = """
import sys
import gpytorch, torch
from mvgp.data import ObservedMatrix
from mvgp.kernels import PrecomputedKernel
from mvgp.models import FullGP
from mvgp.priors import MatrixGP
kernel = PrecomputedKernel(torch.eye(2, dtype=torch.float64))
model = FullGP(MatrixGP(kernel, kernel), gpytorch.likelihoods.GaussianLikelihood())
posterior = model.fit(ObservedMatrix([0, 1], [0, 1], [1.0, 2.0], (2, 2)))
assert "mvgp.storage" not in sys.modules
posterior.save(sys.argv[1])
import mvgp
assert torch.equal(mvgp.load(sys.argv[1]).scores(), posterior.scores())
"""


def test_names_at_the_top_are_few_and_are_those_of_their_subpackages():
    assert len(mvgp.__all__) <= 20
    for name in set(mvgp.__all__) - {"__version__"}:
        home = importlib.import_module(f"mvgp.{mvgp._HOME_OF[name]}")
        assert name in home.__all__
        assert getattr(mvgp, name) is getattr(home, name)
    assert set(mvgp.__all__) | mvgp._SUBPACKAGES <= set(dir(mvgp))


def test_what_type_checkers_see_is_what_there_is():
    (block,) = [node for node in ast.parse(ROOT.read_text()).body if isinstance(node, ast.If)]
    seen = {(alias.name, node.module) for node in block.body for alias in node.names}
    assert seen == set(mvgp._HOME_OF.items())
    assert {name for name, _ in seen} | {"__version__"} == set(mvgp.__all__)


def test_every_package_is_an_attribute():
    packages = {path.parent.name for path in ROOT.parent.glob("*/__init__.py")}
    assert packages - {"checks"} == mvgp._SUBPACKAGES
    for name in packages:
        assert getattr(mvgp, name).__name__ == f"mvgp.{name}"


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="module 'mvgp' has no attribute 'nothing'"):
        _ = mvgp.nothing


@pytest.mark.parametrize("script", [FRESH, SAVE], ids=["lazy", "save"])
def test_in_a_fresh_process(script, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT.parents[1])
    assert done.returncode == 0, done.stderr
