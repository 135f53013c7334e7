"""pip constraints that avoid a failure: the negation of where it shows, as far as pip can say it.

A failure shows where one package is in a range *and* another in another.  pip has no "or": so the
constraint is put on a single package, one that every remaining block names, and each package that
can do it alone is a way.  Of a range in the middle, every release is excluded by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from trl_compat import releases
from trl_compat.doctor.conditions import Named
from trl_compat.doctor.matching import inside, matches
from trl_compat.doctor.records import Block, Record
from trl_compat.packages import PACKAGES
from trl_compat.sources.source import Source


@dataclass(frozen=True)
class Way:
    """A constraint on one package; ``excluded`` is how many releases it takes away."""

    package: str
    specifier: str
    excluded: int

    def __str__(self) -> str:
        return f"{self.package}{self.specifier}"


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
    caveats = tuple(dict.fromkeys(_commits(blocks)))
    blocks = [block for block in blocks if block.where.versions]
    if not blocks:
        return Avoidance(record, (), caveats, concerned=False)
    free = [p for p in PACKAGES if p not in given]
    able = [p for p in free if all(p in block.where.versions for block in blocks)]
    ways = [way for package in able if (way := _way(package, blocks)) is not None]
    ways.sort(key=lambda way: (way.excluded, way.package != "trl"))
    return Avoidance(record, tuple(ways), caveats)


def _way(package: str, blocks: Iterable[Block]) -> Way | None:
    """The mildest constraint on a package that leaves every block; None where none is left."""
    known = releases.known().of(package)
    ranges = [block.where.versions[package] for block in blocks]
    hit = [v for v in known if any(inside(v, range_) for range_ in ranges)]
    if not hit or len(hit) == len(known):
        return None
    older = [v for v in known if v < hit[0]]
    newer = [v for v in known if v > hit[-1]]
    final = [v for v in newer if not v.is_prerelease]
    between = len(hit) + len(older) + len(newer) < len(known)
    if newer and final and not older and not between:
        specifier = f">={final[0]}"
    elif older and not newer and not between:
        specifier = f"<{hit[0]}"
    else:
        specifier = ",".join(f"!={v}" for v in _finals(hit))
        if not newer:
            first = _start_of_the_end(hit, known)
            specifier = ",".join([*(f"!={v}" for v in _finals(hit) if v < first), f"<{first}"])
    return Way(package, specifier, len(hit))


def _start_of_the_end(hit: list[Version], known: list[Version]) -> Version:
    """The first release of the affected run that reaches the newest release."""
    unaffected = [v for v in known if v not in hit]
    return next(v for v in hit if not unaffected or v > unaffected[-1])


def _finals(hit: list[Version]) -> list[Version]:
    return [v for v in hit if not v.is_prerelease] or hit


def _commits(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        for package, commits in block.where.commits.items():
            short = ", ".join(commit[:9] for commit in commits)
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
    if any("!=" in str(way) for way in avoidance.ways):
        lines.append(
            f"# releases as of {releases.known().as_of}; pip cannot exclude a range between"
        )
    return "\n".join(lines) + "\n"
