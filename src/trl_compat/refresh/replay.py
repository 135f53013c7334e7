"""What refresh would have said on each day of the past, and what happened afterwards: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trl_compat.advisories import Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.refresh import known
from trl_compat.refresh.comparison import (
    CellDifference,
    StackDifference,
    cells_of,
    compare,
    not_installable,
    seen,
)
from trl_compat.refresh.days import Day
from trl_compat.refresh.suspects import involved, suspects
from trl_compat.results import Results
from trl_compat.stacks.matrix import Stack


@dataclass(frozen=True)
class Flag:
    """A difference for the worse on a day.

    Attributes:
        explained: an advisory has a scope that begins with this day.
        ended: the day whose stack does not show it any more; None if the last one still does.
        suspected: the first suspect; empty if no package changed.
        false: two runs differ, or it was gone with the next stack, though neither a suspect nor a
            package that the error passed through had moved.
    """

    cell: CellDifference
    explained: bool
    ended: Day | None
    suspected: str
    false: bool


@dataclass(frozen=True)
class Account:
    """A day: what it flags, and what the advisories know of it.

    Attributes:
        compared: against the stack before it; None if nothing moved or it was not run.
        introduced: failures that the advisories say this day brings.
        missed: those of them that are not flagged, with the reason.
    """

    day: Day
    compared: StackDifference | None
    flags: tuple[Flag, ...] = ()
    introduced: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()
    missed: tuple[tuple[str, str], ...] = ()
    mended: tuple[str, ...] = ()


def accounts(
    start: Stack, start_name: str, found: Sequence[Day], document: Results, catalogue: Catalogue
) -> list[Account]:
    """The account of every day, against the last stack before it that was run."""
    told = []
    before, name = start, start_name
    for number, day in enumerate(found):
        if not day.moved:
            told.append(Account(day, None))
            continue
        told.append(_account(before, name, number, found, document, catalogue))
        if day.name in document.stacks and not not_installable(document, day.name):
            before, name = day.stack, day.name
    return told


def _account(
    before: Stack,
    name: str,
    number: int,
    found: Sequence[Day],
    document: Results,
    catalogue: Catalogue,
) -> Account:
    day = found[number]
    if not {name, day.name} <= document.stacks.keys():
        return Account(day, None)
    expected = known.introduced(before, day.stack, catalogue)
    compared = compare(document, name, day.name)
    due = {one.failure for one in expected}
    flags = tuple(
        _flag(cell, compared, due, found[number + 1 :], document) for cell in compared.flags
    )
    caught = tuple(sorted({f for flag in flags for f in _about(flag.cell) if f in due}))
    missed = tuple(
        (one.failure, _why(one, day, document, flags))
        for one in expected
        if one.failure not in caught
    )
    return Account(
        day,
        compared,
        flags,
        introduced=tuple(sorted(due)),
        caught=caught,
        missed=missed,
        mended=tuple(known.mended(before, day.stack, catalogue)),
    )


def _about(cell: CellDifference) -> tuple[str, ...]:
    return (cell.known_as,) if cell.known_as else ()


def _flag(
    cell: CellDifference,
    compared: StackDifference,
    due: set[str],
    later: Sequence[Day],
    document: Results,
) -> Flag:
    after = cell.after
    place = (after.failure, after.variant, after.model, after.world_size)
    accused = suspects(after, compared.moved)
    ended, ended_at_once = None, False
    for steps, day in enumerate(one for one in later if one.moved):
        now = cells_of(document, day.name).get(place)
        if now is not None and seen(now) != seen(after):
            ended, ended_at_once = day, steps == 0
            break
    moved_then = {release.package for release in ended.moved} if ended else set()
    # A failure may be mended by another package than the one that brought it.
    innocent = not moved_then & ({one.package for one in accused} | involved(after))
    return Flag(
        cell,
        explained=any(failure in due for failure in _about(cell)),
        ended=ended,
        suspected=accused[0].package if accused else "",
        false=after.outcome is Outcome.UNSTABLE or (ended_at_once and innocent),
    )


def _why(one: known.Introduced, day: Day, document: Results, flags: Sequence[Flag]) -> str:
    """Why a failure that the day brings is not flagged on it."""
    if not_installable(document, day.name):
        return "the stack cannot be installed"
    if not one.reachable:
        return "no reproduction does what it takes"
    run = {
        (cell.failure, cell.variant): cell
        for cell in cells_of(document, day.name).values()
        if (cell.failure, cell.variant) in one.reachable
    }
    if not run:
        variants = ", ".join(sorted({f"{f} {v}" for f, v in one.reachable})[:3])
        return f"its cells were not selected ({variants})"
    masks = sorted({cell.masked_by for cell in run.values() if cell.masked_by})
    if masks:
        return f"masked by {' and '.join(masks)}"
    if all(cell.outcome is Outcome.NOT_APPLICABLE for cell in run.values()):
        return "the stack has no such trainer or option"
    if any(cell.outcome is Outcome.PASS for cell in run.values()):
        return "its cells pass: see trl-compat advisories check"
    if any((f.cell.after.failure, f.cell.after.variant) in run for f in flags):
        return "its cells fail with something else"
    return "its cells failed before as well"


@dataclass(frozen=True)
class Totals:
    """The summary of a replay.

    Attributes:
        breaking: releases' days that bring a failure, as the advisories know it.
        caught: those of them on which one was flagged.
        discoveries: days with a flag that no advisory explains, false ones left out.
        false: days whose flags are all false.
    """

    days: int
    stacks: int
    cells: int
    not_installable: int
    breaking: int
    caught: int
    discoveries: int
    false: int


def totals(told: Sequence[Account], document: Results) -> Totals:
    """The counts."""
    run = [one for one in told if one.compared is not None]
    names = {one.day.name for one in run}
    return Totals(
        days=len(told),
        stacks=len(run),
        cells=sum(cell.stack in names for cell in document.cells),
        not_installable=sum(bool(one.compared and one.compared.not_installable) for one in run),
        breaking=sum(bool(one.introduced) for one in run),
        caught=sum(bool(one.caught) for one in run),
        discoveries=sum(any(_discovery(flag) for flag in one.flags) for one in run),
        false=sum(bool(one.flags) and all(flag.false for flag in one.flags) for one in run),
    )


def _discovery(flag: Flag) -> bool:
    return not flag.explained and not flag.false


def later_stacks(found: Sequence[Day]) -> Iterator[tuple[str, Stack]]:
    """The stacks to run, one for each day on which something moves."""
    for day in found:
        if day.moved:
            yield day.name, day.stack
