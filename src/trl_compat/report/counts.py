"""Counts of cells that were to show something: those that did, and the outcomes of the others.

A cell that was not run, or was masked, counts neither for nor against; it is never counted with
those that ran and showed something else.  All printed counts of fixes are computed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trl_compat.cells.outcome import Outcome
from trl_compat.results import CellResult

# What a cell did in place of what it was to show; the outcome's own word for all others.
WORDS = {
    Outcome.PASS: "pass",
    Outcome.REPRODUCED: "fail as recorded",
    Outcome.MASKED: "masked by another failure",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.UNRESOLVABLE: "not run (cannot be installed)",
    Outcome.UNAVAILABLE: "not run (out of reach)",
    Outcome.HARNESS_ERROR: "not run (the harness failed)",
}


@dataclass(frozen=True)
class Count:
    """How many cells showed what they were to show, and how often each other outcome came.

    ``shown`` and all of ``others`` together are every cell.
    """

    shown: int
    others: tuple[tuple[Outcome, int], ...]

    @property
    def total(self) -> int:
        """Every cell, run or not."""
        return self.shown + sum(count for _, count in self.others)

    def words(self, done: str) -> str:
        """``proven in 9 of 15 cells; the others: 6 not run (out of reach)``.

        Args:
            done: what a cell is that showed it.
        """
        if not self.total:
            return "not run in these results"
        said = f"{done} in {self.shown} of {self.total} cells"
        if not self.others:
            return said
        rest = ", ".join(f"{count} {WORDS.get(outcome, outcome)}" for outcome, count in self.others)
        return f"{said}; the other{'s' if self.total - self.shown != 1 else ''}: {rest}"


def count(cells: Iterable[CellResult], shown: Outcome) -> Count:
    """The count of cells that were to end with this outcome."""
    found = Counter(cell.outcome for cell in cells)
    order = list(Outcome)
    others = sorted(
        ((outcome, number) for outcome, number in found.items() if outcome is not shown),
        key=lambda pair: (not pair[0].ran, order.index(pair[0])),
    )
    return Count(found[shown], tuple(others))


def of_fix(cells: Iterable[CellResult], failure: str, fix: str, *, wrong: bool = False) -> Count:
    """The count of the cells of a fix: it is to pass, a wrong one to fail as recorded."""
    mine = (cell for cell in cells if cell.failure == failure and cell.fix == fix)
    return count(mine, Outcome.REPRODUCED if wrong else Outcome.PASS)


def proven(found: Count) -> str:
    """What a right fix came to, in words."""
    return found.words("proven")


def refuted(found: Count) -> str:
    """What a wrong fix came to, in words."""
    return found.words("fails")
