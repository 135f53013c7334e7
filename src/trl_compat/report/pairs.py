"""Which pairs of minor releases the grids have covered, for every pair of packages.

The values are the minor releases of the stacks that grids have made; a stack written by hand that
has such a pair counts as well.  :func:`pairs` gives plain data for any renderer, and
:func:`markdown` its short form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from trl_compat.cells.outcome import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.results import Results
from trl_compat.stacks.matrix import GIT

EXECUTED, UNRESOLVABLE, NOT_RUN = "executed", "unresolvable", "not-run"
MARKS = {EXECUTED: "●", UNRESOLVABLE: "✕", NOT_RUN: "·"}


@dataclass(frozen=True)
class PairCoverage:
    """The pairs of minor releases of two packages.

    Attributes:
        one: a package; ``ones`` are its minor releases, oldest first.
        other: the other package, with ``others``.
        executed: pairs of which a stack was run.
        unresolvable: pairs of which no stack could be installed.
    """

    one: str
    other: str
    ones: tuple[str, ...]
    others: tuple[str, ...]
    executed: frozenset[tuple[str, str]]
    unresolvable: frozenset[tuple[str, str]]

    @property
    def total(self) -> int:
        """How many pairs there are."""
        return len(self.ones) * len(self.others)

    @property
    def not_run(self) -> tuple[tuple[str, str], ...]:
        """The pairs of which nothing is known, in order."""
        everything = itertools.product(self.ones, self.others)
        return tuple(p for p in everything if p not in self.executed | self.unresolvable)

    def state(self, one: str, other: str) -> str:
        """What became of a pair: ``executed``, ``unresolvable`` or ``not-run``."""
        if (one, other) in self.executed:
            return EXECUTED
        return UNRESOLVABLE if (one, other) in self.unresolvable else NOT_RUN

    def as_data(self) -> dict[str, object]:
        """All of it as lists and texts, for JSON."""
        return {
            "packages": [self.one, self.other],
            "minors": [list(self.ones), list(self.others)],
            EXECUTED: [list(pair) for pair in sorted(self.executed, key=_pair_key)],
            UNRESOLVABLE: [list(pair) for pair in sorted(self.unresolvable, key=_pair_key)],
            NOT_RUN: [list(pair) for pair in self.not_run],
        }


def pairs(document: Results, grid: str | None = None) -> list[PairCoverage]:
    """The coverage of every pair of packages; empty without stacks of grids.

    Args:
        document: the results.
        grid: only the values of this grid; of all grids if left out.
    """
    state = _states(document)
    minors = {name: _minors(document, name) for name in document.stacks}
    of_grids = [
        minors[name]
        for name, stack in document.stacks.items()
        if (made_by := getattr(stack, "grid", "")) and grid in (None, made_by)
    ]
    found = []
    for one, other in itertools.combinations(SHOWN_PACKAGES, 2):
        ones = {m[one] for m in of_grids if one in m}
        others = {m[other] for m in of_grids if other in m}
        seen: dict[str, set[tuple[str, str]]] = {EXECUTED: set(), UNRESOLVABLE: set()}
        for name, versions in minors.items():
            if versions.get(one) in ones and versions.get(other) in others and name in state:
                seen[state[name]].add((versions[one], versions[other]))
        if ones and others:
            found.append(
                PairCoverage(
                    one,
                    other,
                    tuple(sorted(ones, key=Version)),
                    tuple(sorted(others, key=Version)),
                    frozenset(seen[EXECUTED]),
                    frozenset(seen[UNRESOLVABLE] - seen[EXECUTED]),
                )
            )
    return found


def _states(document: Results) -> dict[str, str]:
    """Whether each stack was run or could not be installed; a stack that was neither is missing."""
    found: dict[str, str] = {}
    for cell in document.cells:
        if cell.outcome.ran:
            found[cell.stack] = EXECUTED
        elif cell.outcome is Outcome.UNRESOLVABLE:
            found.setdefault(cell.stack, UNRESOLVABLE)
    return found


def _minors(document: Results, name: str) -> dict[str, str]:
    """The minor release of each package of a stack that takes a release of it."""
    found = {}
    for package in SHOWN_PACKAGES:
        value = getattr(document.stacks[name], package)
        if value and not GIT.fullmatch(value):
            version = Version(value)
            found[package] = f"{version.major}.{version.minor}"
    return found


def _pair_key(pair: tuple[str, str]) -> tuple[Version, Version]:
    return Version(pair[0]), Version(pair[1])


def markdown(document: Results) -> Iterator[str]:
    """The counts for every pair of packages, and TRL × transformers pair by pair."""
    found = pairs(document)
    if not found:
        return
    stacks = sum(bool(getattr(stack, "grid", "")) for stack in document.stacks.values())
    yield ""
    yield "## The grid"
    yield ""
    yield (
        f"Pairs of minor releases among the {stacks} stacks that were made by rule "
        "([how](../docs/grids.md)):"
    )
    yield ""
    yield "| packages | pairs | executed | unresolvable | not run |"
    yield "| --- | --- | --- | --- | --- |"
    for pair in found:
        counts = (pair.total, len(pair.executed), len(pair.unresolvable), len(pair.not_run))
        yield f"| {pair.one} × {pair.other} | {' | '.join(map(str, counts))} |"
    shown = next((p for p in found if (p.one, p.other) == ("trl", "transformers")), None)
    if shown is None:
        return
    yield ""
    yield "<details><summary>TRL × transformers, pair by pair</summary>"
    yield ""
    legend = ", ".join(f"{mark} {state.replace('-', ' ')}" for state, mark in MARKS.items())
    yield legend
    yield ""
    yield f"| TRL | {' | '.join(shown.others)} |"
    yield f"| --- |{' --- |' * len(shown.others)}"
    for one in reversed(shown.ones):
        marks = [MARKS[shown.state(one, other)] for other in shown.others]
        yield f"| {one} | {' | '.join(marks)} |"
    yield ""
    yield "</details>"
