"""Where checks are made: every call of ``rank.check`` and ``rank.precondition`` in the code.

Covers the reproductions and the part of the runtime that checks for them.  A site can be made
toothless (its condition replaced by ``True``), which is what ``tests.mutations`` does to a copy.
"""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trl_compat.execution import bundle

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
        return self.path.parent == RUNTIME

    def registers(self, name: str) -> bool:
        """Whether the call can register this name."""
        return fnmatch.fnmatchcase(name, self.pattern)


def in_folder(folder: Path) -> list[Site]:
    """The sites of all modules in a folder."""
    return [site for path in sorted(folder.glob("*.py")) for site in in_module(path)]


def in_module(path: Path) -> list[Site]:
    """The sites of a module."""
    return [site for site, _ in _calls(path, ast.parse(path.read_text(encoding="utf-8")), "")]


def without_teeth(site: Site) -> str:
    """The module's text with the site's condition replaced by ``True``."""
    tree = ast.parse(site.path.read_text(encoding="utf-8"))
    (call,) = (call for found, call in _calls(site.path, tree, "") if found == site)
    call.args[1] = ast.copy_location(ast.Constant(True), call.args[1])
    return ast.unparse(tree)


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
