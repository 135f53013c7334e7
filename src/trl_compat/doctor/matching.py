"""Does a record apply to what someone has?  Yes, no, or not known: three answers, never two.

*Not known* is what a file leaves open (a range, a package that it does not mention, a commit that
was never examined); it is reported as such.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat import releases
from trl_compat.doctor.conditions import NEEDS, Named, needed
from trl_compat.doctor.records import Before, Block, Record, Value, Where
from trl_compat.sources.source import Source


class Answer(enum.Enum):
    """Yes, no, or not known."""

    NO = 0
    UNKNOWN = 1
    YES = 2


@dataclass(frozen=True)
class Match:
    """A block that applies, or may: with what is open.

    Attributes:
        block: the scope.
        unnamed: its conditions that nobody named.
        unknown: packages whose version is not known.
        hidden_by: the failure that strikes first.
    """

    block: Block
    unnamed: dict[str, list[Value]]
    unknown: tuple[str, ...] = ()
    hidden_by: str | None = None

    @property
    def certain(self) -> bool:
        """Nothing is open."""
        return not self.unnamed and not self.unknown and not self.block.provided


def matches(record: Record, source: Source, named: Named) -> list[Match]:
    """The blocks of a record that apply, or of which it is not known whether they do."""
    # Of a commit that the record does not name, its ranges say nothing.
    examined = frozenset(c for b in record.blocks for cs in b.where.commits.values() for c in cs)
    available = {p: r for p, r in record.available.items() if source.version(p) is not None}
    if _where(Where(available, {}), source, examined)[0] is Answer.NO:
        return []
    found = []
    for block in record.blocks:
        answer, unknown = _where(block.where, source, examined)
        unnamed = _unnamed(block, source, named)
        if answer is Answer.NO or unnamed is None:
            continue
        if any(_holds(before, source, named) for before in block.absent):
            continue
        hidden = (before.by for before in block.hidden if _holds(before, source, named))
        found.append(Match(block, unnamed, unknown, next(hidden, None)))
    return found


def same_commit(one: str, other: str) -> bool:
    """Either may be abbreviated."""
    return one.startswith(other) or other.startswith(one)


def covers(where: Where, source: Source) -> bool:
    """Whether a conjunction certainly holds."""
    return _where(where, source, frozenset())[0] is Answer.YES


def _holds(before: Before, source: Source, named: Named) -> bool:
    met = all(set(named.get(n, ())) <= set(a) and n in named for n, a in before.conditions.items())
    return met and covers(before.where, source)


def _where(
    where: Where, source: Source, examined: frozenset[str]
) -> tuple[Answer, tuple[str, ...]]:
    unknown = []
    for package, commits in where.commits.items():
        commit = source.commit(package)
        if commit is None or not any(same_commit(commit, known) for known in commits):
            return Answer.NO, ()
    for package, range_ in where.versions.items():
        match _in_range(package, range_, source, examined):
            case Answer.NO:
                return Answer.NO, ()
            case Answer.UNKNOWN:
                unknown.append(package)
    return (Answer.UNKNOWN if unknown else Answer.YES), tuple(unknown)


def _in_range(package: str, range_: str, source: Source, examined: frozenset[str]) -> Answer:
    version = source.version(package)
    if version is not None:
        return Answer.YES if inside(version, range_) else Answer.NO
    commit = source.commit(package)
    if commit is not None:
        known = any(same_commit(commit, one) for one in examined)
        return Answer.NO if known else Answer.UNKNOWN
    if source.absent(package):
        return Answer.NO
    wanted = source.unpinned.get(package)
    allowed = [v for v in releases.known().final(package) if wanted and inside(v, wanted)]
    if allowed and not any(inside(v, range_) for v in allowed):
        return Answer.NO
    if allowed and all(inside(v, range_) for v in allowed):
        return Answer.YES
    return Answer.UNKNOWN


def inside(version: Version, range_: str) -> bool:
    """Whether a version is in a PEP 440 range."""
    return SpecifierSet(range_).contains(version, prereleases=True)


def _unnamed(block: Block, source: Source, named: Named) -> dict[str, list[Value]] | None:
    """The conditions that are open, or None if one of them does not hold."""
    unnamed: dict[str, list[Value]] = {}
    for name, allowed in needed(block.conditions).items():
        if all((name, v) in NEEDS and source.absent(NEEDS[name, v]) for v in allowed):
            return None
        said = named.get(name)
        if said is None:
            unnamed[name] = allowed
        elif not set(said) & set(allowed):
            return None
        elif not set(said) <= set(allowed):
            unnamed[name] = [value for value in said if value in allowed]
    return unnamed
