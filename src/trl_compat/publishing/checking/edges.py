"""The ends of a record's ranges: was the last release on either side of each really executed?

An end is that of one package.  Only cells in which every other package of the conjunction stays
inside say something about it, and whose conditions are those of the scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from packaging.version import Version

from trl_compat.advisories import Advisory, Affected
from trl_compat.advisories.compiling import implied
from trl_compat.publishing.checking.evidence import Evidence, not_there, without
from trl_compat.ranges import inside
from trl_compat.shipped.releases import Releases


@dataclass(frozen=True)
class Edge:
    """An end of one package's range in one scope.

    Attributes:
        scope: the number of the scope, from 1.
        inner: the last release inside; ``outer`` is the next, outside.
        upper: whether it is an upper end.
        seen_inside: the cell nearest to it that failed as the scope says.
        seen_outside: the nearest on the other side, that did not.
        not_there: where the failure cannot occur on the outer side, the record's own reason.
    """

    failure: str
    scope: int
    package: str
    inner: Version
    outer: Version
    upper: bool
    seen_inside: Evidence | None
    seen_outside: Evidence | None
    not_there: str = ""

    @property
    def proven(self) -> bool:
        """Whether both sides were executed at their nearest release."""
        return self._is(self.seen_inside, self.inner) and (
            bool(self.not_there) or self._is(self.seen_outside, self.outer)
        )

    def _is(self, one: Evidence | None, version: Version) -> bool:
        return one is not None and _public(one, self.package) == version

    def between(self, releases: Releases) -> list[Version]:
        """The releases that were not run between the nearest cells, the ends among them."""
        low, high = sorted(
            (self._at(self.seen_inside, self.inner), self._at(self.seen_outside, self.outer))
        )
        found = [v for v in releases.final(self.package) if low <= v <= high]
        seen = [_public(one, self.package) for one in (self.seen_inside, self.seen_outside) if one]
        return [v for v in found if v not in seen]

    def _at(self, one: Evidence | None, version: Version) -> Version:
        return (_public(one, self.package) if one else None) or version


def edges(advisory: Advisory, evidence: Sequence[Evidence], releases: Releases) -> list[Edge]:
    """Every edge of a record's scopes, in their order; a range that goes on elsewhere has none."""
    # Models and world sizes say the same of a range.
    different = list({(one.place, one.shows): one for one in evidence}.values())
    return [
        edge
        for number, scope in enumerate(advisory.affected, 1)
        for package in scope.versions
        for edge in _of_package(advisory, number, scope, package, different, releases)
    ]


def _of_package(
    advisory: Advisory,
    number: int,
    scope: Affected,
    package: str,
    evidence: Sequence[Evidence],
    releases: Releases,
) -> Iterator[Edge]:
    known = releases.final(package)
    range_ = scope.versions[package]
    rest = without(scope, package)
    bearing = [
        one
        for one in evidence
        if one.concerns(advisory, scope) and one.inside(rest) and _public(one, package) is not None
    ]
    for older, newer in pairwise(known):
        upper = inside(older, range_)
        if upper == inside(newer, range_):
            continue
        inner, outer = (older, newer) if upper else (newer, older)
        if _goes_on(advisory, number, scope, package, outer):
            continue
        showing = [one for one in bearing if one.shows == scope.symptom and one.inside(scope)]
        others = [
            one
            for one in bearing
            if one.shows != scope.symptom and not one.inside(scope) and not not_there(one, advisory)
        ]
        yield Edge(
            advisory.id,
            number,
            package,
            inner,
            outer,
            upper,
            seen_inside=_nearest(showing, package, inner, upper=not upper),
            seen_outside=_nearest(others, package, outer, upper=upper),
            not_there=_not_there(advisory, package, outer),
        )


def _nearest(
    found: Sequence[Evidence], package: str, edge: Version, *, upper: bool
) -> Evidence | None:
    """The cell nearest to a release, of those at it or beyond: above it, or below."""
    beyond = []
    for one in found:
        version = _public(one, package)
        if version is not None and (version >= edge if upper else version <= edge):
            beyond.append((version, one))
    if not beyond:
        return None
    pick = min if upper else max
    return pick(beyond, key=lambda pair: pair[0])[1]


def _public(one: Evidence, package: str) -> Version | None:
    version = one.version(package)
    return Version(version.public) if version is not None else None


def _not_there(advisory: Advisory, package: str, outer: Version) -> str:
    range_ = advisory.available.get(package)
    if range_ is not None and not inside(outer, range_):
        return f"{package} {outer} does not have it (available: {range_})"
    return ""


def _goes_on(
    advisory: Advisory,
    number: int,
    scope: Affected,
    package: str,
    outer: Version,
) -> bool:
    """Whether another scope covers the outer side with the same symptom and conditions."""
    return any(
        other.symptom == scope.symptom
        and implied(scope.conditions, other.conditions)
        and not other.commits
        and (package not in other.versions or inside(outer, other.versions[package]))
        and all(scope.versions.get(p) == r for p, r in other.versions.items() if p != package)
        for n, other in enumerate(advisory.affected, 1)
        if n != number
    )
