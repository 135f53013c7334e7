"""The past as a series of stacks: everything newest on each day on which something was released."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.refresh.holding import Holds
from trl_compat.shipped.releases import Releases
from trl_compat.stacks.matrix import Stack


@dataclass(frozen=True)
class Release:
    """A release of a package under test."""

    package: str
    version: Version

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Day:
    """A day on which something was released.

    Attributes:
        released: what an installer can still take of it.
        yanked: what was taken back since, which no stack takes.
        stack: everything newest on that day; the packages that are held, as they are held.
        moved: what its stack has and the stack before it had not.
    """

    date: datetime.date
    released: tuple[Release, ...]
    yanked: tuple[Release, ...]
    stack: Stack
    moved: tuple[Release, ...]

    @property
    def name(self) -> str:
        """The name of its stack."""
        return stack_name(self.date)


def stack_name(date: datetime.date) -> str:
    """The name of the stack of a day of the past."""
    return f"replay-{date.isoformat()}"


def days(
    first: datetime.date, last: datetime.date, releases: Releases, held: Holds
) -> tuple[Stack, list[Day]]:
    """The stack of the day before the first, and every day with a release from first to last.

    Raises:
        BadInput: the first day is after the last, or the list of releases does not have them.
    """
    _check(first, last, releases)
    start = before = newest_on(first - datetime.timedelta(days=1), releases, held)
    found = []
    for date in _dates(first, last, releases):
        stack = newest_on(date, releases, held)
        day = Day(
            date,
            released=tuple(_of_day(date, releases, yanked=False)),
            yanked=tuple(_of_day(date, releases, yanked=True)),
            stack=stack,
            moved=tuple(moves(before, stack)),
        )
        found.append(day)
        before = stack
    return start, found


def groups_of(found: Sequence[Day], step: int) -> list[list[Day]]:
    """The days in groups that each span so many days at most."""
    groups: list[list[Day]] = []
    for day in found:
        begun = groups[-1][0].date if groups else None
        if begun is None or (day.date - begun).days >= step:
            groups.append([])
        groups[-1].append(day)
    return groups


def as_one(group: Sequence[Day]) -> Day:
    """A group of days as a single one: the stack of its last, and all that was released in it."""
    return replace(
        group[-1],
        released=tuple(release for day in group for release in day.released),
        yanked=tuple(release for day in group for release in day.yanked),
    )


def joined(start: Stack, groups: Sequence[Sequence[Day]]) -> list[Day]:
    """Each group as one day; what has moved is told against the group before it."""
    found = []
    before = start
    for day in map(as_one, groups):
        found.append(replace(day, moved=tuple(moves(before, day.stack))))
        before = day.stack
    return found


def newest_on(date: datetime.date, releases: Releases, held: Holds) -> Stack:
    """The stack of everything newest on a day.

    A held package takes the newest of its versions that was out on that day, or, where none was,
    the oldest of them.
    """
    versions = {}
    for package in PACKAGES:
        out = [v for v in releases.final(package) if _date(releases, package, v) <= date]
        allowed = held.get(package)
        if allowed:
            early = [v for v in allowed if _date(releases, package, v) <= date]
            versions[package] = str(early[-1] if early else allowed[0])
        else:
            versions[package] = str(out[-1])
    # A held build may be younger than the day; an index that is asked as of then has none of it.
    as_of = max([date, *(_date(releases, package, Version(versions[package])) for package in held)])
    return Stack.model_validate({"as_of": as_of, **versions})


def moves(before: Stack, after: Stack) -> Iterator[Release]:
    """What the later of two stacks has and the earlier has not."""
    for package in PACKAGES:
        if getattr(before, package) != getattr(after, package):
            yield Release(package, Version(getattr(after, package)))


def _check(first: datetime.date, last: datetime.date, releases: Releases) -> None:
    if first > last:
        raise BadInput(f"--replay {first} {last}: the first day is after the last")
    newest = datetime.date.fromisoformat(releases.as_of)
    # Before it, some package had no release yet, so that there was no stack.
    oldest = max(
        min(_date(releases, package, version) for version in releases.final(package))
        for package in PACKAGES
    )
    if last > newest or first <= oldest:
        raise BadInput(
            f"--replay {first} {last}: the list of releases has the days after {oldest} up to "
            f"{newest}; trl-compat refresh brings it up to date"
        )


def _dates(
    first: datetime.date, last: datetime.date, releases: Releases
) -> Sequence[datetime.date]:
    found = {
        date
        for package in PACKAGES
        for version in releases.of(package)
        if not version.is_prerelease
        and first <= (date := _date(releases, package, version)) <= last
    }
    return sorted(found)


def _of_day(date: datetime.date, releases: Releases, *, yanked: bool) -> Iterator[Release]:
    for package in PACKAGES:
        final = set(releases.final(package))
        for version in releases.of(package):
            if version.is_prerelease or _date(releases, package, version) != date:
                continue
            if (version not in final) is yanked:
                yield Release(package, version)


def _date(releases: Releases, package: str, version: Version) -> datetime.date:
    return datetime.date.fromisoformat(releases.dates[package][version.public])
