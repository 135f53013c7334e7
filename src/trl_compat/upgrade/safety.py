"""What speaks against a bump: a failure that was not there before, or a requirement.

A failure that the versions before it had, too, under the same conditions or wider ones, is not new
and speaks against nothing, as in the gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat.doctor.conditions import Named, phrase
from trl_compat.doctor.matching import Match, matches
from trl_compat.doctor.records import Record
from trl_compat.requires import Requires
from trl_compat.sources.source import Source
from trl_compat.upgrade.search import Versions


class Safety:
    """Judges bumps of one environment by the records, and by what releases require.

    Args:
        source: what one has; its other packages stay as they are.
        named: the conditions that the user named.
    """

    def __init__(
        self, records: Mapping[str, Record], requires: Requires, source: Source, named: Named
    ) -> None:
        self._records, self._requires = records, requires
        self._source, self._named = source, named
        # Most steps leave most records alone: what decides a record is looked up once.
        self._met: dict[tuple[object, ...], list[Match]] = {}
        self.refused: dict[tuple[tuple[str, Version], ...], str] = {}

    def objections(self, before: Versions, after: Versions) -> tuple[str, ...]:
        """What speaks against the step, the advisories by their ids."""
        missing = tuple(self.unmet(after))
        if missing:
            return missing
        if reason := self.refused.get(tuple(sorted(after.items()))):
            return (reason,)
        return (*self._gone(before, after), *self._new(before, after))

    def unmet(self, state: Versions) -> Iterator[str]:
        """Requirements between the packages that do not hold."""
        for package, version in state.items():
            required = self._requires.get(package, {}).get(version.public, {})
            for other, range_ in required.items():
                if other in state and not _in(state[other], range_):
                    yield f"{package} {version} requires {other}{range_}"

    def failures(self, state: Versions) -> dict[str, list[Match]]:
        """The failures that apply, or would under conditions that nobody named."""
        found = {name: self._matches(record, state) for name, record in self._records.items()}
        return {name: mine for name, mine in found.items() if mine}

    def _gone(self, before: Versions, after: Versions) -> Iterator[str]:
        """Trainers that the user names and that only the versions before have."""
        used = set(self._named.get("trainer", ()))
        for name, record in self._records.items():
            lost = [
                f"{package} {after[package]}"
                for package, range_ in record.available.items()
                if package in after and _in(before[package], range_)
                if not _in(after[package], range_)
            ]
            for block in record.blocks:
                trainers = used & set(block.conditions.get("trainer", ()))
                if lost and trainers:
                    yield f"{lost[0]} has no {', '.join(map(str, trainers))} any more ({name})"
                    break

    def _new(self, before: Versions, after: Versions) -> Iterator[str]:
        for name, record in self._records.items():
            known = self._matches(record, before)
            new = [m for m in self._matches(record, after) if not _covered(m, known)]
            if new:
                clauses = dict.fromkeys(phrase(m.unnamed) for m in new if m.unnamed)
                yield name + (f" (if you use {' or '.join(clauses)})" if clauses else "")

    def _matches(self, record: Record, state: Versions) -> list[Match]:
        key = (record.id, *((p, state.get(p)) for p in sorted(_packages(record.id, self._records))))
        if key not in self._met:
            versions = {**self._source.versions, **{p: str(v) for p, v in state.items()}}
            source = replace(self._source, versions=MappingProxyType(versions))
            self._met[key] = matches(record, source, self._named)
        return self._met[key]


def _covered(new: Match, known: Sequence[Match]) -> bool:
    """Whether what is met now was met before under the same conditions or wider ones."""
    return any(
        all(
            name in new.unnamed and set(new.unnamed[name]) <= set(allowed)
            for name, allowed in old.unnamed.items()
        )
        for old in known
    )


def _packages(name: str, records: Mapping[str, Record]) -> frozenset[str]:
    """The packages whose versions decide whether a record applies."""
    return frozenset(package for package, _ in _ranges_of(records[name]))


def _ranges_of(record: Record) -> Iterator[tuple[str, str]]:
    yield from record.available.items()
    for block in record.blocks:
        yield from block.where.versions.items()
        for before in (*block.absent, *block.hidden):
            yield from before.where.versions.items()


@cache
def _set(range_: str) -> SpecifierSet:
    return SpecifierSet(range_)


@cache
def _in(version: Version, range_: str) -> bool:
    return _set(range_).contains(version, prereleases=True)


def worth_trying(
    records: Mapping[str, Record],
    requires: Requires,
    start: Versions,
    goal: Mapping[str, SpecifierSet],
) -> dict[str, list[Version]]:
    """The releases that a search needs to look at, the newest first.

    Releases that nothing known tells apart (no range of an advisory, no requirement, not the goal)
    are as one: the newest stands for them, and none where it is as what one has.
    """
    told_apart: dict[str, set[str]] = {package: set() for package in start}
    for record in records.values():
        for package, range_ in _ranges_of(record):
            told_apart.setdefault(package, set()).add(range_)
    for by_version in requires.values():
        for required in by_version.values():
            for package, range_ in required.items():
                told_apart.setdefault(package, set()).add(range_)
    found = {}
    for package, current in start.items():
        wanted = {str(goal[package])} if package in goal else set()
        ranges = sorted(told_apart[package] | wanted)

        def kind(
            version: Version, package: str = package, ranges: Sequence[str] = ranges
        ) -> tuple[object, ...]:
            required = requires.get(package, {}).get(version.public, {})
            return (*(_in(version, range_) for range_ in ranges), *sorted(required.items()))

        newest = {kind(v): v for v in sorted(map(Version, requires.get(package, {})))}
        mine = kind(current)
        chosen = (v for k, v in newest.items() if v > current and k != mine)
        found[package] = sorted(chosen, reverse=True)
    return found
