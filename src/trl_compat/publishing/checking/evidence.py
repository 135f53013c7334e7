"""The executed cells that say something about the ranges of a record.

A cell of the failure itself that passed or reproduced it does.  For a record that masks others, so
do cells of every failure: one that it stopped shows it, one that ran to its end does not.  A masked
cell proves nothing about the failure that it is of, and what is not applicable or could not be run
proves nothing at all.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from trl_compat.advisories import Advisory, Affected, Catalogue, Phase, Scope
from trl_compat.advisories.invariant import symptom_in, whose
from trl_compat.cells import devices
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import PACKAGES
from trl_compat.ranges import outside
from trl_compat.results import CellResult, Results, StackResult
from trl_compat.stacks.matrix import Stack

# A failure that comes before the training is met by every scenario that gets as far as its own.
BEFORE_TRAINING = (Phase.IMPORT, Phase.MODEL, Phase.TRAINER)


@dataclass(frozen=True)
class Evidence:
    """One executed cell, as it bears on one record.

    Attributes:
        stack: its exact versions.
        conditions: what holds in it.
        shows: the symptom of the record that was seen; None if the cell went past its place.
    """

    cell: CellResult
    stack: Stack
    conditions: Mapping[str, Any]
    shows: str | None

    def inside(self, scope: Scope) -> bool:
        """Whether the cell lies in a scope."""
        return scope.covers(self.stack, self.conditions)

    def concerns(self, advisory: Advisory, scope: Affected) -> bool:
        """Whether a cell like this can show the symptom of a scope: it measures that invariant."""
        return advisory.symptoms[scope.symptom].violates in (None, self.cell.failure)

    @property
    def place(self) -> tuple[str, ...]:
        """What decides which scopes it is in: the same for every model and world size."""
        return self.cell.stack, self.cell.failure, self.cell.variant, self.cell.backend

    def version(self, package: str) -> Version | None:
        """The release of a package; None for a git commit."""
        return self.stack.version(package)


def conditions_of(scope: Scope) -> Scope:
    """A scope of the same conditions, whatever the versions."""
    return Scope(conditions=scope.conditions)


def without(scope: Scope, package: str) -> Scope:
    """A scope without the range of one package: where only that package may be outside."""
    others = {p: r for p, r in scope.versions.items() if p != package}
    return Scope(versions=others, commits=scope.commits, conditions=scope.conditions)


def gather(document: Results, catalogue: Catalogue, advisory: Advisory) -> list[Evidence]:
    """Everything in the results that bears on a record, in the order of the results."""
    stacks = {name: as_stack(result) for name, result in document.stacks.items()}
    return list(_gathered(document, catalogue, advisory, stacks))


def _gathered(
    document: Results, catalogue: Catalogue, advisory: Advisory, stacks: Mapping[str, Stack]
) -> Iterator[Evidence]:
    for cell in document.cells:
        if cell.fixed or cell.failure not in catalogue.subjects:
            continue
        reproduction = catalogue.reproduction(cell.failure)
        if cell.variant not in reproduction.variants:
            continue  # of results that are older than the record
        told = _shows(cell, advisory)
        if told is None:
            continue
        device = devices.of_backend(cell.backend)
        if device is None:
            continue
        conditions = {**reproduction.conditions_of(cell.variant), "device": device}
        yield Evidence(cell, stacks[cell.stack], conditions, told or None)


def _shows(cell: CellResult, advisory: Advisory) -> str | None:
    """The symptom that a cell shows, ``""`` if it shows none, None if it proves nothing."""
    own = cell.failure == advisory.id
    measured = any(cell.failure == s.violates for s in advisory.symptoms.values())
    match cell.outcome:
        case Outcome.PASS if own or measured or advisory.masks:
            return ""
        case Outcome.REPRODUCED if measured:
            return symptom_in(cell.symptom) if whose(cell.symptom) == advisory.id else None
        case Outcome.REPRODUCED if own:
            return cell.symptom
        case Outcome.REPRODUCED if advisory.masks and advisory.phase in BEFORE_TRAINING:
            return ""
        case Outcome.MASKED if not own and cell.masked_by == advisory.id:
            return cell.symptom
        case _:
            return None


def as_stack(result: StackResult) -> Stack:
    """A stack of the results, as one of the matrix."""
    versions = {package: getattr(result, package) for package in PACKAGES}
    as_of = datetime.date.fromisoformat(result.as_of)
    return Stack.model_construct(as_of=as_of, python=result.python, **versions)


def unknown_commit(one: Evidence, advisory: Advisory) -> bool:
    """Whether the stack has a git commit of which the record's ranges say nothing."""
    ranged = {package for scope in advisory.affected for package in scope.versions}
    return any(one.stack.commit(package) for package in ranged | advisory.available.keys())


def not_there(one: Evidence, advisory: Advisory) -> str:
    """Why the record says that its failure cannot occur there; empty if it does not say so."""
    if outside(advisory.available, one.stack):
        return "available"
    numbered = enumerate(advisory.absent, 1)
    return next((f"absent {n}" for n, scope in numbered if one.inside(scope)), "")


def scope_of(one: Evidence, advisory: Advisory) -> tuple[int, Affected] | None:
    """The first scope that covers a cell, with its number."""
    numbered = enumerate(advisory.affected, 1)
    mine = ((n, scope) for n, scope in numbered if one.concerns(advisory, scope))
    return next(((n, scope) for n, scope in mine if one.inside(scope)), None)
