"""What two stacks do differently, cell by cell: pure, over the results of both."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.gate.judgement import State, state_of
from trl_compat.packages import PACKAGES
from trl_compat.results import CellResult, Results, StackResult, found_in


class Change(enum.StrEnum):
    """What became of a cell; ``heading`` heads those with the same change, ``bad`` ones first."""

    heading: str
    bad: bool

    def __new__(cls, value: str, heading: str, bad: bool) -> Change:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.heading = heading
        member.bad = bad
        return member

    FAILS = "newly fails", "Newly fails", True
    FAILS_OTHERWISE = "fails in another way", "Fails in another way", True
    CANNOT_TELL = "cannot tell", "Cannot be told any more", False
    PASSES = "newly passes", "Newly passes", False
    GONE = "no longer there", "No longer there", False
    NEW = "newly there", "Newly there, and passes", False


@dataclass(frozen=True)
class CellDifference:
    """A cell that does something else than in the stack before."""

    change: Change
    before: CellResult | None
    after: CellResult

    @property
    def known_as(self) -> str | None:
        """The advisory of what is seen now."""
        return found_in(self.after)

    @property
    def alike(self) -> tuple[str, ...]:
        """The same for differences that are told together: one cause, seen in several stacks."""
        cell = self.after
        return (str(self.change), cell.failure, cell.variant, cell.model, *map(str, seen(cell)))


@dataclass(frozen=True)
class StackDifference:
    """A stack against the one before it.

    Attributes:
        before: the name of the stack before it.
        after: its own.
        moved: the packages that differ, with both versions; ``""`` where there is none.
        not_installable: the resolver's reason; empty if there is such a stack.
        cells: the cells that differ.
        compared: how many cells have a result in both.
    """

    before: str
    after: str
    moved: Mapping[str, tuple[str, str]]
    not_installable: str
    cells: tuple[CellDifference, ...]
    compared: int

    @property
    def flags(self) -> tuple[CellDifference, ...]:
        """The differences for the worse."""
        return tuple(cell for cell in self.cells if cell.change.bad)

    @property
    def flagged(self) -> bool:
        """Whether somebody has to look at it."""
        return bool(self.flags or self.not_installable)


def compare(document: Results, before: str, after: str) -> StackDifference:
    """What a stack of the results does differently than another."""
    old, new = cells_of(document, before), cells_of(document, after)
    found = [difference(old.get(place), cell) for place, cell in new.items()]
    return StackDifference(
        before=before,
        after=after,
        moved=moved(document.stacks[before], document.stacks[after]),
        not_installable=not_installable(document, after),
        cells=tuple(one for one in found if one is not None),
        compared=sum(place in old for place in new),
    )


def cells_of(document: Results, stack: str) -> dict[tuple[str, str, str, int], CellResult]:
    """The unfixed cells of a stack that were run, by what they run."""
    return {
        (c.failure, c.variant, c.model, c.world_size): c
        for c in document.cells
        if c.stack == stack and not c.fixed and c.outcome is not Outcome.UNRESOLVABLE
    }


def not_installable(document: Results, stack: str) -> str:
    """Why there is no such stack; empty if there is one."""
    reasons = [
        cell.reason or "its packages cannot be installed together"
        for cell in document.cells
        if cell.stack == stack and cell.outcome is Outcome.UNRESOLVABLE
    ]
    return reasons[0] if reasons else ""


def moved(before: StackResult, after: StackResult) -> dict[str, tuple[str, str]]:
    """The packages that differ, those under test first."""
    old, new = before.packages, after.packages
    found = {}
    for package in PACKAGES:
        pair = getattr(before, package), getattr(after, package)
        if pair[0] != pair[1]:
            found[package] = pair
    if old and new:
        for package in sorted((old.keys() | new.keys()) - set(PACKAGES)):
            pair = old.get(package, ""), new.get(package, "")
            if pair[0] != pair[1]:
                found[package] = pair
    return found


def difference(before: CellResult | None, after: CellResult) -> CellDifference | None:
    """What became of a cell; None if nothing did."""
    change = _change(before, after)
    return CellDifference(change, before, after) if change else None


def _change(before: CellResult | None, after: CellResult) -> Change | None:
    was, becomes = _state(before), _state(after)
    match was, becomes:
        case (State.WORKS, State.WORKS) | (State.ABSENT, State.ABSENT) | (State.UNKNOWN, _):
            # Nothing is known of the stack before, so nothing is new.
            return None
        case State.FAILS, State.FAILS:
            assert before is not None
            return Change.FAILS_OTHERWISE if seen(before) != seen(after) else None
        case _, State.FAILS:
            return Change.FAILS
        case _, State.UNKNOWN:
            return Change.CANNOT_TELL
        case _, State.ABSENT:
            return Change.GONE
        case State.FAILS, State.WORKS:
            return Change.PASSES
        case _:
            return Change.NEW


def _state(cell: CellResult | None) -> State:
    return state_of(Verdict(outcome=cell.outcome) if cell is not None else None)


def seen(cell: CellResult) -> tuple[str | None, ...]:
    """What a cell failed with: the advisory and symptom, or what was raised and where."""
    if cell.outcome is Outcome.PASS:
        return ()
    if known := found_in(cell):
        return known, cell.symptom
    signature = cell.signature
    raised = (signature.exception, signature.where) if signature else (None, None)
    return (str(cell.outcome), *raised)


def words(cell: CellResult | None) -> str:
    """What a cell does, for people."""
    if cell is None:
        return "was not run"
    match cell.outcome:
        case Outcome.PASS:
            return "passes"
        case Outcome.REPRODUCED:
            return f"fails as recorded ({cell.symptom})" if cell.symptom else "fails as recorded"
        case Outcome.MASKED if cell.masked_by:
            return f"is stopped by {cell.masked_by}"
        case _:
            text = str(cell.outcome)
    if cell.signature is not None:
        text += f": {cell.signature.exception} in {cell.signature.where}"
    elif cell.reason:
        text += f" ({cell.reason})"
    return text
