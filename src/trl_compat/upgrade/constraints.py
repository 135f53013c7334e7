"""pip constraints that avoid a failure: the negation of its ranges, as far as pip can express it.

A failure occurs if one package is in a range *and* another one in another range.  pip has no "or",
so each constraint is on a single package, and each package that is sufficient alone gives one or
more solutions.  Nor can pip express "below X or from Y": of a short range in the middle every
release is excluded by name; for a long one each side is a separate solution.

A release is allowed if moving to it from the nearest affected one brings no other known failure and
agrees with the given versions.  A patch is named first, if one is known: it keeps the versions and
their features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from packaging.version import Version

from trl_compat.matching.applies import matches
from trl_compat.ranges import inside
from trl_compat.shipped import requires
from trl_compat.shipped.records import AffectedScope, CompiledAdvisory
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.recommend import packages_of, seen_right
from trl_compat.upgrade.safety import Safety
from trl_compat.upgrade.versions import State
from trl_compat.usage.conditions import Named

LISTED = 16  # releases that are excluded by name; with more, the list is of no use to anybody


@dataclass(frozen=True)
class Way:
    """A constraint on one package.

    ``excluded`` is how many releases it takes away; ``lacks`` that no release that is left has the
    feature that fails; ``newest`` is the release up to which it was checked, if it has no end.
    """

    package: str
    specifier: str
    excluded: int
    lacks: bool
    newest: Version | None

    def __str__(self) -> str:
        told = ["these releases do not have the failing feature"] * self.lacks
        told += [f"checked up to {self.newest}, the newest known release"] * (
            self.newest is not None
        )
        return f"{self.package}{self.specifier}" + (f"  # {'; '.join(told)}" if told else "")


@dataclass(frozen=True)
class Constraints:
    """The ways to avoid a failure, the mildest first, and what pip cannot say, in sentences."""

    record: CompiledAdvisory
    ways: tuple[Way, ...]
    caveats: tuple[str, ...]
    concerned: bool = True


def avoid(
    record: CompiledAdvisory,
    given: Mapping[str, str],
    named: Named,
    records: Mapping[str, CompiledAdvisory],
) -> Constraints:
    """The constraints that avoid a failure, where some packages are at given versions."""
    source = Source("the given versions", "requirements", versions=given, complete=False)
    caveats = tuple(dict.fromkeys(_commits(record.blocks, given)))
    if not matches(record, source, named):
        return Constraints(record, (), caveats, concerned=False)
    safety = Safety({**records, record.id: record}, requires.known(), source, named)
    start = {package: Version(version) for package, version in given.items()}
    free = [package for package in packages_of(record) if package not in given]
    ways = [way for package in free for way in _ways(package, record, safety, start)]
    ways.sort(key=lambda way: (way.lacks, way.excluded, way.package != "trl"))
    return Constraints(record, tuple(ways), caveats)


@dataclass(frozen=True)
class _Release:
    """A release of a package: is it affected, and, if not, is it allowed, has it what fails?"""

    version: Version
    hit: bool
    allowed: bool
    has: bool


def _ways(package: str, record: CompiledAdvisory, safety: Safety, start: State) -> Iterator[Way]:
    """The constraints on a package that leave every block."""
    known = list(_releases(package, record, safety, start))
    if not any(one.hit for one in known) or not any(one.allowed for one in known):
        return
    out = [one for one in known if not one.allowed]
    if len(out) <= LISTED and known[0].allowed and known[-1].allowed:
        names = ",".join(f"!={one.version}" for one in out)
        yield Way(package, names, len(out), False, known[-1].version)
    for kind, group in groupby(enumerate(known), key=lambda item: _kind(item[1])):
        if kind[0]:
            places = [place for place, _ in group]
            yield _side(package, known, places[0], places[-1])


def _releases(
    package: str, record: CompiledAdvisory, safety: Safety, start: State
) -> Iterator[_Release]:
    spans = list(safety.spans.after(package, Version("0")))
    states = [{**start, package: span[0]} for span in spans]
    hit = [bool(safety.matches(record.id, state)) for state in states]
    places = [place for place, is_hit in enumerate(hit) if is_hit]
    available = record.available.get(package, "")
    for place, (span, state) in enumerate(zip(spans, states, strict=True)):
        allowed = False
        if places and not hit[place]:
            nearest = min(places, key=lambda other: abs(other - place))
            known = seen_right(record, package, span[0])
            allowed = known and not any(safety.problems(states[nearest], state))
        for version in span:
            yield _Release(version, hit[place], allowed, inside(version, available))


def _kind(one: _Release) -> tuple[bool, bool]:
    return one.allowed, one.has


def _side(package: str, known: Sequence[_Release], first: int, last: int) -> Way:
    """A row of releases as a constraint; open where it reaches the first or the newest known."""
    parts = [f">={known[first].version}"] if first else []
    if first == last:
        parts = [f"=={known[first].version}"]
    elif last + 1 < len(known):
        after = known[last + 1]
        parts.append(f"<{after.version}" if after.hit else f"<={known[last].version}")
    excluded = len(known) - (last - first + 1)
    newest = known[last].version if last + 1 == len(known) else None
    return Way(package, ",".join(parts), excluded, not known[first].has, newest)


def _commits(blocks: Sequence[AffectedScope], given: Mapping[str, str]) -> Iterator[str]:
    for block in blocks:
        for package, commits in block.where.commits.items():
            short = ", ".join(commit[:9] for commit in commits)
            if package not in given:
                yield f"a constraint cannot exclude {package} from git at {short}"


def patch(record: CompiledAdvisory, given: Mapping[str, str]) -> str:
    """Which patch keeps the versions, in a sentence; empty if there is none for those given."""
    known = {package: Version(version) for package, version in given.items()}
    for fix in record.patches:
        ranges = fix.where.versions
        if all(p not in known or inside(known[p], range_) for p, range_ in ranges.items()):
            return f"to keep your versions, patch: trl-compat fix {record.id} ({fix.summary})"
    return ""


def text(avoidance: Constraints, given: Mapping[str, str]) -> str:
    """The constraints as a file for ``pip install -c``; the patch and other ways in comments."""
    record = avoidance.record
    lines = [f"# avoids {record.id}: {record.title}"]
    if given:
        lines.append("# given " + ", ".join(f"{p}=={v}" for p, v in given.items()))
    if not avoidance.concerned:
        lines.append("# no constraint needed: no release is affected under these conditions")
    elif patched := patch(record, given):
        lines.append(f"# {patched}")
    for number, way in enumerate(avoidance.ways):
        lines.append(f"# or: {way}" if number else str(way))
    lines += [f"# {caveat}" for caveat in avoidance.caveats]
    if any("!=" in way.specifier for way in avoidance.ways):
        lines.append(
            "# pip cannot express 'below X or from Y', so each release is excluded by name"
        )
    return "\n".join(lines) + "\n"
