"""What a user has, as exact versions: the data that every reader of this package returns.

A :class:`Source` contains only facts.  What a file leaves open (a range, a package that it does not
list) stays open, and contradictions are rejected with one sentence.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES, REQUIRED_BY_TRL
from trl_compat.ranges import inside, ranges

COMMIT = re.compile(r"[0-9a-f]{7,40}")
LONGEST = 200  # characters of a version
MOST_NOTES = 20
HOW_TO_PIN = "pin a release or a full commit, or let doctor read the environment: --python PATH"


def shown(url: str) -> str:
    """A URL as it may be printed: without user, password and query, in which tokens stand."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url[:LONGEST]
    host, slash, path = rest.partition("/")
    path = path.partition("?")[0].partition("#")[0]
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"[:LONGEST]


@cache
def _parsed(version: str) -> Version:
    """A version, read once: the same few are asked for over and over."""
    return Version(version)


@dataclass(frozen=True)
class Source:
    """Exact versions, by canonical name, and where they were read.

    Attributes:
        name: what it is called in sentences: the file's name, or the interpreter.
        kind: ``requirements``, ``uv.lock``, ``pylock``, ``poetry.lock`` or ``environment``.
        versions: releases, local part included (``2.4.1+cu121``).
        python: the interpreter's exact version, where there is one.
        commits: ``git+https://...@<commit>`` of packages that are taken from git; these have no
            entry in ``versions``.
        archives: the address of the file that a package is to be taken from, where it is not an
            index's; the version in its name is in ``versions``.
        unpinned: packages that are wanted in a range, with the range (``""`` for any version).
        complete: every package that will be installed is named: what is not there is not installed.
        notes: what a reader should know about these facts, in sentences.
        path: the file.
    """

    name: str
    kind: str
    versions: Mapping[str, str]
    python: str | None = None
    commits: Mapping[str, str] = field(default_factory=dict)
    archives: Mapping[str, str] = field(default_factory=dict)
    unpinned: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    notes: tuple[str, ...] = ()
    path: Path | None = None

    def version(self, package: str) -> Version | None:
        """The release of a package (or ``python``); None where none is known."""
        value = self.python if package == "python" else self.versions.get(package)
        return _parsed(value) if value else None

    def commit(self, package: str) -> str | None:
        """The git commit of a package; None where it is taken from a release."""
        value = self.commits.get(package)
        return value.rpartition("@")[2] if value else None

    def absent(self, package: str) -> bool:
        """Whether the package is certainly not installed.

        What TRL requires is there wherever TRL is, from wherever it comes.
        """
        known = {*self.versions, *self.commits, *self.unpinned, *REQUIRED_BY_TRL, "python"}
        return self.complete and package not in known


