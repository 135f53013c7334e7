"""Sets of releases, and the changes between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

State = Mapping[str, Version]
"""The release of each package."""


@dataclass(frozen=True)
class Bump:
    """One package goes to another release."""

    package: str
    old: Version
    new: Version

    def __str__(self) -> str:
        return f"{self.package} {self.old} → {self.new}"


def bumps(before: State, after: State) -> Iterator[Bump]:
    """What changes between two sets of releases of the same packages."""
    for package, old in before.items():
        if after[package] != old:
            yield Bump(package, old, after[package])
