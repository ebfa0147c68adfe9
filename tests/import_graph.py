"""The imports of a package, read from its source with ``ast``: nothing is executed, and no way of writing an import is missed.

Seen are ``import a.b``, ``from a import b`` and ``from .. import b`` (a module ``b``, or a name of ``a``), wherever they stand, and
``importlib.import_module`` with the name written out.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class When(Enum):
    """When an import is executed."""

    LOAD = "when the module is loaded"
    CALL = "when a function is called"
    TYPES = "for type checkers only"


@dataclass(frozen=True)
class Import:
    """One module imports another of the same package.

    :param source: full name of the module that imports.
    :param target: full name of the module, or package, that is imported.
    :param when: at load, in a function, or under TYPE_CHECKING.
    :param line: in the source.
    """

    source: str
    target: str
    when: When
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target} {self.when.value}"


def find_modules(root: Path) -> dict[str, Path]:
    """The file of each module below the folder ``root``, by full name; a package has the name of its folder."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def find_imports(root: Path) -> list[Import]:
    """Every import of one module below ``root`` by another."""
    modules = find_modules(root)
    found = []
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node, when in _walk(ast.parse(path.read_text(encoding="utf-8")), When.LOAD):
            for wanted in _targets(node, package, modules):
                target = _nearest(wanted, modules)
                if target is not None and target != name:
                    found.append(Import(name, target, when, node.lineno))
    return found


def _walk(node: ast.AST, when: When) -> Iterator[tuple[ast.stmt | ast.expr, When]]:
    """Statements and expressions below ``node``, each with the time of its execution."""
    for child in ast.iter_child_nodes(node):
        now = when
        if isinstance(node, ast.If) and _is_type_checking(node.test) and child in node.body:
            now = When.TYPES
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and when is When.LOAD:
            now = When.CALL
        if isinstance(child, ast.stmt | ast.expr):
            yield child, now
        yield from _walk(child, now)


def _is_type_checking(test: ast.expr) -> bool:
    """``TYPE_CHECKING`` or ``typing.TYPE_CHECKING``."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _targets(node: ast.stmt | ast.expr, package: str, modules: dict[str, Path]) -> list[str]:
    """Full names that a node imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _absolute("." * node.level + (node.module or ""), package)
        full = [f"{base}.{alias.name}" for alias in node.names]
        return list(dict.fromkeys(name if name in modules else base for name in full))
    if isinstance(node, ast.Call) and _is_import_module(node.func) and node.args:
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return [_absolute(name.value, package)]
    return []


def _is_import_module(function: ast.expr) -> bool:
    return (isinstance(function, ast.Name) and function.id == "import_module") or (
        isinstance(function, ast.Attribute) and function.attr == "import_module"
    )


def _absolute(name: str, package: str) -> str:
    """``..b`` in the package ``p.a`` is ``p.b``."""
    level = len(name) - len(name.lstrip("."))
    if level == 0:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name[level:]])])


def _nearest(name: str, modules: dict[str, Path]) -> str | None:
    """The module, or the one that holds the name; None outside of the package."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def find_cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Groups of nodes that can all be reached from each other, each sorted; none has a single node."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        graph.setdefault(source, set()).add(target)
        graph.setdefault(target, set())
    reached = {node: _reachable(node, graph) for node in graph}
    groups = {tuple(sorted(other for other in reached[node] if node in reached[other])) for node in graph}
    return sorted(list(group) for group in groups if len(group) > 1)


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found, queue = {start}, [start]
    while queue:
        fresh = graph[queue.pop()] - found
        found |= fresh
        queue += fresh
    return found


def imported_once(imports: Iterable[Import], modules: dict[str, Path]) -> list[str]:
    """Modules that exactly one other module needs; packages that list the names of their modules do not count as one."""
    runtime = {(one.source, one.target) for one in imports if one.when is not When.TYPES}
    counts = Counter(target for source, target in runtime if modules[source].name != "__init__.py")
    return sorted(name for name, path in modules.items() if counts[name] == 1 and path.name != "__init__.py")