class Pins:
    """Collects what a reader finds, refuses contradictions, and becomes a :class:`Source`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions: dict[str, str] = {}
        self.commits: dict[str, str] = {}
        self.archives: dict[str, str] = {}
        self.ranges: dict[str, list[str]] = {}
        self.notes: dict[str, None] = {}
        self.elsewhere: dict[str, None] = {}
        self.whole = True

    def exact(self, package: str, version: str) -> None:
        """The package at this release; what is wrong with one not under test is only noted."""
        package = canonicalize_name(package[:LONGEST])
        try:
            if len(version) > LONGEST:
                raise InvalidVersion
            parsed = Version(version)
        except InvalidVersion:
            self._refuse(package, f"{package} {version[:LONGEST]}: not a version")
            return
        known = self.versions.get(package)
        if known is not None and Version(known) != parsed:
            both = f"two versions of {package}, {known} and {parsed}, both for this machine"
            self._refuse(package, f"{both}; {HOW_TO_PIN}" if package in PACKAGES else both)
            return
        self.versions[package] = str(parsed)
        self._one_origin(package)

    def wanted(self, package: str, specifier: str) -> None:
        """The package in a range; an exact version found elsewhere must lie in it."""
        self.ranges.setdefault(canonicalize_name(package), []).append(specifier)

    def git(self, package: str, url: str, commit: str | None) -> None:
        """The package at a commit; a branch or tag says nothing certain and is refused."""
        package = canonicalize_name(package)
        if commit is None or not COMMIT.fullmatch(commit):
            named = f"'{commit[:40]}', a branch or tag," if commit else "its default branch,"
            self.undecided(package, f"{package} comes from git at {named} which may move")
            return
        value = f"git+{url.removeprefix('git+')}@{commit}"
        known = self.commits.get(package)
        if known is not None and known != value:
            both = f"{shown(known)} and {shown(value)}"
            self._refuse(package, f"{package} comes from git twice, {both}")
        self.commits[package] = value
        self._one_origin(package)

    def archive(self, package: str, url: str) -> None:
        """The package from a file; the file name of a wheel or source package has the version."""
        package = canonicalize_name(package)
        file = url.partition("#")[0].partition("?")[0].rpartition("/")[2].replace("%2B", "+")
        try:
            if file.endswith(".whl"):
                name, version = parse_wheel_filename(file)[:2]
            else:
                name, version = parse_sdist_filename(file)
        except (InvalidWheelFilename, InvalidSdistFilename, ValueError):
            self.undecided(
                package, f"{package} comes from {shown(url)}, whose file name has no version"
            )
            return
        if name != package:
            self._refuse(
                package, f"{package} should come from {shown(file)}, which contains {name}"
            )
            return
        self.archives[package] = url
        self.exact(package, str(version))

    def undecided(self, package: str, why: str) -> None:
        """A package without an exact version; only those under test matter."""
        package = canonicalize_name(package)
        if package in PACKAGES:
            raise BadInput(f"{self.name}: {why}; {HOW_TO_PIN}")

    def made_for(self, requires_python: str) -> None:
        """The range of Pythons of a lock, whose markers are read for the one that runs this."""
        here = platform.python_version()
        try:
            wanted = ranges(requires_python[:LONGEST])
            allowed = inside(Version(here), str(wanted))
        except InvalidSpecifier:
            raise BadInput(f"{self.name}: has an invalid Python range") from None
        if not allowed:
            self.note(f"its markers were evaluated for Python {here}, but it requires {wanted}")

    def not_here(self, package: str) -> None:
        """A package that a marker leaves out on this machine."""
        self.elsewhere[canonicalize_name(package)] = None

    def unnamed(self, why: str, url: str) -> None:
        """Something from a path or URL that names no package: perhaps one under test."""
        self.whole = False
        self.note(f"{why}: {shown(url)}")

    def _refuse(self, package: str, why: str) -> None:
        if package in PACKAGES:
            raise BadInput(f"{self.name}: {why}")
        self.note(why)

    def note(self, sentence: str) -> None:
        """Something that a reader should know."""
        self.notes[sentence] = None

    def source(
        self,
        kind: str,
        *,
        path: Path | None = None,
        python: str | None = None,
        complete: bool = True,
        required: str | None = "trl",
    ) -> Source:
        """The collected facts.

        Raises:
            BadInput: ``required`` is not among them, or an exact version lies outside a range that
                is also asked for.
        """
        there = {*self.versions, *self.commits, *self.ranges}
        here = f"here (Python {platform.python_version()}, {sys.platform})"
        for package in PACKAGES:
            if package in self.elsewhere and package in there:
                self.note(f"{package} has other versions where the markers differ from {here}")
            elif package in self.elsewhere:
                self.note(f"{package} is ignored: its marker does not apply {here}")
        unpinned: dict[str, str] = {}
        for package, specifiers in self.ranges.items():
            joined = SpecifierSet(",".join(s for s in specifiers if s))
            version = self.versions.get(package)
            if version is not None and not inside(Version(version), str(joined)):
                self._refuse(package, f"{package} is pinned to {version} and required as {joined}")
            if version is None and package not in self.commits:
                unpinned[package] = str(joined)
        if required and not {required} & {*self.versions, *self.commits, *unpinned}:
            markers = "" if kind == "environment" else " (as far as its markers apply here)"
            raise BadInput(
                f"{self.name}: no {required.upper()} in it{markers}; name a lock with it, or "
                "an interpreter: --python PATH"
            )
        return Source(
            name=self.name,
            kind=kind,
            versions=MappingProxyType(dict(sorted(self.versions.items()))),
            python=python,
            commits=MappingProxyType(dict(sorted(self.commits.items()))),
            archives=MappingProxyType(dict(sorted(self.archives.items()))),
            unpinned=MappingProxyType(dict(sorted(unpinned.items()))),
            complete=complete and self.whole,
            notes=tuple(self.notes)[:MOST_NOTES],
            path=path,
        )

    def _one_origin(self, package: str) -> None:
        if package in self.versions and package in self.commits:
            both = f"{package} is both {self.versions[package]} and {self.commits[package]}"
            self._refuse(package, f"{both}; {HOW_TO_PIN}")
