"""The files of the bundle that a cell can import: a change to one of them invalidates its result.

The source is parsed; nothing is imported.  Every module of the runtime counts for every cell, and
so does every file that is not Python.  Of the fixes and of the runtime's losses, those count that
the runtime, the reproduction or the cell's own fix import, directly or indirectly.  If the source
does not tell what is imported (a computed name, a file that cannot be parsed), every file counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

PACKAGE = "trl_compat"
CHOSEN = (f"{PACKAGE}/fixes/", f"{PACKAGE}/runtime/losses/")  # each by who imports it
IMPORTERS = {"import_module", "__import__", "find_spec", "spec_from_file_location", "run_path"}


class Unknown(Exception):
    """The source does not tell what it imports."""


def files_of_a_cell(
    bundle: Mapping[str, bytes], reproduction: bytes, entry: str | None
) -> frozenset[str]:
    """The paths of the files of a bundle that ranks of a cell can import or read.

    Args:
        bundle: every file by its path in the bundle.
        reproduction: the text of the module that holds the scenario; it is not in the bundle.
        entry: the cell's fix as ``module:function``; None without one.
    """
    modules = {_module(path): path for path in bundle if path.endswith(".py")}
    reached = {path for path in bundle if not path.startswith(CHOSEN) or not path.endswith(".py")}
    waiting = [path for path in reached if path.endswith(".py")]
    try:
        wanted = _imports(reproduction, "", strict=True)
        wanted |= {*_parents((entry or "").partition(":")[0])}
        while True:
            new = {modules[name] for name in _each(wanted, modules)} - reached
            reached |= new
            waiting += new
            if not waiting:
                return frozenset(reached)
            path = waiting.pop()
            # What the runtime imports by a computed name is of the stack, or the cell's fix.
            wanted = _imports(bundle[path], path, strict=path.startswith(CHOSEN))
    except Unknown:
        return frozenset(bundle)


def _module(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _parents(module: str) -> Iterator[str]:
    """A module and the packages that importing it runs first."""
    parts = module.split(".")
    yield from (".".join(parts[: n + 1]) for n in range(len(parts)))


def _each(wanted: Iterable[str], modules: Mapping[str, str]) -> Iterator[str]:
    """Those of the names that are modules; ``package.*``, what ``import *`` may bring, is all."""
    for name in wanted:
        if name.endswith(".*"):
            yield from (module for module in modules if module.startswith(name[:-1]))
        elif name in modules:
            yield name


@cache  # most files are those of every cell
def _imports(source: bytes, path: str, *, strict: bool) -> frozenset[str]:
    """Names of what a source may import, modules or not; ``package.*`` is all of one.

    Raises:
        Unknown: it is no Python, or, if ``strict``, it imports what only running it tells.
    """
    return frozenset(_names(source, path, strict))


def _names(source: bytes, path: str, strict: bool) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        raise Unknown(path) from None
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield from _parents(alias.name)
            case ast.ImportFrom():
                base = _base(node, path)
                yield from _parents(base)
                yield from (f"{base}.{alias.name}" for alias in node.names)
            case ast.Constant(value=str(text)) if text.startswith(f"{PACKAGE}."):
                yield from _parents(text.split(":")[0])  # the name of a module, as a text
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if strict:
                said = [*node.args, *(keyword.value for keyword in node.keywords)]
                if name in IMPORTERS and not all(isinstance(one, ast.Constant) for one in said):
                    raise Unknown(path)
            case ast.Name(id="__file__") if strict:  # reads what lies beside it
                raise Unknown(path)


def _base(node: ast.ImportFrom, path: str) -> str:
    """The module that ``from … import`` names, in full."""
    if not node.level:
        return node.module or ""
    package = PurePosixPath(path).parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])
