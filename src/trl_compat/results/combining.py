"""Results of several machines as one.

Which results come first does not matter, and combining what was combined before changes nothing.

The same cell in several results is one cell if the verdicts agree: the newest.  If they do not, and
the cells have the same key, so that nothing explains the difference, the results are in conflict:
the cell is then ``unstable`` and keeps each side whole.  A cell that could not be run gives way to
one that was, and a cell whose reproduction or runtime has changed since to the newer one.  Cells on
GPUs have other ids than those on CPU ranks, so they never meet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.results.models import (
    CellResult,
    NotRunResult,
    Results,
    RunResult,
    StackResult,
    summary,
)

SAID_NOTHING = (Outcome.UNAVAILABLE, Outcome.HARNESS_ERROR)


@dataclass(frozen=True)
class Source:
    """Results, and how the user named them."""

    name: str
    document: Results


@dataclass(frozen=True)
class Replaced:
    """A result with another verdict that a later or better one took the place of."""

    old: CellResult
    new: CellResult
    why: str


@dataclass(frozen=True)
class Combined:
    """The results as one, and what there is to say of them.

    Attributes:
        conflicts: the cells whose results differ; each has its sides.
        replaced: what was left aside, with another verdict than what is kept.
        shared: how many cells were in more than one of the results.
        notes: a sentence for each stack that was not resolved alike.
    """

    document: Results
    conflicts: tuple[CellResult, ...]
    replaced: tuple[Replaced, ...]
    shared: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Side:
    """A cell as one of the results has it, with the lock of its stack."""

    cell: CellResult
    lock: str | None

    @property
    def verdict(self) -> tuple[str, str | None, str | None]:
        return (self.cell.outcome.value, self.cell.symptom, self.cell.masked_by)

    @property
    def age(self) -> tuple[str, str]:
        """A sort key, the oldest first; the same whatever the order of the results."""
        return (self.cell.started_at, self.cell.model_dump_json())


def combine(sources: Sequence[Source], order: Iterable[str] = ()) -> Combined:
    """The results of all sources as one.

    Args:
        sources: what to combine; none of them has stacks that could not be read.
        order: names of stacks, in which they are listed; others follow by name.

    Raises:
        BadInput: there is nothing, or two results have different stacks under one name.
    """
    if not sources:
        raise BadInput("no results to combine")
    known = [Source(source.name, with_runs(source.document)) for source in sources]
    stacks, notes = _stacks(known)
    sides: dict[str, list[_Side]] = {}
    found_in: dict[str, set[int]] = {}
    for number, source in enumerate(known):
        for cell in source.document.cells:
            lock = source.document.stacks[cell.stack].lock_sha256
            sides.setdefault(cell.id, []).extend(_Side(one, lock) for one in _flat(cell))
            found_in.setdefault(cell.id, set()).add(number)
    made_by = _runs(known)
    replaced: list[Replaced] = []
    cells = [_one(found, made_by, replaced) for found in sides.values()]
    rest = sorted(stacks.keys() - set(order))
    names = [name for name in dict.fromkeys([*order, *rest]) if name in stacks]
    place = {name: number for number, name in enumerate(names)}
    cells.sort(key=lambda c: (place[c.stack], c.failure, c.variant, c.id))
    not_run = _not_run(known, cells, place)
    shown = [*cells, *(side for cell in cells for side in cell.sides)]
    named = {cell.run for cell in shown} | {left.run for left in not_run}
    runs = [made_by[name] for name in named if name is not None]
    newest = max(
        (source.document for source in known), key=lambda d: (d.generated_at, d.command, d.profile)
    )
    document = newest.model_copy(
        update={
            "stacks": {name: stacks[name] for name in names},
            "cells": cells,
            "not_run": not_run,
            "summary": summary(cells),
            "runs": sorted(runs, key=lambda run: (run.started_at, run.id)),
            "unread": {},
        }
    )
    replaced.sort(key=lambda one: one.new.id)
    return Combined(
        document=document,
        conflicts=tuple(cell for cell in cells if cell.sides),
        replaced=tuple(replaced),
        shared=sum(len(numbers) > 1 for numbers in found_in.values()),
        notes=notes,
    )


def with_runs(document: Results) -> Results:
    """Results in which every cell names its run, also those from before runs were kept."""
    if document.runs is not None:
        return document
    cells: list[CellResult] = []
    runs: list[RunResult] = []
    for run in document.all_runs:
        # Two machines may have written in the same second.
        told = hashlib.sha256(f"{run.command}{run.host.model_dump_json()}".encode()).hexdigest()
        runs = [run.model_copy(update={"id": f"{run.id}-{told[:6]}"})]
        cells = [cell.model_copy(update={"run": runs[0].id}) for cell in document.cells]
    left = [one.model_copy(update={"run": None}) for one in document.not_run]
    return document.model_copy(update={"cells": cells, "runs": runs, "not_run": left})


def _flat(cell: CellResult) -> Iterator[CellResult]:
    """The sides of a cell that was in conflict before, or the cell; logs are found elsewhere."""
    if not cell.sides:
        yield cell.model_copy(update={"log": None, "log_line": None})
    for side in cell.sides:
        yield from _flat(side)


def _one(
    found: Sequence[_Side], made_by: Mapping[str, RunResult], replaced: list[Replaced]
) -> CellResult:
    """The cell that several results become."""
    told = [side for side in found if side.cell.outcome not in SAID_NOTHING]
    newest = max(told or found, key=lambda side: side.age)
    current = [side for side in told if not _outdated(side, newest)] or [newest]
    differing = len({side.verdict for side in current}) > 1
    kept = _conflict(current, made_by) if differing else newest.cell
    for side in sorted(found, key=lambda side: side.age):
        if side not in current and (differing or side.verdict != newest.verdict):
            why = "could not be run" if side not in told else "its reproduction or runtime changed"
            replaced.append(Replaced(side.cell, kept, why))
    return kept


def _outdated(side: _Side, newest: _Side) -> bool:
    """Whether something of ours changed between two results of a cell, not only its stack."""
    keys = side.cell.key, newest.cell.key
    return all(keys) and keys[0] != keys[1] and side.lock == newest.lock


def _conflict(sides: Sequence[_Side], made_by: Mapping[str, RunResult]) -> CellResult:
    """The cell that has results which differ: of those that are alike the newest."""
    alike = {}
    for side in sorted(sides, key=lambda side: side.age):
        alike[side.verdict, side.cell.key] = side.cell
    cells = list(alike.values())
    newest = cells[-1]
    told = ", ".join(f"{verdict(cell)} ({origin(cell, made_by)})" for cell in cells)
    attempts = {attempt.model_dump_json(): attempt for cell in cells for attempt in cell.attempts}
    return newest.model_copy(
        update={
            "outcome": Outcome.UNSTABLE,
            "agrees": False,
            "reason": f"{len(cells)} results differ: {told}",
            "symptom": None,
            "masked_by": None,
            "signature": next((cell.signature for cell in cells if cell.signature), None),
            "attempts": list(attempts.values()),
            "sides": cells,
        }
    )


def verdict(cell: CellResult) -> str:
    """An outcome with the failure or symptom that it shows."""
    if cell.masked_by:
        return f"{cell.outcome} by {cell.masked_by}"
    return f"{cell.outcome} ({cell.symptom})" if cell.symptom else f"{cell.outcome}"


def origin(cell: CellResult, made_by: Mapping[str, RunResult]) -> str:
    """When and where a cell was run, in words."""
    run = made_by.get(cell.run or "")
    if run is None:
        return f"observed {cell.started_at}"
    return f"observed {cell.started_at} on {run.host.cpu}, {run.host.os}, run {run.id}"


def _stacks(sources: Sequence[Source]) -> tuple[dict[str, StackResult], tuple[str, ...]]:
    """The stacks by name: of those resolved in several ways the one with the newest cells.

    Raises:
        BadInput: two results have different versions under one name.
    """
    found: dict[str, list[tuple[str, StackResult, str]]] = {}
    for source in sources:
        last: dict[str, str] = {}
        for cell in source.document.cells:
            last[cell.stack] = max(last.get(cell.stack, ""), cell.started_at)
        for name, stack in source.document.stacks.items():
            found.setdefault(name, []).append((last.get(name, ""), stack, source.name))
    notes = []
    chosen = {}
    for name, several in found.items():
        _, first, where = several[0]
        for _, other, elsewhere in several[1:]:
            if differing := _differing(first, other):
                raise BadInput(
                    f"{where} and {elsewhere}: the stack '{name}' is not the same in both "
                    f"({', '.join(differing)}); merge results of one matrix.yaml only"
                )
        when, stack, _ = max(several, key=lambda one: (_known(one[1]), one[0], _text(one[1])))
        grid = stack.grid or max(one.grid for _, one, _ in several)
        chosen[name] = stack.model_copy(update={"grid": grid})
        if len({one.lock_sha256 for _, one, _ in several if one.lock_sha256}) > 1:
            notes.append(
                f"the stack '{name}' has other packages on another machine (another build of "
                f"torch, perhaps); those of the newest cells are listed, of {when}"
            )
    return chosen, tuple(sorted(notes))


def _known(stack: StackResult) -> bool:
    return stack.lock_sha256 is not None and bool(stack.packages)


def _text(stack: StackResult) -> str:
    return stack.model_dump_json()


def _differing(one: StackResult, other: StackResult) -> list[str]:
    """The versions that two stacks do not have in common, in words."""
    fields = (*PACKAGES, "python", "as_of")
    return [
        f"{name} {getattr(one, name) or 'absent'} and {getattr(other, name) or 'absent'}"
        for name in fields
        if getattr(one, name) != getattr(other, name)
    ]


def _runs(sources: Sequence[Source]) -> dict[str, RunResult]:
    """All runs by id; of a run that was continued its end."""
    found: dict[str, RunResult] = {}
    for source in sources:
        for run in source.document.runs or ():
            known = found.get(run.id)
            if known is None or (run.ended_at or "") > (known.ended_at or ""):
                found[run.id] = run
    return found


def _not_run(
    sources: Sequence[Source], cells: Sequence[CellResult], place: Mapping[str, int]
) -> list[NotRunResult]:
    """What was left out, once each, as the newest results say it; not what was run elsewhere."""
    ran = {(cell.stack, cell.failure, cell.variant, cell.model) for cell in cells}
    found: dict[tuple[str, str, str, str], tuple[str, str, NotRunResult]] = {}
    for source in sources:
        for left in source.document.not_run:
            where = (left.stack, left.failure, left.variant, left.model)
            mine = (source.document.generated_at, left.model_dump_json(), left)
            if where not in ran and (where not in found or mine[:2] > found[where][:2]):
                found[where] = mine
    return [
        found[where][2]
        for where in sorted(found, key=lambda at: (place.get(at[0], len(place)), at))
    ]
