"""What was run, from the shipped results: the nearest stack, and when."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from packaging.version import Version

from trl_compat.packages import PACKAGES
from trl_compat.ranges import same_commit
from trl_compat.shipped import releases
from trl_compat.shipped.records import SHIPPED
from trl_compat.stacks.sources.source import Source


@dataclass(frozen=True)
class FailureSeen:
    """A failure as it was seen on a stack, and the patches that were proven there."""

    symptoms: list[str]
    evidence: list[str]
    date: str
    patches: list[str]


@dataclass(frozen=True)
class Run:
    """A stack that was run: its versions, the day, and what came of it by failure."""

    name: str
    versions: Mapping[str, str]
    python: str
    run: str
    cells: int
    found: Mapping[str, FailureSeen]
    passed: tuple[str, ...]


@dataclass(frozen=True)
class Nearest:
    """The run stack that is nearest to what someone has; ``differs`` is in words."""

    run: Run
    differs: tuple[str, ...]

    def sentence(self) -> str:
        """Which stack was run, when, and in what it differs."""
        how = f"differs in {', '.join(self.differs)}" if self.differs else "exactly these versions"
        return f"{self.run.name}, run {self.run.run} ({how})"


@cache
def shipped() -> tuple[Run, ...]:
    """Every stack of the results that are shipped."""
    data = json.loads((SHIPPED / "results.json").read_text(encoding="utf-8"))
    return tuple(
        Run(
            name=name,
            versions=stack["versions"],
            python=stack["python"],
            run=stack["run"],
            cells=stack["cells"],
            found={failure: FailureSeen(**found) for failure, found in stack["found"].items()},
            passed=tuple(stack["passed"]),
        )
        for name, stack in data["stacks"].items()
    )


def nearest(source: Source, runs: tuple[Run, ...]) -> Nearest | None:
    """The nearest of some runs: TRL counts first, then the number of packages that differ.

    None where TRL's version is not known: nothing is near to that.
    """
    if not runs or (source.version("trl") is None and source.commit("trl") is None):
        return None
    best = min(runs, key=lambda run: _distance(source, run))
    return Nearest(best, tuple(_differences(source, best)))


def _distance(source: Source, run: Run) -> tuple[float, float, float]:
    steps = {package: _steps(source, run, package) for package in PACKAGES}
    return (steps["trl"], sum(map(bool, steps.values())), sum(steps.values()))


def _steps(source: Source, run: Run, package: str) -> float:
    """How many releases lie between, as a share of all; a commit is near itself only."""
    theirs, version, commit = run.versions[package], source.version(package), source.commit(package)
    if commit is not None:
        return 0.0 if same_commit(theirs.rpartition("@")[2], commit) else 1.0
    if version is None or theirs.startswith("git+"):
        return 1.0
    known = releases.known().of(package)
    ours, other = sorted((Version(version.public), Version(theirs)))
    if ours == other:
        return 0.0
    between = bisect_right(known, other) - bisect_right(known, ours)
    return max(1, between) / max(1, len(known))


def _differences(source: Source, run: Run) -> list[str]:
    said = []
    for package in PACKAGES:
        theirs = run.versions[package]
        if _steps(source, run, package) == 0.0:
            continue
        short = theirs.rpartition("@")[2][:9] if theirs.startswith("git+") else theirs
        version = source.version(package)
        have = (version and str(version)) or (source.commit(package) or "")[:9]
        none = "not installed" if source.absent(package) else "of unknown version"
        said.append(f"{package} {have or none} → {short}")
    return said
