"""The releases of the packages under test, and their dates: a shipped list.

``trl-compat refresh`` generates ``shipped/releases.json`` from the package index.  It
lets offline commands distinguish a release from a misspelt version, and states the date of the
list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from packaging.version import Version

from trl_compat.packages import PACKAGES
from trl_compat.text.nearest import nearest

FILE = Path(__file__).with_name("releases.json")
INDEX = "https://pypi.org/pypi/{package}/json"


@dataclass(frozen=True)
class Releases:
    """The releases of every package, oldest first, as of a day.

    Attributes:
        as_of: the day of the list.
        dates: day of upload by package and version.
        yanked: reason by package and version; ``""`` where none was given.
    """

    as_of: str
    dates: Mapping[str, Mapping[str, str]]
    yanked: Mapping[str, Mapping[str, str]]

    @cached_property
    def _ordered(self) -> dict[str, list[Version]]:
        return {p: sorted(Version(v) for v in known) for p, known in self.dates.items()}

    @cached_property
    def _final(self) -> dict[str, list[Version]]:
        return {
            package: [v for v in known if not v.is_prerelease and str(v) not in gone]
            for package, known in self._ordered.items()
            for gone in [self.yanked.get(package, {})]
        }

    @cached_property
    def _names(self) -> dict[str, dict[Version, str]]:
        return {p: {v: str(v) for v in known} for p, known in self._final.items()}

    def names(self, package: str) -> Mapping[Version, str]:
        """The final releases, oldest first, and how each is written."""
        return self._names.get(package, {})

    def of(self, package: str) -> list[Version]:
        """Every release, pre-releases included, oldest first; none for an unknown package."""
        return self._ordered.get(package, [])

    def final(self, package: str) -> list[Version]:
        """The releases that an installer takes without being asked for a pre-release."""
        return self._final.get(package, [])

    def newest(self, package: str) -> Version:
        """The newest final release."""
        return self.final(package)[-1]

    def exists(self, package: str, version: Version) -> bool:
        """Whether there is such a release; its local part (``+cu121``) does not matter."""
        return Version(version.public) in self.of(package)

    def doubt(self, package: str, version: Version) -> str | None:
        """What is wrong with an exact version, as far as the list knows; None if nothing is.

        A version above the newest one is not doubted: it may be newer than the list.
        """
        if package not in self.dates or version > self.of(package)[-1]:
            return None
        if not self.exists(package, version):
            near = nearest(version.public, self.dates[package])
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{package} {version} does not exist (as of {self.as_of}){hint}"
        reason = self.yanked.get(package, {}).get(version.public)
        if reason is not None:
            return f"{package} {version} was yanked from the index{reason and f': {reason}'}"
        return None


@cache
def known() -> Releases:
    """The list that is shipped."""
    return Releases(**json.loads(FILE.read_text(encoding="utf-8")))


def fetched(documents: Mapping[str, Mapping[str, Any]], as_of: str) -> Releases:
    """The list out of the index's JSON documents by package; files that are gone do not count."""
    dates: dict[str, dict[str, str]] = {}
    yanked: dict[str, dict[str, str]] = {}
    for package in PACKAGES:
        found = {Version(v): files for v, files in documents[package]["releases"].items() if files}
        for version, files in sorted(found.items()):
            dates.setdefault(package, {})[str(version)] = min(f["upload_time"] for f in files)[:10]
            if all(f.get("yanked") for f in files):
                reason = next((f["yanked_reason"] for f in files if f.get("yanked_reason")), "")
                yanked.setdefault(package, {})[str(version)] = " ".join(reason.split())
    return Releases(as_of, dates, yanked)


def written(releases: Releases) -> str:
    """The text of the file."""
    text = {"as_of": releases.as_of, "dates": releases.dates, "yanked": releases.yanked}
    return json.dumps(text, indent=1) + "\n"
