"""Which package is to blame for what is new: those that changed, nearest to the failure first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.results import CellResult

MOST = 4
IN_PACKAGE = re.compile(r'File "(?:[^"]*/)?site-packages/([\w.-]+?)(?:\.py)?[/"]')


@dataclass(frozen=True)
class Suspect:
    """A package that changed.

    Attributes:
        why: what speaks against it.
        proven: moved alone, it does the same.
    """

    package: str
    before: str
    after: str
    why: str
    proven: bool = False

    def __str__(self) -> str:
        versions = f"{self.before or 'none'} → {self.after or 'none'}"
        return f"{self.package} {versions} ({self.why})"


def suspects(
    cell: CellResult,
    moved: Mapping[str, tuple[str, str]],
    alone: Mapping[str, bool] | None = None,
) -> list[Suspect]:
    """The packages that may be to blame for what a cell does, the first suspect first.

    Args:
        cell: the cell as it is now.
        moved: the packages that differ from the stack before, with both versions.
        alone: for packages that were moved alone, whether that does the same to the cell.
    """
    found: dict[str, Suspect] = {}
    tried = alone or {}
    for package, why in _accused(cell, moved, tried):
        if package in moved and package not in found:
            found[package] = Suspect(
                package, *moved[package], why, proven=tried.get(package, False)
            )
    return list(found.values())[:MOST]


def involved(cell: CellResult) -> set[str]:
    """The packages that a cell's error was raised in or passed through."""
    raising = _package(cell.signature.where) if cell.signature else ""
    return {raising, *_on_the_way(cell.traceback)} - {""}


def _accused(
    cell: CellResult, moved: Mapping[str, tuple[str, str]], alone: Mapping[str, bool]
) -> Iterator[tuple[str, str]]:
    for package in SHOWN_PACKAGES:
        if alone.get(package):
            yield package, "moved alone, it does the same"
    cleared = {package for package, same in alone.items() if not same}
    raising = _package(cell.signature.where) if cell.signature else ""
    if raising not in cleared:
        yield raising, "raised in it"
    for package in _on_the_way(cell.traceback):
        if package not in cleared:
            yield package, "on the way to where it was raised"
    for package in (*SHOWN_PACKAGES, *moved):
        if package not in cleared:
            yield package, "changed"
    for package in cleared:
        yield package, "unlikely: moved alone, it does not do this"


def _package(where: str) -> str:
    """The package of a raising place, ``transformers/trainer.py:save_model``."""
    file, separator, _ = where.partition(":")
    if not separator or file == "check":
        return ""
    return canonicalize_name(file.split("/")[0].removesuffix(".py"))


def _on_the_way(traceback: str) -> list[str]:
    """The packages of a traceback, innermost first."""
    found = [canonicalize_name(name) for name in IN_PACKAGE.findall(traceback)]
    return list(dict.fromkeys(reversed(found)))
