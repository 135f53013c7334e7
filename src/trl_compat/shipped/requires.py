"""The requirements of the packages under test on each other and on Python: a shipped list.

``shipped/requires.json`` has every final release of ``shipped/releases.json`` with the metadata of
the package index, so that upgrades can be recommended and planned offline.
``trl-compat refresh`` generates both.

An extra counts if it is named after a package: ``trl[deepspeed]`` states TRL's requirements on
DeepSpeed if both are installed.  Only lower bounds and excluded single releases count: upper bounds
were pins for tests (accelerate's ``deepspeed<=0.14.0``, which the stacks of the matrix disprove).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sized
from functools import cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from trl_compat.packages import PACKAGES

FILE = Path(__file__).with_name("requires.json")
OF_EXTRAS = (">=", ">", "!=", "~=")

Requires = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Version ranges by package, version, and required package (or ``python``)."""


@cache
def known() -> Requires:
    """The list that is shipped."""
    found: Requires = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def of_release(lines: Iterable[str], python: str) -> dict[str, str]:
    """What a release requires of the packages under test.

    Args:
        lines: its requirements, as its metadata has them.
        python: the range of Pythons that it is for; ``""`` for any.
    """
    ranges: dict[str, SpecifierSet] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # of a time before the rules; no installer reads it, either
        package = canonicalize_name(requirement.name)
        wanted = requirement.specifier
        marker = str(requirement.marker or "")
        if "extra" in marker:
            named = f'extra == "{package}"' in marker
            wanted = SpecifierSet(
                ",".join(str(s) for s in wanted if s.operator in OF_EXTRAS) if named else ""
            )
        if package in PACKAGES and str(wanted):
            ranges[package] = ranges.get(package, SpecifierSet()) & wanted
    if python:
        ranges["python"] = SpecifierSet(python)
    return {package: str(range_) for package, range_ in sorted(ranges.items())}


def missing(package: str, listed: Mapping[str, Sized], have: Requires) -> list[str]:
    """The final releases with files, among those that the index lists, that are not in the list."""
    there = {Version(version) for version in have.get(package, {})}
    return [
        version
        for version, files in listed.items()
        if files and not Version(version).is_prerelease and Version(version) not in there
    ]


def written(requires: Requires) -> str:
    """The text of the file: a line for each release, the oldest first."""
    parts = []
    for package in PACKAGES:
        by_version = sorted(requires.get(package, {}).items(), key=lambda item: Version(item[0]))
        lines = (f"  {json.dumps(version)}: {json.dumps(found)}" for version, found in by_version)
        parts.append(f" {json.dumps(package)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"
