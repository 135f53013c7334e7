"""Problems of a change of versions: a new failure, or an unmet requirement.

A failure that already applies before, under the same or wider conditions, is not new and is no
problem, as in the gate.  A failure masked by another one counts: it appears once the other is
fixed.

Versions far apart in time have not been run, and most fail in ways without an advisory: no package
is moved to a release more than a year after TRL's (transformers 5 under TRL 0.12).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from packaging.version import Version

from trl_compat.conditions import Value, within
from trl_compat.matching.applies import Match, matches
from trl_compat.matching.open_versions import Settled, settled
from trl_compat.packages import PACKAGES
from trl_compat.ranges import inside
from trl_compat.shipped import releases
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.shipped.requires import Requires
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.spans import Spans, ranges_of
from trl_compat.upgrade.versions import State
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import Named, phrase

HALF_YEARS = 2  # that a package may be younger than TRL
Open = Match | Settled
"""Conditions under which a failure shows."""


@dataclass(frozen=True)
class Problem:
    """What speaks against a change.

    Attributes:
        failure: its id, if it is a known one.
        final: no other release of another package ends it.
    """

    text: str
    failure: str = ""
    final: bool = False


class Safety:
    """Judges changes of one environment by the records, and by what releases require.

    Args:
        source: what one has; what is not changed stays as it is there.
        named: the conditions that the user named.
        accepted: failures that speak against nothing.
    """

    def __init__(
        self,
        records: Mapping[str, CompiledAdvisory],
        requires: Requires,
        source: Source,
        named: Named,
        accepted: Collection[str] = (),
    ) -> None:
        self.records, self.source, self.named = records, source, named
        self._requires, self._accepted = requires, accepted
        self.spans = Spans(records, requires, releases.known())
        self._packages = {
            name: tuple(sorted({package for package, _ in ranges_of(record)}))
            for name, record in records.items()
        }
        # Most changes leave most records alone, and releases of a span are alike to all of them.
        self._met: dict[tuple[object, ...], list[Match]] = {}
        self._news: dict[tuple[object, ...], str] = {}
        self._asked: dict[tuple[str, Version], Mapping[str, str]] = {}
        self._kinds: dict[tuple[str, Version], object] = {}
        self.refused: dict[tuple[tuple[str, Version], ...], str] = {}

    def objections(self, before: State, after: State) -> tuple[str, ...]:
        """What speaks against a step of a plan; what is forbidden before it must be mended by it.

        Requirements come first, and what does not meet them is judged no further.
        """
        forbidden = tuple(problem.text for problem in self.unmet(after))
        if forbidden:
            return forbidden
        if reason := self.refused.get(tuple(sorted(after.items()))):
            return (reason,)
        changed = moved_between(before, after)
        return tuple(problem.text for problem in self._worse(changed, before, after))

    def problems(
        self, before: State, after: State, undecided: frozenset[str] = frozenset()
    ) -> Iterator[Problem]:
        """What speaks against a change of any number of packages.

        What has to do with packages that are not decided yet is left aside.
        """
        changed = moved_between(before, after)
        yield from self._unmet(after, changed, undecided)
        yield from self._worse(changed, before, after, undecided)

    def unmet(self, state: State) -> tuple[Problem, ...]:
        """Requirements between the packages that do not hold."""
        return tuple(self._unmet(state, frozenset(state)))

    def brought(self, before: State, after: State) -> tuple[str, ...]:
        """The failures that a change brings."""
        changed = moved_between(before, after)
        return tuple(p.failure for p in self._every_new(changed, before, after, frozenset()))

    def _unmet(
        self, state: State, chosen: frozenset[str], undecided: frozenset[str] = frozenset()
    ) -> Iterator[Problem]:
        """Requirements that do not hold between some packages and the others."""
        python = self.source.version("python")
        for package, version in state.items():
            for other, range_ in self._required(package, version).items():
                have = python if other == "python" else state.get(other)
                if have is None or inside(have, range_) or chosen.isdisjoint((package, other)):
                    continue
                if undecided.isdisjoint((package, other)):
                    told = f"Python {range_}" if other == "python" else f"{other}{range_}"
                    yield Problem(f"{package} {version} requires {told}", final=other == "python")

    def failures(self, state: State) -> dict[str, list[Match]]:
        """The failures that apply, or would under conditions that nobody named."""
        found = {name: self.matches(name, state) for name in self.records}
        return {name: mine for name, mine in found.items() if mine}

    def matches(self, name: str, state: State) -> list[Match]:
        """The blocks of a record that apply to a set of versions, or may."""
        key = (name, *(self._kind(package, state) for package in self._packages[name]))
        if key not in self._met:
            self._met[key] = matches(self.records[name], moved(self.source, state), self.named)
        return self._met[key]

    def _worse(
        self,
        changed: frozenset[str],
        before: State,
        after: State,
        undecided: frozenset[str] = frozenset(),
    ) -> Iterator[Problem]:
        if "trl" not in undecided:
            yield from self._of_another_time(changed - undecided, after)
        yield from self._gone(changed - undecided, before, after)
        yield from self._new(changed, before, after, undecided)

    def _kind(self, package: str, state: State) -> object:
        version = state.get(package)
        if version is None:
            return None
        key = (package, version)
        if key not in self._kinds:
            self._kinds[key] = self.spans.kind(package, version)
        return self._kinds[key]

    def _required(self, package: str, version: Version) -> Mapping[str, str]:
        key = (package, version)
        if key not in self._asked:
            self._asked[key] = self._requires.get(package, {}).get(version.public, {})
        return self._asked[key]

    def _of_another_time(self, changed: frozenset[str], after: State) -> Iterator[Problem]:
        trl = after.get("trl")
        time = None if trl is None else self.spans.half_year("trl", trl)
        if time is None:
            return
        for package in changed - {"trl"}:
            theirs = self.spans.half_year(package, after[package])
            if theirs is not None and theirs - time > HALF_YEARS:
                text = f"{package} {after[package]} was released more than a year after trl {trl}"
                yield Problem(text)

    def _gone(self, changed: frozenset[str], before: State, after: State) -> Iterator[Problem]:
        """Trainers that the user names and that only the versions before have."""
        used = {t for t in self.named.get("trainer", ()) if not _still_there(t, after)}
        for name, record in self.records.items() if used else ():
            for package, trainers in _lost(record, changed, before, after):
                if told := ", ".join(sorted(str(t) for t in used & trainers)):
                    has = f"{package} {after[package]} no longer has {told} ({name})"
                    yield Problem(has, final=True)
                    break

    def _new(
        self, changed: frozenset[str], before: State, after: State, undecided: frozenset[str]
    ) -> Iterator[Problem]:
        """The failures that a change brings and that count."""
        found = self._every_new(changed, before, after, undecided)
        yield from (problem for problem in found if problem.failure not in self._accepted)

    def _every_new(
        self, changed: frozenset[str], before: State, after: State, undecided: frozenset[str]
    ) -> Iterator[Problem]:
        was = {package: self._kind(package, before) for package in PACKAGES}
        then = {**was, **{package: self._kind(package, after) for package in changed}}
        for name, packages in self._packages.items():
            if changed.isdisjoint(packages) or not undecided.isdisjoint(packages):
                continue
            key = (name, *(was[p] for p in packages), *(then[p] for p in packages))
            if key not in self._news:
                self._news[key] = _said(
                    name, self._had(name, before, after), self._cases(name, after)
                )
            if said := self._news[key]:
                yield Problem(said, name)

    def _had(self, name: str, before: State, after: State) -> Sequence[Open]:
        """Where a failure shows before a change, for certain as after it.

        A commit that is exchanged for a release gets the benefit of the doubt: it may have had what
        the release has.
        """
        exchanged = after.keys() - before.keys()
        perhaps = [m for m in self.matches(name, before) if m.unknown and exchanged >= {*m.unknown}]
        return [*self._cases(name, before), *perhaps]

    def _cases(self, name: str, state: State) -> Sequence[Open]:
        """Where a failure shows for certain, whatever the versions that are not known.

        What depends on one of these is no reason against another package's release.
        """
        found = self.matches(name, state)
        if not any(match.unknown for match in found):
            return found
        source = moved(self.source, state)
        return settled(self.records[name], found, source, self.named)


def _said(name: str, known: Sequence[Open], found: Sequence[Open]) -> str:
    new = [case for case in found if not _covered(case, known)]
    clauses = dict.fromkeys(phrase(conditions) for case in new if (conditions := _conditions(case)))
    return (name + (f" (if you use {' or '.join(clauses)})" if clauses else "")) if new else ""


_text = cache(str)  # of the same few versions again and again


def moved(source: Source, state: State) -> Source:
    """What one has after a change."""
    versions = {**source.versions, **{package: _text(v) for package, v in state.items()}}
    return replace(
        source,
        versions=MappingProxyType(versions),
        commits={p: c for p, c in source.commits.items() if p not in state},
        unpinned={p: r for p, r in source.unpinned.items() if p not in state},
    )


def _lost(
    record: CompiledAdvisory, changed: frozenset[str], before: State, after: State
) -> Iterator[tuple[str, set[Value]]]:
    """The trainers that a change takes away, with the package that had them."""
    had = {p: before.get(p) for p in changed}
    trainers = {t for block in record.blocks for t in block.conditions.get("trainer", ())}
    for package, range_ in record.available.items():
        was = had.get(package)
        if package not in changed or inside(after[package], range_):
            continue
        if was is None or inside(was, range_):
            yield package, trainers
    for gone in (absent for block in record.blocks for absent in block.absent):
        ranges = gone.where.versions
        if not all(p in after and inside(after[p], r) for p, r in ranges.items()):
            continue
        for package in changed & ranges.keys():
            was = had[package]
            if was is None or not inside(was, ranges[package]):
                yield package, set(gone.conditions.get("trainer", ()))


def _still_there(trainer: Value, after: State) -> bool:
    """Whether TRL is known to have a trainer; a record may say only that it cannot fail there."""
    trl = after.get("trl")
    released = None if trl is None else vocabulary.trainer(str(trainer), trl)
    return trl is not None and released is not None and released.is_in(trl)


def moved_between(before: State, after: State) -> frozenset[str]:
    """The packages that a change moves."""
    return frozenset(p for p, version in after.items() if before.get(p) != version)


def _conditions(case: Open) -> dict[str, Sequence[Value]]:
    return {**case.unnamed, **case.chosen}


def _covered(new: Open, known: Sequence[Open]) -> bool:
    """Whether what is met now was met before under the same conditions or wider ones."""
    mine = _conditions(new)
    return any(
        all(
            name in mine and within(mine[name], tuple(allowed))
            for name, allowed in _conditions(old).items()
        )
        and (not old.provisos or bool(new.provisos))
        for old in known
    )
