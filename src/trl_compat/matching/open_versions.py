"""What is certain although versions or conditions are open: blocks that cover all possibilities.

If transformers is not pinned, one block below 5 and one from 5 on together always apply; so do
blocks for each value of an unspecified condition.  So the releases that an installer may choose,
and the possible values, are enumerated.  Releases that no range distinguishes count as one, which
keeps the number small; if it is not small, nothing is concluded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.conditions import Value, allows, common
from trl_compat.matching.applies import Match, neighbours, possible
from trl_compat.packages import REQUIRED_BY_TRL
from trl_compat.ranges import inside
from trl_compat.shipped.records import CompiledAdvisory
from trl_compat.stacks.sources.source import Source
from trl_compat.usage.conditions import NEEDS, Named
from trl_compat.usage.vocabulary import Vocabulary

LIMIT = 20_000  # cases that are looked at
TOGETHER = 4  # blocks that are looked at together, out of at most so many
MOST = 12

Release = Version | None
"""A release that may be there; None for none of those that ranges speak of."""


@dataclass(frozen=True)
class Settled:
    """Conditions under which a failure shows whatever the open versions turn out to be.

    Attributes:
        matches: the blocks that cover all of them together.
        unnamed: what nobody named and has to hold; ``provisos`` are clauses.
        chosen: which of several named values it needs.
    """

    matches: tuple[Match, ...]
    unnamed: Mapping[str, tuple[Value, ...]]
    chosen: Mapping[str, tuple[Value, ...]]
    provisos: tuple[str, ...]

    @property
    def open(self) -> bool:
        """Whether anything but the versions has to hold."""
        return bool(self.unnamed or self.provisos)


def settled(
    record: CompiledAdvisory, found: Sequence[Match], source: Source, named: Named
) -> tuple[Settled, ...]:
    """The smallest sets of matches that cover every version that is possible."""
    kept = []
    rest = []
    for match in found:
        single = alone(match)
        if _covers(single, record, source, named):
            kept.append(single)
        else:
            rest.append(match)
    if len(rest) > MOST:
        return tuple(kept)
    sets: list[frozenset[int]] = []
    for size in range(2, TOGETHER + 1):
        for chosen in itertools.combinations(range(len(rest)), size):
            if any(smaller <= set(chosen) for smaller in sets):
                continue
            together = _meet([rest[n] for n in chosen])
            if together is not None and _covers(together, record, source, named):
                sets.append(frozenset(chosen))
                kept.append(together)
    return tuple(kept)


def whatever(cases: Sequence[Settled], named: Named, words: Vocabulary) -> tuple[Settled, ...]:
    """The cases that together hold whatever is meant by what was not named; none if they do not."""
    sure = [case for case in cases if not case.provisos]
    at_once = tuple(case for case in sure if not case.open)
    if at_once:
        return at_once
    for use in _uses(sure):
        mine = [case for case in sure if _serves(case, use)]
        if mine and _all_values(mine, named, words):
            return tuple(mine)
    return ()


def alone(match: Match) -> Settled:
    """One match by itself, whatever is not known of its versions."""
    one = _meet([match])
    assert one is not None, "a match does not contradict itself"
    return one


def _meet(found: Sequence[Match]) -> Settled | None:
    """Where all of some matches hold; None if nowhere."""
    unnamed = _intersection(match.unnamed for match in found)
    chosen = _intersection(match.chosen for match in found)
    if unnamed is None or chosen is None:
        return None
    if len(chosen) > 1:  # which of the values are used together, nobody said
        unnamed, chosen = {**unnamed, **chosen}, {}
    provisos = dict.fromkeys(clause for match in found for clause in match.provisos)
    return Settled(tuple(found), unnamed, chosen, tuple(provisos))


def _intersection(
    conditions: Iterable[Mapping[str, Sequence[Value]]],
) -> dict[str, tuple[Value, ...]] | None:
    met: dict[str, tuple[Value, ...]] = {}
    for one in conditions:
        for name, values in one.items():
            met[name] = common(met.get(name, tuple(values)), values)
            if not met[name]:
                return None
    return met


def _covers(case: Settled, record: CompiledAdvisory, source: Source, named: Named) -> bool:
    """Whether one of the blocks holds for every combination of releases that is possible."""
    packages = dict.fromkeys(package for match in case.matches for package in match.unknown)
    kinds = []
    for package in packages:
        asked = [_range(match, package, record) for match in case.matches]
        used = _is_used(package, case, named)
        releases = releases_of(package, source, used=used)
        kinds.append({tuple(_in(one, range_) for range_ in asked) for one in releases})
    size = 1
    for kind in kinds:
        size *= len(kind)
    if size > LIMIT:
        return False
    numbers = range(len(case.matches))
    return all(
        any(all(kind[number] for kind in combined) for number in numbers)
        for combined in itertools.product(*kinds)
    )


def _range(match: Match, package: str, record: CompiledAdvisory) -> tuple[str, ...]:
    ranges = (match.block.where.versions.get(package), record.available.get(package))
    return tuple(range_ for range_ in ranges if range_)


def _in(release: Release, ranges: tuple[str, ...]) -> bool:
    if release is None:
        return not ranges
    return all(inside(release, range_) for range_ in ranges)


def releases_of(package: str, source: Source, *, used: bool) -> tuple[Release, ...]:
    """The releases that a package of unknown version may have."""
    version = source.version(package)
    if version is not None:
        return neighbours(package, version)
    if source.commit(package) is not None:
        return (*possible(package, ""), None)
    wanted = source.unpinned.get(package)
    there = possible(package, wanted or "")
    missing = wanted is None and not used and package not in REQUIRED_BY_TRL
    return (*there, None) if missing or not there else there


def _is_used(package: str, case: Settled, named: Named) -> bool:
    """Whether a condition that holds here needs the package."""
    return any(
        needed == package
        and (tuple(case.unnamed.get(name, ())) == (value,) or value in named.get(name, ()))
        for (name, value), needed in NEEDS.items()
    )


def _uses(cases: Sequence[Settled]) -> Iterator[Mapping[str, Value]]:
    """Nothing in particular, then each of the values that a case chooses."""
    yield {}
    seen = {(name, v) for case in cases for name, values in case.chosen.items() for v in values}
    yield from ({name: value} for name, value in sorted(seen, key=str))


def _serves(case: Settled, use: Mapping[str, Value]) -> bool:
    return all(name in use and allows(values, use[name]) for name, values in case.chosen.items())


def _all_values(cases: Sequence[Settled], named: Named, words: Vocabulary) -> bool:
    """Whether some case holds for every combination of values of what was not named."""
    names = dict.fromkeys(name for case in cases for name in case.unnamed)
    domains = []
    for name in names:
        domain = named.get(name) or words.domain(name)
        if domain is None:
            return False  # it can have any value
        domains.append(domain)
    size = 1
    for domain in domains:
        size *= len(domain)
    if size > LIMIT:
        return False
    return all(
        any(
            all(
                allows(case.unnamed.get(name, (value,)), value)
                for name, value in zip(names, values, strict=True)
            )
            for case in cases
        )
        for values in itertools.product(*domains)
    )
