"""The shapes that every renderer shows: a cell of the overview, ranges of releases, fixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat import results
from trl_compat.outcomes import Outcome

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


@dataclass(frozen=True)
class Summary:
    """What a stack does about a failure: the mark, the word, and whether a fix was proven."""

    outcome: Outcome
    fixed: bool

    @property
    def mark(self) -> str:
        """✅, ❌, ⚠️ or —."""
        return self.outcome.folded

    @property
    def word(self) -> str:
        """The outcome's word; never colour or sign alone."""
        word = "fails" if self.outcome is Outcome.REPRODUCED else str(self.outcome)
        return f"{word}, fix proven" if self.fixed else word


def stacks_of(document: results.Results, cells: Sequence[results.CellResult]) -> list[str]:
    """The stacks of some cells in the order of the matrix."""
    present = {cell.stack for cell in cells}
    return [name for name in document.stacks if name in present]


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
