"""pip constraints that avoid a failure: the negation of where it shows, as far as pip can say it.

A failure shows where one package is in a range *and* another in another.  pip has no "or": so the
constraint is put on a single package, one that every remaining block names, and each package that
can do it alone gives ways.  Nor can pip say "below this or from that on": of a short range in the
middle every release is excluded by name, of a long one either side is a way of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trl_compat import releases
from trl_compat.doctor.conditions import Named
from trl_compat.doctor.matching import inside, matches
from trl_compat.doctor.records import Block, Record
from trl_compat.packages import PACKAGES
from trl_compat.sources.source import Source

LISTED = 16  # releases that are excluded by name; with more, the list is of no use to anybody


@dataclass(frozen=True)
class Way:
    """A constraint on one package.

    ``excluded`` is how many releases it takes away; ``lacks`` that no release that is left has the
    feature that fails.
    """

    package: str
    specifier: str
    excluded: int
    lacks: bool

    def __str__(self) -> str:
        why = "  # these releases do not have what fails" if self.lacks else ""
        return f"{self.package}{self.specifier}{why}"


@dataclass(frozen=True)
class Avoidance:
    """The ways to avoid a failure, the mildest first, and what pip cannot say, in sentences."""

    record: Record
    ways: tuple[Way, ...]
    caveats: tuple[str, ...]
    concerned: bool = True


def avoid(record: Record, given: Mapping[str, str], named: Named) -> Avoidance:
    """The constraints that avoid a failure, where some packages are at given versions."""
    source = Source("the given versions", "requirements", versions=given, complete=False)
    blocks = [match.block for match in matches(record, source, named)]
    caveats = tuple(dict.fromkeys(_commits(record.blocks, given)))
    if not blocks:
        return Avoidance(record, (), caveats, concerned=False)
    free = [p for p in PACKAGES if p not in given]
    able = [p for p in free if all(p in block.where.versions for block in blocks)]
    ways = [way for package in able for way in _ways(package, record, blocks)]
    ways.sort(key=lambda way: (way.lacks, way.excluded, way.package != "trl"))
    return Avoidance(record, tuple(ways), caveats)


def _ways(package: str, record: Record, blocks: Iterable[Block]) -> Iterator[Way]:
    """The constraints on a package that leave every block."""
    known = releases.known().final(package)
    ranges = [block.where.versions[package] for block in blocks]
    hit = [v for v in known if any(inside(v, range_) for range_ in ranges)]
    if not hit:
        return
    sides = {f"<{hit[0]}": [v for v in known if v < hit[0]]}
    newer = [v for v in known if v > hit[-1]]
    if newer:
        sides[f">={newer[0]}"] = newer
        if len(hit) <= LISTED and sides[f"<{hit[0]}"]:
            sides[",".join(f"!={v}" for v in hit)] = [v for v in known if v not in hit]
    available = record.available.get(package, "")
    for specifier, left in sides.items():
        if left:
            lacks = not any(inside(version, available) for version in left)
            yield Way(package, specifier, len(known) - len(left), lacks)


def _commits(blocks: Iterable[Block], given: Mapping[str, str]) -> Iterator[str]:
    for block in blocks:
        for package, commits in block.where.commits.items():
            short = ", ".join(commit[:9] for commit in commits)
            if package not in given:
                yield f"a constraint cannot exclude {package} from git at {short}"


def text(avoidance: Avoidance, given: Mapping[str, str]) -> str:
    """The constraints as a file for ``pip install -c``; other ways stand in comments."""
    record = avoidance.record
    lines = [f"# avoids {record.id}: {record.title}"]
    if given:
        lines.append("# given " + ", ".join(f"{p}=={v}" for p, v in given.items()))
    if not avoidance.concerned:
        lines.append("# nothing to avoid: no release is affected under these conditions")
    for number, way in enumerate(avoidance.ways):
        lines.append(f"# or: {way}" if number else str(way))
    lines += [f"# {caveat}" for caveat in avoidance.caveats]
    if any("!=" in way.specifier for way in avoidance.ways):
        lines.append("# pip cannot say 'below this or from that on', so each release is named")
    return "\n".join(lines) + "\n"
