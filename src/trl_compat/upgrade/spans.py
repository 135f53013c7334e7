"""Releases that are equivalent for all known data, so that one can represent the others.

A *span* is a sequence of releases of one package in which no range of an advisory and no
requirement on the package begins or ends, which all have the same requirements, and which were
released in the same half-year.  What holds for a set of versions holds for every set from the same
spans, so a recommended range is checked as a whole.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise

from packaging.specifiers import Specifier, SpecifierSet
from packaging.version import Version

from trl_compat.packages import PACKAGES
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.shipped.releases import Releases
from trl_compat.shipped.requires import Requires

Span = tuple[Version, ...]
"""Final releases, the oldest first."""


class Spans:
    """The spans of every package under test."""

    def __init__(
        self, records: Mapping[str, CompiledAdvisory], requires: Requires, releases: Releases
    ) -> None:
        ranges: dict[str, set[str]] = {package: set() for package in PACKAGES}
        for package, range_ in chain(_of_records(records), _of_requirements(requires)):
            ranges.setdefault(package, set()).add(range_)
        self._requires, self._releases = requires, releases
        self._known = {package: releases.final(package) for package in PACKAGES}
        self._cuts = {package: sorted(self._cut(package, ranges[package])) for package in PACKAGES}

    def after(self, package: str, version: Version) -> Iterator[Span]:
        """The spans of later releases, the nearest first."""
        known = self._known[package]
        start = bisect.bisect_right(known, version)
        cuts = [start, *(c for c in self._cuts[package] if start < c < len(known)), len(known)]
        yield from (tuple(known[a:b]) for a, b in pairwise(cuts) if a < b)

    def before(self, package: str, version: Version) -> Iterator[Span]:
        """The spans of earlier releases, the nearest first."""
        known = self._known[package]
        end = bisect.bisect_left(known, version)
        cuts = [0, *(c for c in self._cuts[package] if 0 < c < end), end]
        yield from reversed([tuple(known[a:b]) for a, b in pairwise(cuts) if a < b])

    def kind(self, package: str, version: Version) -> object:
        """What is the same for all versions of a span; of no release in the list, itself."""
        known = self._known[package]
        at = bisect.bisect_left(known, version)
        if at == len(known) or known[at] != version:
            return version
        return bisect.bisect_right(self._cuts[package], at)

    def newest(self, package: str) -> Version | None:
        """The newest final release that is known."""
        return self._known[package][-1] if self._known[package] else None

    def half_year(self, package: str, version: Version) -> int | None:
        """The half-year in which a release came out; None if it is not in the list."""
        day = self._releases.dates.get(package, {}).get(version.public)
        return None if day is None else int(day[:4]) * 2 + (int(day[5:7]) > 6)

    def _cut(self, package: str, ranges: Iterable[str]) -> set[int]:
        """Where a span begins, as places in the list of releases."""
        known = self._known[package]
        cuts = {at for range_ in ranges for s in SpecifierSet(range_) for at in _ends(known, s)}
        told = [self._told(package, version) for version in known]
        return cuts | {at for at in range(1, len(known)) if told[at] != told[at - 1]}

    def _told(self, package: str, version: Version) -> tuple[object, int | None]:
        required = self._requires.get(package, {}).get(version.public)
        return required, self.half_year(package, version)


def _ends(known: list[Version], bound: Specifier) -> tuple[int, ...]:
    """Where in a list of releases a bound of a range tells them apart."""
    series = bound.version.endswith(".*")
    version = Version(bound.version.removesuffix(".*"))
    first = bisect.bisect_left(known, version)
    match bound.operator:
        case ">=" | "<":
            return (first,)
        case ">" | "<=":
            return (bisect.bisect_right(known, version),)
        case "~=":
            alike = version.release[:-1]
        case _:
            alike = version.release if series else ()
    length = len(alike)
    same = [v for v in known if alike and v.release[:length] == alike] or [version]
    return first, bisect.bisect_left(known, same[0]), bisect.bisect_right(known, same[-1])


def _of_records(records: Mapping[str, CompiledAdvisory]) -> Iterator[tuple[str, str]]:
    for record in records.values():
        yield from ranges_of(record)


def _of_requirements(requires: Requires) -> Iterator[tuple[str, str]]:
    for by_version in requires.values():
        for required in by_version.values():
            yield from ((p, range_) for p, range_ in required.items() if p in PACKAGES)


def ranges_of(record: CompiledAdvisory) -> Iterator[tuple[str, str]]:
    """Every version range of a record, with its package.

    Those of failures that hide it are left out: a failure counts, hidden or not.
    """
    yield from ((p, range_) for p, range_ in record.available.items() if p in PACKAGES)
    wheres = [block.where for block in record.blocks]
    wheres += [b.where for block in record.blocks for b in block.absent]
    ways = [range_ for way in record.avoid for range_ in (way.upgrade, way.pin)]
    for ranges in (*(where.versions for where in wheres), *ways):
        yield from ((p, range_) for p, range_ in ranges.items() if p in PACKAGES)
