"""Imports point one way: what each package may import, no cycles, and limits of how finely the source is cut up."""

import pathlib

import pytest

import mvgp
from tests.import_graph import Import, When, find_cycles, find_imports, find_modules, imported_once

# A package imports from the lines above its own, and from no other. Those on one line do not import each other.
LAYERS = [
    ["errors", "hooks", "version"],
    ["checks"],
    ["tensor_checks"],
    ["text", "progress"],
    ["linalg"],
    ["data", "kernels"],
    ["priors"],
    ["likelihoods"],
    ["mean"],
    ["posteriors"],
    ["models"],
    ["metrics"],
    ["hyperparameters"],
    ["storage"],
    ["descriptions", "plot"],
    ["testing"],
    ["botorch", "interchange", "sklearn"],
    ["prioritise"],  # the application; its parts may be in any order that has no cycle
]
APPLICATION = "prioritise"
ENTRY_POINTS = {
    "mvgp",
    "__main__",
}  # the names at top level, `python -m mvgp`: they import anything, nobody imports them
MOST_FILES, MOST_IMPORTED_ONCE, MOST_LINES = 183, 30, 450

ROOT = pathlib.Path(mvgp.__file__).parent
MODULES, IMPORTS = find_modules(ROOT), find_imports(ROOT)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def layer(module):
    """The package right below the root that a module belongs to."""
    return [*module.split("."), module][1]


def package(module):
    """What package cycles are looked for among: the layers, and the parts of the application."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2] if parts[:1] == [APPLICATION] else parts[:1]) or module


def edges(imports, name=lambda module: module):
    """Pairs of different names."""
    pairs = ((name(one.source), name(one.target)) for one in imports)
    return [(source, target) for source, target in pairs if source != target]


def inside(imports):
    """Those that do not start at an entry point."""
    return [one for one in imports if layer(one.source) not in ENTRY_POINTS]


def wrong_way(imports):
    """Imports of something that is not on a line above."""
    return [
        str(one)
        for one in inside(imports)
        if layer(one.target) not in ENTRY_POINTS
        and layer(one.source) != layer(one.target)
        and RANK[layer(one.source)] <= RANK[layer(one.target)]
    ]


def root_imports(imports):
    """Imports of the package itself, for its version or for a name that lives elsewhere."""
    return [str(one) for one in imports if "." not in one.target and layer(one.source) not in ENTRY_POINTS]


class TestThePackage:
    def test_the_table_names_every_package(self):
        assert {layer(name) for name in MODULES} - ENTRY_POINTS == set(RANK)

    def test_no_cycles_among_modules_at_run_time(self):
        assert not find_cycles(edges(one for one in inside(IMPORTS) if one.when is not When.TYPES))

    def test_no_cycles_among_modules_for_type_checkers(self):
        assert not find_cycles(edges(inside(IMPORTS)))

    def test_no_cycles_among_packages(self):
        assert not find_cycles(edges(inside(IMPORTS), package))

    def test_imports_follow_the_table(self):
        if unknown := {layer(name) for name in MODULES} - ENTRY_POINTS - set(RANK):
            pytest.fail(f"not in the table: {sorted(unknown)}")
        assert not wrong_way(IMPORTS)

    def test_nobody_imports_the_root(self):
        """Its version is in the metadata of the installed package; everything else has a module of its own."""
        assert not root_imports(IMPORTS)

    def test_there_are_few_files(self):
        assert len(MODULES) <= MOST_FILES

    def test_few_modules_serve_a_single_other(self):
        once = imported_once(IMPORTS, MODULES)
        assert len(once) <= MOST_IMPORTED_ONCE, once

    def test_files_are_short(self):
        lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
        assert not {name: count for name, count in lines.items() if count > MOST_LINES}


# The guard itself, on small trees -----------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    """Writes a package ``mvgp`` and gives its folder: a text for each file; folders become packages."""

    def write(**files):
        root = tmp_path / "mvgp"
        for name, text in {"__init__": "", **files}.items():
            path = root.joinpath(*name.split("/")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for folder in (path for path in root.rglob("*") if path.is_dir()):
            (folder / "__init__.py").touch()
        return root

    return write


def seen(root):
    """(source, target, when) of every import, without the name of the root."""
    return {
        (one.source.removeprefix("mvgp."), one.target.removeprefix("mvgp."), one.when) for one in find_imports(root)
    }


class TestWhatIsSeen:
    @pytest.mark.parametrize(
        ("text", "targets"),
        [
            ("from .. import b", {"b"}),
            ("from .. import b as c", {"b"}),
            ("from .. import name", {"mvgp"}),
            ("from .. import __version__, b", {"mvgp", "b"}),
            ("from . import y", {"a.y"}),
            ("from . import name", {"a"}),
            ("from .y import name", {"a.y"}),
            ("from ..b import z", {"b.z"}),
            ("from ..b import name", {"b"}),
            ("from ..b.z import (\n    one,\n    two,\n)", {"b.z"}),
            ("from ..b import *", {"b"}),
            ("import mvgp", {"mvgp"}),
            ("import mvgp.b.z as z, os", {"b.z"}),
            ("from mvgp.b import z, name", {"b", "b.z"}),
            ("from mvgp import b", {"b"}),
            ("import importlib\nimportlib.import_module('mvgp.b.z')", {"b.z"}),
            ("from importlib import import_module\nimport_module('..b', __package__)", {"b"}),
            ("import os, mvgpx\nfrom os import path\nfrom mvgpx import b", set()),
            ("'from .. import b'  # from .. import b", set()),
        ],
    )
    def test_however_it_is_written(self, tree, text, targets):
        root = tree(**{"a/x": text, "a/y": "", "b/z": ""})
        assert seen(root) == {("a.x", target, When.LOAD) for target in targets}

    def test_relative_to_a_package_itself(self, tree):
        assert seen(tree(**{"a/__init__": "from . import x\nfrom .. import b", "a/x": "", "b": ""})) == {
            ("a", "a.x", When.LOAD),
            ("a", "b", When.LOAD),
        }

    def test_when_it_is_executed(self, tree):
        text = """
