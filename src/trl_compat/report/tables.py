"""Data that every renderer shows: a box of the overview, the order of stacks, the words.

Pure functions over a results document; no renderer chooses its own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from packaging.version import Version

from trl_compat import results
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.stacks.matrix import GIT

MOST_ROWS = 30  # of stacks in a table; more are told by minor release of TRL

# Which outcome speaks for several cells: the worst that was seen.
WORST_FIRST = (
    Outcome.HARNESS_ERROR,
    Outcome.UNSTABLE,
    Outcome.VACUOUS,
    Outcome.CRASH,
    Outcome.HANG,
    Outcome.OTHER_FAILURE,
    Outcome.REPRODUCED,
    Outcome.MASKED,
    Outcome.UNRESOLVABLE,
    Outcome.UNAVAILABLE,
    Outcome.PASS,
    Outcome.NOT_APPLICABLE,
)

# The word for what a stack does about a failure; the outcome's own name for all others.
WORDS = {
    Outcome.PASS: "works",
    Outcome.REPRODUCED: "fails",
    Outcome.NOT_APPLICABLE: "not applicable",
}


@dataclass(frozen=True)
class Summary:
    """What a stack does about a failure: the mark, the word, and whether a fix was proven."""

    outcome: Outcome
    fixed: bool

    @property
    def mark(self) -> str:
        """✅, ❌, ⚠️ or —."""
        return self.outcome.mark

    @property
    def word(self) -> str:
        """The outcome's word; never colour or sign alone."""
        return WORDS.get(self.outcome, str(self.outcome))

    @property
    def long(self) -> str:
        """The outcome's word, and whether a fix was proven."""
        return f"{self.word}, fix proven" if self.fixed else self.word


def expected(cell: results.CellResult) -> str:
    """What the advisories predict of a cell, in a word."""
    return "nothing" if cell.expected is None else str(cell.expected)


@cache
def version_key(value: str) -> tuple[bool, Version]:
    """Sort key of a version as versions order, with git commits before every release.

    A package that a stack does not have sorts like one.
    """
    release = bool(value) and not GIT.fullmatch(value)
    return (release, Version(value if release else "0"))


def version_text(value: str) -> str:
    """A version as people read it: a release as it is, a commit by its first nine characters."""
    commit = GIT.fullmatch(value)
    return f"commit {commit['commit'][:9]}" if commit else value


def minor_of(value: str) -> str:
    """The minor release that a version belongs to: ``0.14`` of 0.14.0; ``commits`` of a commit."""
    if GIT.fullmatch(value):
        return "commits"
    return ".".join(map(str, (*Version(value).release, 0)[:2]))


def by_minor(
    document: results.Results, stacks: Iterable[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Stacks that are in order, by minor release of TRL."""
    for minor, names in groupby(stacks, lambda name: minor_of(document.stacks[name].trl)):
        yield minor, tuple(names)


@dataclass(frozen=True)
class Worst:
    """The worst summary of several stacks, and how many of them have its outcome."""

    summary: Summary
    alike: int
    stacks: int

    @property
    def share(self) -> str:
        """``3 of 4``."""
        return f"{self.alike} of {self.stacks}"


def worst_of(
    summaries: Mapping[tuple[str, str], Summary], stacks: Sequence[str], failure: str
) -> Worst | None:
    """The worst that a failure does on some stacks; None if it was run on none."""
    found = [summaries[stack, failure] for stack in stacks if (stack, failure) in summaries]
    if not found:
        return None
    worst = min(found, key=lambda summary: WORST_FIRST.index(summary.outcome))
    return Worst(worst, sum(one.outcome is worst.outcome for one in found), len(stacks))


def newest_first(document: results.Results) -> list[str]:
    """The stacks by TRL release, newest first, then by date and other packages; commits last."""

    def key(name: str) -> tuple[object, ...]:
        stack = document.stacks[name]
        others = (version_key(getattr(stack, package)) for package in SHOWN_PACKAGES[1:])
        return (version_key(stack.trl), stack.as_of, *others)

    return sorted(document.stacks, key=key, reverse=True)


def unread(document: results.Results) -> str:
    """Which stacks are missing because their results could not be read; empty if none is."""
    names = list(document.unread)
    if not names:
        return ""
    stacks = "1 stack" if len(names) == 1 else f"{len(names)} stacks"
    return f"The results of {stacks} could not be read: {', '.join(names)}."


def failures_of(document: results.Results, known: Sequence[str]) -> list[str]:
    """Those of the known failures that have cells, in the order given."""
    present = {cell.failure for cell in document.cells}
    return [failure for failure in known if failure in present]


def stacks_of(document: results.Results, cells: Sequence[results.CellResult]) -> list[str]:
    """The stacks of some cells in the order of the matrix."""
    present = {cell.stack for cell in cells}
    return [name for name in document.stacks if name in present]


def summaries_of(cells: Iterable[results.CellResult]) -> dict[tuple[str, str], Summary]:
    """The summary of each stack for each failure of which anything was run, in one go."""
    alike: dict[tuple[str, str], list[results.CellResult]] = {}
    for cell in cells:
        alike.setdefault((cell.stack, cell.failure), []).append(cell)
    found = {place: summary_of(mine, *place) for place, mine in alike.items()}
    return {place: summary for place, summary in found.items() if summary is not None}


def summary_of(cells: Sequence[results.CellResult], stack: str, failure: str) -> Summary | None:
    """A stack's summary for a failure; None if nothing was run.  Controls do not speak for it."""
    mine = [c for c in cells if c.stack == stack and c.failure == failure]
    unfixed = [c for c in mine if not c.fixed and not c.control] or [c for c in mine if not c.fixed]
    if not unfixed:
        return None
    worst = min((c.outcome for c in unfixed), key=WORST_FIRST.index)
    broken = [c for c in unfixed if c.outcome is Outcome.REPRODUCED]
    proven = {
        (c.variant, c.model)
        for c in mine
        if c.fixed and not c.wrong_fix and c.outcome is Outcome.PASS
    }
    return Summary(worst, bool(broken) and all((c.variant, c.model) in proven for c in broken))
