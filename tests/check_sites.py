"""Where checks are made: every call of ``rank.check`` and ``rank.precondition`` in the code.

Covers the reproductions and the part of the runtime that checks for them.  A site can be made
toothless (its condition, or a part of it, replaced by ``True``), which is what ``tests.mutations``
does to a copy.
"""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trl_compat.running.execution import bundle

RUNTIME = bundle.SOURCE / "runtime"
METHODS = ("check", "precondition")


@dataclass(frozen=True)
class Site:
    """One call.

    Attributes:
        method: ``check`` or ``precondition``.
        within: the function around it, with those around that: ``outer.inner``.
        pattern: the name that it registers, ``*`` for each part that is not written down there.
    """

    path: Path
    method: str
    within: str
    pattern: str
    line: int

    def __str__(self) -> str:
        return f"{self.path.stem}.{self.within}: {self.pattern}"

    @property
    def of_runtime(self) -> bool:
        """Whether it is in the runtime, and not in a reproduction."""
        return RUNTIME in self.path.parents

    def registers(self, name: str) -> bool:
        """Whether the call can register this name."""
        return fnmatch.fnmatchcase(name, self.pattern)


def in_folder(folder: Path) -> list[Site]:
    """The sites of all modules in a folder and those in it."""
    return [site for path in sorted(folder.rglob("*.py")) for site in in_module(path)]


def in_module(path: Path) -> list[Site]:
    """The sites of a module."""
    return [site for site, _ in _calls(path, ast.parse(path.read_text(encoding="utf-8")), "")]


def mutants(site: Site) -> Iterator[tuple[str, str]]:
    """What the site no longer asks, and the module's text without it.

    First the whole condition, then each of its parts, where it has several.
    """
    text = site.path.read_text(encoding="utf-8")
    (condition,) = (c.args[1] for s, c in _calls(site.path, ast.parse(text), "") if s == site)
    for less, dropped in [(ast.Constant(True), condition), *_less_by_one(condition)]:
        tree = ast.parse(text)
        (call,) = (call for found, call in _calls(site.path, tree, "") if found == site)
        call.args[1] = less
        yield ast.unparse(dropped), ast.unparse(tree)


def _less_by_one(condition: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """A condition of several parts without one of them, and that one, for each."""
    match condition:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield ast.BoolOp(ast.And(), [p for p in parts if p is not part]), part
        case ast.Compare(left=left, ops=[first, second], comparators=[middle, right]):
            below, above = (
                ast.Compare(left, [first], [middle]),
                ast.Compare(middle, [second], [right]),
            )
            yield from ((above, below), (below, above))


def _calls(path: Path, node: ast.AST, within: str) -> Iterator[tuple[Site, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        inside = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{within}.{child.name}".lstrip(".")
        match child:
            case ast.Call(func=ast.Attribute(attr=method)) if method in METHODS:
                pattern = _pattern(child.args[0])
                yield Site(path, method, within, pattern, child.lineno), child
        yield from _calls(path, child, inside)


def _pattern(name: ast.expr) -> str:
    match name:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_pattern(part) for part in parts)
        case _:
            return "*"
