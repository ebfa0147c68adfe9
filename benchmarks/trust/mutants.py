"""Small changes of a program, one at a time: where they can be made in a file, and how one is made.

Only the bodies of functions are changed: not documentation, annotations, decorators, default values, texts of errors and
constants of modules.
"""

from __future__ import annotations

import ast
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
Change = Callable[[], None]


@dataclass(frozen=True)
class Mutant:
    """One change.

    :param path: of the file, relative to the root.
    :param number: among the changes of the file.
    :param line: where it is.
    :param function: the outermost function it is in, with its classes, and the line where that begins.
    :param before: the text of the line, stripped.
    :param what: the change, in words.
    """

    path: str
    number: int
    line: int
    function: tuple[str, int]
    before: str
    what: str

    @property
    def name(self) -> str:
        """Which change it is, as long as the line stays; line numbers may move."""
        return f"{self.path}: {self.function[0]}: {self.before}: {self.what}"


class Finder:
    """Every change of a tree; ``changes[k]`` makes the k-th one in the tree itself."""

    def __init__(self, tree: ast.Module) -> None:
        self.changes: list[tuple[ast.AST, tuple[str, int], str, Change]] = []
        for node, name in functions(tree):
            self.function = name, first_line(node)
            if isinstance(node, ast.Lambda):
                self._visit(node.body, node, "body", None)
            else:
                self._block(node, "body")

    def _add(self, node: ast.AST, what: str, change: Change) -> None:
        self.changes.append((node, self.function, what, change))

    def _block(self, owner: ast.AST, name: str) -> None:
        for at, statement in enumerate(getattr(owner, name)):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # documentation
            dropped = isinstance(statement, ast.AugAssign | ast.Continue | ast.Break | ast.Raise) or (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            )
            if dropped:
                body = getattr(owner, name)
                self._add(
                    statement,
                    "dropped",
                    lambda b=body, at=at, old=statement: b.__setitem__(at, ast.copy_location(ast.Pass(), old)),
                )
            self._visit(statement, owner, name, at)

    def _visit(self, node: ast.AST, owner: ast.AST, name: str, at: int | None) -> None:
        def put(new: ast.AST) -> None:
            new = ast.copy_location(new, node)
            if at is None:
                setattr(owner, name, new)
            else:
                getattr(owner, name)[at] = new

        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Global):
            return
        self._here(node, put)
        for field, value in ast.iter_fields(node):
            if field in (
                "annotation",
                "returns",
                "decorator_list",
                "type_comment",
                "defaults",
                "kw_defaults",
                "ctx",
                "slice_",
            ) or (isinstance(node, ast.arguments)):
                continue
            if isinstance(value, list):
                if value and isinstance(value[0], ast.stmt):
                    self._block(node, field)
                else:
                    for index, part in enumerate(value):
                        if isinstance(part, ast.AST):
                            self._visit(part, node, field, index)
            elif isinstance(value, ast.AST):
                self._visit(value, node, field, None)

    def _here(self, node: ast.AST, put: Callable[[ast.AST], None]) -> None:
        """Changes of a node itself."""
        if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
            if not (isinstance(node, ast.BinOp) and _is_text(node)):
                new = OPERATORS[type(node.op)]
                self._add(node, f"{_word(node.op)} to {_word(new())}", lambda: setattr(node, "op", new()))
        elif isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                for new in COMPARISONS.get(type(operator), ()):
                    what = f"{_word(operator)} to {_word(new())}"
                    self._add(node, what, lambda new=new, index=index: node.ops.__setitem__(index, new()))
        elif isinstance(node, ast.BoolOp):
            new = ast.Or if isinstance(node.op, ast.And) else ast.And
            self._add(node, "and to or" if new is ast.Or else "or to and", lambda: setattr(node, "op", new()))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            self._add(node, f"{_word(node.op)} dropped", lambda: put(node.operand))
        elif isinstance(node, ast.Constant):
            self._constant(node, put)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                new_name = CALLS[node.func.id]
                self._add(node, f"{node.func.id} to {new_name}", lambda: setattr(node.func, "id", new_name))
            two = len(node.args) >= 2 and not any(isinstance(part, ast.Starred) for part in node.args[:2])
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            if two and ast.dump(node.args[0]) != ast.dump(node.args[1]) and called not in ("isinstance", *CALLS):
                self._add(node, "first two arguments exchanged", lambda: node.args.insert(0, node.args.pop(1)))
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(
            node.test, ast.Compare | ast.BoolOp | ast.Constant
        ):
            self._add(node, "condition negated", lambda: setattr(node, "test", _negated(node.test)))
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            self._add(node, "returns None", lambda: setattr(node, "value", ast.copy_location(ast.Constant(None), node)))

    def _constant(self, node: ast.Constant, put: Callable[[ast.AST], None]) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, f"{value} to {not value}", lambda: put(ast.Constant(not value)))
        elif isinstance(value, int | float):
            new = value + 1 if isinstance(value, int) else (2 * value or 1.0)
            self._add(node, f"{value} to {new}", lambda: put(ast.Constant(new)))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    texts = ast.JoinedStr, ast.Constant
    return any(
        isinstance(part, texts) and isinstance(getattr(part, "value", ""), str) for part in (node.left, node.right)
    )


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


