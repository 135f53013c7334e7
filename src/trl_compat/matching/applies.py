"""Does an advisory apply to a stack?  There are three answers: yes, no, and unknown.

*Unknown* is what a file leaves open (a range, a package that it does not list, a commit that the
advisory does not cover); it is reported as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from packaging.version import Version

from trl_compat.conditions import Value, allows, within
from trl_compat.ranges import Answer, holds, inside, ranges, same_commit
from trl_compat.shipped import releases
from trl_compat.shipped.records import AffectedScope, Before, CompiledAdvisory, Where
from trl_compat.stacks.sources.source import Source
from trl_compat.text.nearest import either
from trl_compat.usage.conditions import EXTENDED, IMPLIES, NEEDS, Named, needed

ANYTHING = Source("anything", "requirements", versions={}, complete=False)


@dataclass(frozen=True)
class Match:
    """A block that applies, or may: with what is open.

    Attributes:
        block: the scope.
        unnamed: its conditions that nobody named.
        unknown: packages whose version is not known.
        hidden_by: the failure that strikes first.
        chosen: of several values that were named, and are all used, those that it needs.
        inherited: what must hold for a trainer that only extends one of the block's, as a clause.
    """

    block: AffectedScope
    unnamed: dict[str, list[Value]]
    unknown: tuple[str, ...] = ()
    hidden_by: str | None = None
    chosen: Mapping[str, list[Value]] = field(default_factory=dict)
    inherited: str = ""

    @property
    def certain(self) -> bool:
        """Nothing is open."""
        return not self.unnamed and not self.unknown and not self.provisos

    @property
    def provisos(self) -> tuple[str, ...]:
        """What must hold besides, as clauses."""
        return tuple(filter(None, (self.block.also_requires, self.inherited)))


def matches(record: CompiledAdvisory, source: Source, named: Named) -> list[Match]:
    """The blocks of a record that apply, or of which it is not known whether they do."""
    # Of a commit that the record does not name, its ranges say nothing.
    examined = frozenset(c for b in record.blocks for cs in b.where.commits.values() for c in cs)
    available = {p: r for p, r in record.available.items() if source.commit(p) is None}
    answer, unsure = _where(Where(available, {}), source, examined)
    if answer is Answer.NO:
        return []
    found = []
    for block in record.blocks:
        answer, unknown = _where(block.where, source, examined)
        use = _use(block, source, named) if answer is not Answer.NO else None
        if use is None:
            continue
        if any(_holds(before, source, named) for before in block.absent):
            continue
        hidden = (before.by for before in block.hidden if _holds(before, source, named))
        unknown = tuple(dict.fromkeys((*unknown, *unsure)))
        found.append(
            Match(block, use.unnamed, unknown, next(hidden, None), use.chosen, use.inherited)
        )
    return found


def can_concern(record: CompiledAdvisory, named: Named) -> bool:
    """Whether the record applies to what was named on any versions at all."""
    return any(
        _use(block, ANYTHING, named) is not None
        and not any(
            not before.where.versions and not before.where.commits and _met(before, named)
            for before in block.absent
        )
        for block in record.blocks
    )


def covers(where: Where, source: Source) -> bool:
    """Whether a conjunction certainly holds."""
    return _where(where, source, frozenset())[0] is Answer.YES


def _holds(before: Before, source: Source, named: Named) -> bool:
    return _met(before, named) and covers(before.where, source)


def _met(before: Before, named: Named) -> bool:
    return all(n in named and within(named[n], a) for n, a in before.conditions.items())


def _where(
    where: Where, source: Source, examined: frozenset[str]
) -> tuple[Answer, tuple[str, ...]]:
    def in_range(package: str, range_: str) -> Answer:
        return _in_range(package, range_, source, examined)

    return holds(where.versions, where.commits, in_range, source.commit)


def _in_range(package: str, range_: str, source: Source, examined: frozenset[str]) -> Answer:
    version = source.version(package)
    if version is not None:
        return _of_release(package, version, range_)
    commit = source.commit(package)
    if commit is not None:
        known = any(same_commit(commit, one) for one in examined)
        return Answer.NO if known else Answer.UNKNOWN
    if source.absent(package):
        return Answer.NO
    wanted = source.unpinned.get(package)
    allowed = possible(package, wanted) if wanted is not None else ()
    if allowed and not any(inside(v, range_) for v in allowed):
        return Answer.NO
    if allowed and all(inside(v, range_) for v in allowed):
        return Answer.YES
    return Answer.UNKNOWN


def _of_release(package: str, version: Version, range_: str) -> Answer:
    """Of a pre-release that no range speaks of, its neighbours say what may hold."""
    if inside(version, range_):
        return Answer.YES
    if version.is_prerelease and any(inside(v, range_) for v in neighbours(package, version)):
        return Answer.UNKNOWN
    return Answer.NO


def neighbours(package: str, version: Version) -> tuple[Version, ...]:
    """The final release before a pre-release, and the one that it leads to."""
    before = [v for v in releases.known().final(package) if v < version]
    return (*before[-1:], Version(version.base_version))


@cache
def possible(package: str, range_: str) -> tuple[Version, ...]:
    """The releases that an installer may take for a range."""
    listed = releases.known()
    early = ranges(range_).prereleases
    gone = {Version(v) for v in listed.yanked.get(package, {})}
    there = (v for v in listed.of(package) if v not in gone) if early else listed.final(package)
    return tuple(v for v in there if inside(v, range_))


@dataclass(frozen=True)
class _Use:
    """How a block stands to what was named."""

    unnamed: dict[str, list[Value]]
    chosen: dict[str, list[Value]]
    inherited: str


def _use(block: AffectedScope, source: Source, named: Named) -> _Use | None:
    """What is open of a block's conditions, or None if one of them does not hold."""
    unnamed: dict[str, list[Value]] = {}
    chosen: dict[str, list[Value]] = {}
    inherited = ""
    for name, allowed in needed(block.conditions).items():
        if all((name, v) in NEEDS and source.absent(NEEDS[name, v]) for v in allowed):
            return None
        said = named.get(name)
        if said is None:
            unnamed[name] = allowed
            continue
        both = [value for value in said if allows(allowed, value)]
        if not both:
            extended = [v for v in named.get(EXTENDED, ()) if v in allowed]
            if name != "trainer" or not extended:
                return None
            inherited = f"{either(said)} inherited it from {either(extended)}"
        elif len(both) < len(said) and not _said_by_another(name, block, named):
            chosen[name] = both
    if len(chosen) > 1:  # which of the values are used together, nobody said
        return _Use({**unnamed, **chosen}, {}, inherited)
    return _Use(unnamed, chosen, inherited)


def _said_by_another(name: str, block: AffectedScope, named: Named) -> bool:
    """Whether a named condition of the block implies this one."""
    return any(
        IMPLIES.get(other, ("",))[0] == name and other in named for other in block.conditions
    )
