"""Which releases a rule means, from the shipped lists only: the same on every machine.

Rules take final releases that were not yanked.  A day includes the releases of that day.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat.packages import PACKAGES
from trl_compat.shipped.releases import Releases
from trl_compat.shipped.requires import Requires
from trl_compat.stacks.grids.schema import NEWEST, OLDEST_ALLOWED, ON_THE_DAY, Rule

LOWER = (">=", ">", "==", "~=")
# The Pythons that a stack may get, the one that is taken where nothing speaks against it first.
PYTHONS = ("3.11", "3.12", "3.10", "3.13", "3.9", "3.14")


class NoSuchRelease(ValueError):
    """A rule means no release; the text is the reason."""


@dataclass(frozen=True)
class Point:
    """A value of an axis: a release, or a rule that depends on the row."""

    rule: Rule
    version: Version | None = None


@dataclass(frozen=True)
class Shelf:
    """The releases and what they require: all that a rule can ask."""

    releases: Releases
    requires: Requires

    @property
    def today(self) -> datetime.date:
        """The day of the list."""
        return datetime.date.fromisoformat(self.releases.as_of)

    @cached_property
    def _days(self) -> dict[str, dict[Version, datetime.date]]:
        return {
            package: {Version(v): datetime.date.fromisoformat(day) for v, day in dates.items()}
            for package, dates in self.releases.dates.items()
        }

    def day(self, package: str, version: Version) -> datetime.date:
        """The day of a release."""
        return self._days[package][version]

    def newest_until(self, package: str, day: datetime.date) -> Iterator[Version]:
        """The final releases up to a day, newest first."""
        days = self._days[package]
        return (v for v in reversed(self.releases.final(package)) if days[v] <= day)

    def range_of(self, package: str, version: Version, wanted: str) -> SpecifierSet:
        """What a release requires of another package, or of ``python``."""
        return _range(self.requires.get(package, {}).get(str(version), {}).get(wanted, ""))

    def check(self, package: str, text: str) -> Version:
        """An exact version that somebody wrote.

        Raises:
            NoSuchRelease: it is not in the list, or it was yanked.
        """
        version = Version(text)
        if doubt := self.releases.doubt(package, version):
            raise NoSuchRelease(doubt)
        if not self.releases.exists(package, version):
            newest = self.releases.newest(package)
            raise NoSuchRelease(
                f"{package} {version} is not in the list of releases, whose newest is {newest} "
                f"(as of {self.releases.as_of}; trl-compat refresh renews it)"
            )
        return version

    def minors(self, package: str) -> dict[tuple[int, int], Version]:
        """The newest patch of every minor release, oldest first."""
        return {(v.major, v.minor): v for v in self.releases.final(package)}


@cache
def _range(text: str) -> SpecifierSet:
    return SpecifierSet(text)


def points(package: str, rules: Sequence[Rule], shelf: Shelf) -> list[Point]:
    """The values of an axis, in order; what two rules name alike counts once.

    Raises:
        NoSuchRelease: a rule means no release at all.
    """
    found: dict[Point | Version, Point] = {}
    for rule in rules:
        for point in _points(package, rule, shelf):
            found.setdefault(point.version or point, point)
    return list(found.values())


def _points(package: str, rule: Rule, shelf: Shelf) -> list[Point]:
    if rule.follows_trl:
        return [Point(rule)]
    if rule.newest_of:
        for text in rule.newest_of:
            shelf.check(package, text)
        return [Point(rule)]
    if rule.version:
        return [Point(rule, shelf.check(package, rule.version))]
    minors = shelf.minors(package)
    if rule.word == NEWEST:
        versions = [shelf.releases.newest(package)]
    elif rule.newest:
        versions = shelf.releases.final(package)[-rule.newest :]
    elif rule.newest_minors:
        versions = list(minors.values())[-rule.newest_minors :]
    elif rule.every_release_since:
        since, until = Version(rule.every_release_since), Version(rule.until or "9999")
        versions = [v for v in shelf.releases.final(package) if since <= v <= until]
    else:
        since, until = Version(rule.every_minor_since), Version(rule.until or "9999")
        span = ((since.major, since.minor), (until.major, until.minor))
        versions = [v for minor, v in minors.items() if span[0] <= minor <= span[1]]
    if not versions:
        raise NoSuchRelease(f"'{rule.text}' matches no release of {package}")
    return [Point(rule, version) for version in versions]


class Row:
    """The releases of one row while they are chosen, TRL's first.

    Args:
        shelf: what there is.
        wanted: a value for each axis.
    """

    def __init__(self, shelf: Shelf, wanted: Mapping[str, Point]) -> None:
        self._shelf = shelf
        self.versions: dict[str, Version] = {}
        last: dict[str, Rule] = {}
        for package, point in wanted.items():
            if point.rule.newest_of:
                last[package] = point.rule
            else:
                self.versions[package] = point.version or self._for_trl(package, point.rule)
        others = [package for package in PACKAGES if package not in wanted]
        # torch after what requires it, and what follows others after those.
        for package in [p for p in others if p != "torch"]:
            self.versions[package] = self._fitting(package)
        for package, rule in last.items():
            self.versions[package] = self._newest_of(package, rule)
        if "torch" in others:
            self.versions["torch"] = self._fitting("torch")

    @property
    def newest_day(self) -> datetime.date:
        """The day on which the last of the releases came."""
        return max(self._shelf.day(package, v) for package, v in self.versions.items())

    @property
    def python(self) -> str:
        """3.11, or the nearest that all releases are for."""
        ranges = [self._shelf.range_of(p, v, "python") for p, v in self.versions.items()]

        def is_for_all(python: str) -> bool:
            # The newest patch counts: 3.11 is not excluded by >=3.11.1.
            return all(range_.contains(f"{python}.99") for range_ in ranges)

        return next((python for python in PYTHONS if is_for_all(python)), PYTHONS[0])

    def _trl_day(self) -> datetime.date:
        return self._shelf.day("trl", self.versions["trl"])

    def _for_trl(self, package: str, rule: Rule) -> Version:
        """The release that a rule means for the TRL of the row."""
        trl = self.versions["trl"]
        allowed = self._shelf.range_of("trl", trl, package)
        if rule.word == OLDEST_ALLOWED:
            return self._oldest(package, trl, allowed)
        if rule.word == ON_THE_DAY:
            return self._newest_until(package, self._trl_day(), allowed.contains)
        assert rule.days_later is not None
        day = self._trl_day() + datetime.timedelta(days=rule.days_later)
        return self._newest_until(package, day, allowed.contains)

    def _oldest(self, package: str, trl: Version, allowed: SpecifierSet) -> Version:
        """The oldest that a TRL allows; 0.12.2 forgot its lower bound, then the one before has it.

        Raises:
            NoSuchRelease: there is no lower bound, or nothing between it and the upper one.
        """
        before = [v for v in reversed(self._shelf.releases.final("trl")) if v <= trl]
        ranges = (self._shelf.range_of("trl", version, package) for version in before)
        bounded = next((r for r in ranges if any(s.operator in LOWER for s in r)), None)
        if bounded is None:
            raise NoSuchRelease(f"axis {package}: TRL {trl} has no lower bound for {package}")
        for version in self._shelf.releases.final(package):
            if (bounded & allowed).contains(version):
                return version
        raise NoSuchRelease(f"axis {package}: TRL {trl} allows no release of {package}")

    def _newest_until(
        self, package: str, day: datetime.date, fits: Callable[[Version], bool]
    ) -> Version:
        """The newest up to a day that fits, else the next one that does, else the newest then."""
        for version in self._shelf.newest_until(package, day):
            if fits(version):
                return version
        everything = self._shelf.releases.final(package)
        for version in everything:
            if fits(version):
                return version
        return next(self._shelf.newest_until(package, day), everything[0])

    def _fitting(self, package: str) -> Version:
        """A release of a package without an axis: newest on TRL's day, that the others allow."""
        asked = [self._shelf.range_of(p, v, package) for p, v in self.versions.items()]

        def fits(version: Version) -> bool:
            return all(range_.contains(version) for range_ in asked) and all(
                self._shelf.range_of(package, version, p).contains(v)
                for p, v in self.versions.items()
            )

        return self._newest_until(package, self._trl_day(), fits)

    def _newest_of(self, package: str, rule: Rule) -> Version:
        """The newest of some that was released when the other packages were."""
        by = rule.released_by or tuple(self.versions)
        day = max(self._shelf.day(p, self.versions[p]) for p in by if p in self.versions)
        offered = sorted(Version(text) for text in rule.newest_of)
        there = [version for version in offered if self._shelf.day(package, version) <= day]
        return there[-1] if there else offered[0]