WORDS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**", "BitAnd": "&", "BitOr": "|",
    "LShift": "<<", "RShift": ">>", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!=", "Is": "is",
    "IsNot": "is not", "In": "in", "NotIn": "not in", "Not": "not", "USub": "minus",
}  # fmt: skip


def _word(operator: ast.AST) -> str:
    return WORDS[type(operator).__name__]


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[ast.FunctionDef | ast.Lambda, str]]:
    """Functions of a module and methods of its classes, with their names; not those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, f"{prefix}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Lambda):
            yield node, f"{prefix}<lambda>"
        elif isinstance(node, ast.stmt | ast.expr | ast.excepthandler | ast.keyword):
            yield from functions(node, prefix)


def first_line(node: ast.AST) -> int:
    """As the code object has it: decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno


def mutants(root: Path, path: str) -> list[Mutant]:
    """Every change of a file."""
    text = (root / path).read_text()
    lines, found, names = text.splitlines(), [], Counter()
    for number, (node, function, what, _) in enumerate(Finder(ast.parse(text)).changes):
        before = lines[node.lineno - 1].strip()
        names[function[0], before, what] += 1
        count = names[function[0], before, what]  # the same change in another place of the same line
        found.append(Mutant(path, number, node.lineno, function, before, f"{what} ({count})" if count > 1 else what))
    return found


def codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Functions and methods of a compiled module by name and line; not those that share both."""
    found: dict[tuple[str, int], types.CodeType] = {}
    twice = set()
    for part in code.co_consts:
        if not isinstance(part, types.CodeType):
            continue
        inside = {(part.co_qualname, part.co_firstlineno): part} if part.co_flags & 1 else codes(part)
        twice |= found.keys() & inside.keys()
        found.update(inside)
    return {key: value for key, value in found.items() if key not in twice}


def mutated(root: Path, mutant: Mutant) -> tuple[tuple[str, int], types.CodeType] | None:
    """The function that a change alters, and its new code; None if the compiler makes the same of it."""
    text, filename = (root / mutant.path).read_text(), str(root / mutant.path)
    before = codes(compile(text, filename, "exec", dont_inherit=True))
    tree = ast.parse(text)
    Finder(tree).changes[mutant.number][3]()
    after = codes(compile(ast.fix_missing_locations(tree), filename, "exec", dont_inherit=True))
    changed = [key for key in before if key in after and before[key] != after[key]]
    return (changed[0], after[changed[0]]) if len(changed) == 1 else None
