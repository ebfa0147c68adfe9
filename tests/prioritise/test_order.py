"""Imports inside the application point one way: a study uses ranked lists and tuning, never the reverse."""

import ast
from pathlib import Path

import mvgp.prioritise

ROOT = Path(mvgp.prioritise.__file__).parent
ORDER = ["tables", "baselines", "auto", "trust", "tuning", "ranking", "studies", "report", "demo", "cli"]


def imported(path):
    """The parts of the application that a file imports, also inside functions."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not 0 < node.level <= len(package) + 1:
            continue
        base = package[: len(package) + 1 - node.level]
        target = [*base, *(node.module or "").split(".")] if node.module else list(base)
        yield from [target[0]] if target else [name.name for name in node.names]


def test_imports_point_downstream():
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for target in imported(path):
            assert ORDER.index(target) <= ORDER.index(part), f"{path}: {part} imports {target}"