from typing import TYPE_CHECKING
import typing
if TYPE_CHECKING:
    from . import b
else:
    from . import c
if typing.TYPE_CHECKING:
    from . import d
class Class:
    from . import e
    def method(self):
        if self:
            from . import f
        if TYPE_CHECKING:
            from . import g
async def function():
    from . import h
try:
    from . import i
except ImportError:
    from . import j
"""
        found = {target: when for _, target, when in seen(tree(a=text, **dict.fromkeys("bcdefghij", "")))}
        kinds = {"b": When.TYPES, "d": When.TYPES, "g": When.TYPES, "f": When.CALL, "h": When.CALL}
        assert found == {**dict.fromkeys("ceij", When.LOAD), **kinds}

    def test_where_it_is_told(self, tree):
        (found,) = find_imports(tree(a="\nfrom . import b", b=""))
        assert str(found) == "mvgp.a:2 imports mvgp.b when the module is loaded"

    def test_modules_and_packages(self, tree):
        assert set(find_modules(tree(**{"a/b/c": "", "d": ""}))) == {
            "mvgp",
            "mvgp.a",
            "mvgp.a.b",
            "mvgp.a.b.c",
            "mvgp.d",
        }


class TestCycles:
    def test_none(self):
        assert find_cycles([("a", "b"), ("b", "c"), ("a", "c")]) == []

    def test_each_once(self):
        around = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")]
        assert find_cycles(around) == [["a", "b", "c"], ["e", "f"]]

    def test_through_a_function(self, tree):
        root = tree(**{"a/x": "from .. import b", "b": "def f():\n    from .a import x"})
        assert find_cycles(edges(find_imports(root))) == [["mvgp.a.x", "mvgp.b"]]

    def test_of_packages_whose_modules_have_none(self, tree):
        imports = find_imports(tree(**{"a/x": "from ..b import y", "a/z": "", "b/y": "", "b/w": "from ..a import z"}))
        assert find_cycles(edges(imports)) == []
        assert find_cycles(edges(imports, package)) == [["a", "b"]]

    def test_of_parts_of_the_application(self, tree):
        files = {"prioritise/cli/app": "from ..tables import read", "prioritise/tables/read": "from ..cli import app"}
        imports = find_imports(tree(**files))
        assert find_cycles(edges(imports, package)) == [["prioritise.cli", "prioritise.tables"]]


class TestRules:
    @pytest.mark.parametrize(
        ("source", "text", "wrong"),
        [
            ("priors/x", "from ..data import x", False),
            ("priors/x", "from . import y", False),
            ("data/x", "from .. import priors", True),
            ("data/x", "def f():\n    from ..priors import x", True),
            ("data/x", "from ..kernels import x", True),
            ("kernels/x", "from .. import checks", False),
            ("checks", "from . import errors", False),
            ("errors", "from .checks import name", True),
            ("testing/x", "from ..prioritise.cli import app", True),
            ("prioritise/cli/app", "from ...testing import x", False),
            ("__init__", "from . import priors", False),
        ],
    )
    def test_the_table(self, tree, source, text, wrong):
        places = ["data/x", "kernels/x", "priors/x", "priors/y", "testing/x", "prioritise/cli/app", "checks", "errors"]
        assert bool(wrong_way(find_imports(tree(**{**dict.fromkeys(places, ""), source: text})))) == wrong

    @pytest.mark.parametrize(
        ("source", "text", "wrong"),
        [
            ("a/x", "from .. import __version__", True),
            ("a/x", "def f():\n    from .. import __version__", True),
            ("a/x", "import mvgp", True),
            ("a/x", "from .. import b", False),
            ("b", "from . import __version__", True),
            ("__main__", "from . import __version__", False),
        ],
    )
    def test_the_root(self, tree, source, text, wrong):
        assert bool(root_imports(find_imports(tree(**{"a/x": "", "b": "", source: text})))) == wrong

    def test_imported_once(self, tree):
        root = tree(
            **{
                "a/__init__": "from .once import one\nfrom .twice import two",
                "a/once": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .unused import name",
                "a/twice": "from .once import one\nfrom .once import other",
                "a/unused": "from . import twice",
                "b": "from .a.twice import two",
            }
        )
        assert imported_once(find_imports(root), find_modules(root)) == ["mvgp.a.once"]

    def test_an_import_is_named_whole(self):
        assert str(Import("p.a", "p.b", When.CALL, 3)) == "p.a:3 imports p.b when a function is called"
