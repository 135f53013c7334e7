"""The cells that show whether a new record is right: where it expects its failure, and beside that.

A record with a reproduction is shown by its own cells, a silent fault by cells of its invariant,
and a failure that masks others by cells of failures that it stops.  Of the stacks that are written
in the matrix all that the record covers are run, and those next to them, by the version of each
package that has a range, which it does not cover.  Grids have many stacks: where only they are
covered, the first and the last of them are run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from packaging.version import Version

from trl_compat.advisories import Advisory, Catalogue
from trl_compat.advisories.invariant import symptom_in, whose
from trl_compat.cells import devices
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import UNFIXED, Cell, Selection, plan
from trl_compat.errors import BadInput
from trl_compat.files.names import require_known
from trl_compat.packages import PACKAGES
from trl_compat.stacks.matrix import Matrix

T = TypeVar("T")
Pair = tuple[str, str]
"""A subject and one of its variants."""


def select(
    table: Matrix,
    catalogue: Catalogue,
    failure: str,
    *,
    profile: str | None = None,
    stacks: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    device: str = "cpu",
) -> Selection:
    """What to run for a record.

    Args:
        profile: take the stacks that this profile has for it, and all its variants.
        stacks: take these stacks.
        models: take these models; by default those with which standalone forms are tried.
        device: of the cells.

    Raises:
        BadInput: an unknown profile, stack or model; or the matrix has no stack that is covered.
    """
    name = profile or Selection().profile
    require_known("profile", [name], table.profiles)
    require_known("stack", stacks, table.stacks)
    require_known("model", models, table.models)
    models = models or (() if profile else table.profiles[name].standalone)
    record = catalogue.records[failure]
    anywhere = Selection(models=models, fixes=(UNFIXED,), device=device, profile=name, whole=True)
    cells = _shown_somewhere(table, catalogue, record, stacks, anywhere)
    showing = [cell for cell in cells if shows(cell, failure)]
    pairs = _pairs(catalogue, record, showing)
    unnamed = not stacks and profile is None
    # Without pairs nothing would be named, and everything be run.
    if not pairs or (unnamed and not showing):
        raise BadInput(
            f"no stack of matrix.yaml is in the ranges of {failure}; add one (see "
            "docs/adding-a-version.md), or correct 'affected' or the variants"
        )
    if unnamed:
        stacks = _stacks(table, record, [c for c in cells if _pair(c) in pairs])
    own = record.reproduction is not None
    return Selection(
        profile=name,
        stacks=stacks,
        failures=_each(subject for subject, _ in pairs),
        variants=() if own and profile is not None else _each(variant for _, variant in pairs),
        models=models,
        # The fixes of failures that it masks prove nothing of it.
        fixes=(UNFIXED,) if record.masks and not own else (),
        device=device,
        whole=profile is None,
    )


def shows(cell: Cell, failure: str) -> bool:
    """Whether a cell is predicted to show the failure of a record."""
    expected = cell.expectation
    if expected.outcome is Outcome.MASKED:
        return expected.masked_by == failure
    mine = failure in (cell.failure, whose(expected.symptom))
    return expected.outcome is Outcome.REPRODUCED and mine


def symptom_of(cell: Cell, table: Matrix, catalogue: Catalogue, failure: str) -> str | None:
    """The symptom of a record that a cell is predicted to show; None if it is to show none."""
    if not shows(cell, failure):
        return None
    if cell.expectation.outcome is not Outcome.MASKED:
        return symptom_in(cell.expectation.symptom)
    reproduction = catalogue.reproduction(cell.failure)
    device = {"device": devices.of_ranks(cell.device)}
    conditions = {**reproduction.conditions_of(cell.variant), **device}
    scopes = catalogue.records[failure].affected
    covering = (s for s in scopes if s.covers(table.stacks[cell.stack], conditions))
    return next((scope.symptom for scope in covering), None)


def _shown_somewhere(
    table: Matrix,
    catalogue: Catalogue,
    record: Advisory,
    stacks: Sequence[str],
    anywhere: Selection,
) -> list[Cell]:
    """The unfixed cells that can show it, with stacks of grids only where no other is covered."""
    by_hand = _each([*table.by_hand, *stacks])
    found: list[Cell] = []
    for names in (by_hand, tuple(table.stacks)):
        these = {"stacks": names, "failures": _subjects(catalogue, record)}
        found = plan(table, catalogue, anywhere.model_copy(update=these)).cells
        if any(shows(cell, record.id) for cell in found):
            break
    return found


def _subjects(catalogue: Catalogue, record: Advisory) -> tuple[str, ...]:
    """Whose cells show a record."""
    if record.reproduction is not None:
        return (record.id,)
    violated = _each(s.violates for s in record.symptoms.values() if s.violates)
    return violated or catalogue.failures


def _pairs(catalogue: Catalogue, record: Advisory, showing: Sequence[Cell]) -> list[Pair]:
    """The variants to run, by default those that are run by default."""
    usual = [cell for cell in showing if cell.variant in _default(catalogue, cell.failure)]
    pairs = _each(map(_pair, usual or showing))
    if record.reproduction is not None:
        return list(_each([*((record.id, v) for v in _default(catalogue, record.id)), *pairs]))
    if any(symptom.violates for symptom in record.symptoms.values()):
        return list(pairs)
    return _fewest(usual or showing)


def _fewest(showing: Sequence[Cell]) -> list[Pair]:
    """Some of the pairs that together are shown in all stacks: one is as good as another."""
    stacks: dict[Pair, set[str]] = {}
    for cell in showing:
        stacks.setdefault(_pair(cell), set()).add(cell.stack)
    chosen: list[Pair] = []
    left = {cell.stack for cell in showing}
    while left:
        best = max(stacks, key=lambda pair: len(stacks[pair] & left))
        chosen.append(best)
        left -= stacks[best]
    return chosen


def _stacks(table: Matrix, record: Advisory, cells: Sequence[Cell]) -> tuple[str, ...]:
    """The stacks that are covered and their neighbours, in the order of the matrix."""
    inside = _each(cell.stack for cell in cells if shows(cell, record.id))
    beyond = (Outcome.PASS, Outcome.REPRODUCED) if record.masks else (Outcome.PASS,)
    outside = [c.stack for c in cells if c.expectation.outcome in beyond and c.stack not in inside]
    packages = _each(package for scope in record.affected for package in scope.versions)
    versions = {package: _versions(table, package) for package in packages}
    wanted = set(inside)
    if all(table.stacks[name].grid for name in inside):
        wanted = {one for known in versions.values() for one in _ends(inside, known)}
    for known in versions.values():
        for group in _beside(inside, _each(outside), known):
            wanted.add(max(group, key=lambda name: _alike(table, name, inside)))
    return tuple(name for name in table.stacks if name in wanted)


def _versions(table: Matrix, package: str) -> dict[str, Version]:
    """The release of a package by stack; a git commit is not between two releases."""
    found = ((name, stack.version(package)) for name, stack in table.stacks.items())
    return {name: version for name, version in found if version is not None}


def _ends(inside: Sequence[str], versions: Mapping[str, Version]) -> list[str]:
    """The stacks with the oldest and the newest release."""
    ordered = sorted((name for name in inside if name in versions), key=versions.__getitem__)
    return [ordered[0], ordered[-1]] if ordered else []


def _beside(
    inside: Collection[str], outside: Sequence[str], versions: Mapping[str, Version]
) -> Iterable[list[str]]:
    """The stacks that are not covered, by each release that is next to one that is."""
    groups: dict[Version, list[str]] = {}
    for name in (*inside, *outside):
        if name in versions:
            groups.setdefault(versions[name], []).append(name)
    for one, other in pairwise(groups[version] for version in sorted(groups)):
        covered = [any(name in inside for name in group) for group in (one, other)]
        if covered[0] != covered[1]:
            yield other if covered[0] else one


def _alike(table: Matrix, name: str, others: Iterable[str]) -> int:
    """How many packages a stack has in common with the most similar one of some."""

    def versions(of: str) -> list[str]:
        return [getattr(table.stacks[of], package) for package in PACKAGES]

    mine = versions(name)
    return max(sum(map(str.__eq__, mine, versions(other))) for other in others)


def _default(catalogue: Catalogue, subject: str) -> tuple[str, ...]:
    reproduction = catalogue.reproduction(subject)
    return reproduction.default or tuple(reproduction.variants)


def _pair(cell: Cell) -> Pair:
    return cell.failure, cell.variant


def _each(values: Iterable[T]) -> tuple[T, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(values))
