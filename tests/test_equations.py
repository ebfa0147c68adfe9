"""The table of docs/architecture.md that says where each equation is."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| \((\d+)\) \| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", re.M)
ENTRIES = ROW.findall((ROOT / "docs" / "architecture.md").read_text())


def test_the_table_has_the_equations_of_the_mission():
    assert {number for number, _, _ in ENTRIES} >= {"2", "3", "5", "8", "9", "11"}


@pytest.mark.parametrize(("number", "file", "name"), ENTRIES)
def test_the_equation_is_there(number, file, name):
    """The file defines the name at its top level, and its docstring, or that of the file, cites the equation."""
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    definition = next(node for node in tree.body if isinstance(node, kinds) and node.name == name)
    texts = [ast.get_docstring(definition) or "", ast.get_docstring(tree) or ""]
    cited = re.compile(rf"equations? (?:\(\d+\) and )?\({number}\)|\({number}\)")
    assert any(cited.search(text) for text in texts)
