"""Two results compared, cell by cell: regressed, fixed, new and removed cells."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trl_compat.cells.outcome import Outcome
from trl_compat.report import tables
from trl_compat.results import CellResult, Results


class Change(enum.StrEnum):
    """What became of a cell; ``sentence`` says it to people."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Change:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    REGRESSED = "regressed", "passed before and does not now, or no longer matches its advisory"
    FIXED = "fixed", "failed before and passes now, or matches its advisory again"
    CHANGED = "changed", "a different outcome, neither better nor worse"
    UNCHANGED = "unchanged", "the same outcome"
    NEW = "new", "not in the old results"
    GONE = "gone", "not in the new results"


@dataclass(frozen=True)
class CellChange:
    """A cell in both results; one side is None where it is new or gone."""

    id: str
    change: Change
    old: CellResult | None
    new: CellResult | None


def compare(old: Results, new: Results) -> list[CellChange]:
    """Every cell of either, in the order of the new results, those that are gone last."""
    before = {cell.id: cell for cell in old.cells}
    after = {cell.id: cell for cell in new.cells}
    found = [
        CellChange(name, _change(before.get(name), cell), before.get(name), cell)
        for name, cell in after.items()
    ]
    gone = [
        CellChange(name, Change.GONE, cell, None)
        for name, cell in before.items()
        if name not in after
    ]
    return [*found, *gone]


def regressed(changes: Sequence[CellChange]) -> bool:
    """Whether anything got worse; a cell that was not run this time did not."""
    return any(change.change is Change.REGRESSED for change in changes)


def _change(old: CellResult | None, new: CellResult) -> Change:
    if old is None:
        return Change.NEW
    if (old.outcome, old.agrees) == (new.outcome, new.agrees):
        return Change.UNCHANGED
    if Outcome.UNAVAILABLE in (old.outcome, new.outcome):
        # Nothing was seen on one side, so nothing is said of the other.
        return Change.CHANGED
    if old.agrees != new.agrees:
        return Change.FIXED if new.agrees else Change.REGRESSED
    if Outcome.PASS in (old.outcome, new.outcome):
        return Change.FIXED if new.outcome is Outcome.PASS else Change.REGRESSED
    return Change.CHANGED


def lines(changes: Sequence[CellChange], *, limit: int = 50) -> Iterator[str]:
    """The comparison for people: counts first, then what changed, the worst first."""
    counts = {kind: sum(c.change is kind for c in changes) for kind in Change}
    yield ", ".join(f"{count} {kind}" for kind, count in counts.items())
    for kind in (Change.REGRESSED, Change.FIXED, Change.CHANGED, Change.NEW, Change.GONE):
        alike = [change for change in changes if change.change is kind]
        if not alike:
            continue
        yield ""
        yield f"{kind} ({kind.sentence}):"
        for change in alike[:limit]:
            yield f"  {change.id}: {_words(change.old)} → {_words(change.new)}"
            if kind is Change.REGRESSED and change.new is not None:
                yield f"    again: {change.new.command}"
        if len(alike) > limit:
            yield f"  and {len(alike) - limit} more"


def _words(cell: CellResult | None) -> str:
    if cell is None:
        return "not run"
    wanted = f" (expected {tables.expected(cell)})" if not cell.agrees else ""
    return f"{cell.outcome}{wanted}"
