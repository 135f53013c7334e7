"""Doctor says of each stack that was run exactly what running it found, from any kind of lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from tests.harness.lock_texts import WRITERS
from trl_compat import advisories, results
from trl_compat.advisories import INTERNAL, Advisory, Catalogue
from trl_compat.advisories.compiling import implied
from trl_compat.advisories.schema import Affected
from trl_compat.advisories.schema import ConditionMap as Inner
from trl_compat.cells.outcome import Outcome
from trl_compat.doctor.diagnosis import Report, Status, examine
from trl_compat.results import CellResult, Results, found_in
from trl_compat.stacks import sources
from trl_compat.usage import vocabulary
from trl_compat.usage.conditions import UsageBuilder


@cache
def catalogue() -> Catalogue:
    return advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


@cache
def document() -> Results:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    return found


STACKS = [name for name in document().stacks if any(c.stack == name for c in document().cells)]


def unfixed(stack: str) -> list[CellResult]:
    """What was run there: a stack that this machine cannot reach says nothing."""
    here = [c for c in document().cells if c.stack == stack and not c.fixed]
    return [c for c in here if c.outcome.ran]


def conditions_of(cell: CellResult) -> Inner:
    return {**catalogue().reproduction(cell.failure).conditions_of(cell.variant)}


def shown_by(record: Advisory, symptom: str, cells: list[CellResult]) -> list[CellResult]:
    """The cells that can show a symptom: of the failure, of its invariant, any for a mask."""
    about = record.id if record.reproduction else record.symptoms[symptom].violates
    return [cell for cell in cells if about in (None, cell.failure)]


def reached(scope: Affected, cells: list[CellResult]) -> bool:
    """Whether a cell got as far as the failure would strike: nothing earlier stopped it."""
    return any(
        cell.outcome in (Outcome.PASS, Outcome.REPRODUCED)
        and implied(conditions_of(cell), scope.conditions)
        for cell in cells
    )


def tried(source: sources.Source, cells: list[CellResult]) -> set[str]:
    """The failures of which these cells say whether the stack has them.

    A failure that concerns these versions was tried where a cell has the conditions of one of its
    ranges and was not stopped earlier; doctor also speaks of trainers that no cell uses.
    """
    judged = {name for name in map(found_in, cells) if name}
    for record in catalogue().records.values():
        mine = [cell for cell in cells if cell.failure == record.id]
        anywhere = [scope.model_copy(update={"conditions": {}}) for scope in record.affected]
        concerned = [
            scope
            for scope, versions in zip(record.affected, anywhere, strict=True)
            if versions.covers(source, {})
        ]
        got_there = (reached(s, shown_by(record, s.symptom, cells)) for s in concerned)
        if (mine and not concerned) or any(got_there):
            judged.add(record.id)
    return judged


def report_of(source: sources.Source, named: Mapping[str, Any]) -> Report:
    conditions = UsageBuilder()
    for name, value in named.items():
        conditions.say(name, (value,), "a test")
    return examine(source, conditions.values)


def said(source: sources.Source, named: Mapping[str, Any]) -> set[str]:
    return {d.record.id for d in report_of(source, named).findings}


def read(folder: Path, stack: str, form: str) -> sources.Source:
    """What a user has of the stack: a file, and the Python that runs it."""
    path = folder / form
    path.write_text(WRITERS[form](document().stacks[stack].packages), encoding="utf-8")
    return replace(sources.read(path), python=document().stacks[stack].python)


FORMS = [
    # Every form for the stacks that were written by hand, one form in turn for those of a grid.
    (stack, form)
    for number, stack in enumerate(STACKS)
    for turn, form in enumerate(WRITERS)
    if not document().stacks[stack].grid or number % len(WRITERS) == turn
]


@pytest.mark.parametrize(("stack", "form"), FORMS)
def test_doctor_finds_what_the_matrix_found(tmp_path: Path, stack: str, form: str) -> None:
    source = read(tmp_path, stack, form)
    cells = unfixed(stack)
    assert said(source, {}) & tried(source, cells) == {found_in(cell) for cell in cells} - {None}


@cache
def nameable() -> frozenset[str]:
    """The conditions that a user can name; of the others a report tells in words."""
    return frozenset({*vocabulary.DOMAINS, "trainer", *vocabulary.shipped().used})


def named_in(cell: CellResult) -> dict[str, Any]:
    """What a user of the cell would name; CPU ranks stand in for GPUs unless it is about them."""
    inner = conditions_of(cell)
    named = {n: v for n, v in inner.items() if n not in INTERNAL and n in nameable()}
    return {**named, "device": "cpu" if "without_stand_in" in inner else "cuda"}


def compatible(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(other.get(name, value) == value for name, value in one.items())


# Of the many stacks of the grids those of one, a stack for each minor release of TRL.
EXACTLY = [name for name in STACKS if document().stacks[name].grid in ("", "eras")]


@pytest.mark.parametrize("stack", EXACTLY)
def test_doctor_is_exact_for_the_conditions_of_each_cell(tmp_path: Path, stack: str) -> None:
    source = read(tmp_path, stack, "requirements.txt")
    for named in {repr(named_in(cell)): named_in(cell) for cell in unfixed(stack)}.values():
        cells = [cell for cell in unfixed(stack) if compatible(named, named_in(cell))]
        report = report_of(source, named)
        findings = {d.record.id for d in report.findings}
        otherwise = {d.record.id for d in report.diagnoses if d.status is Status.HIDDEN}
        for record in catalogue().records.values():
            if any(scope.covers(source, named) for scope in record.absent):
                otherwise.add(record.id)
        found = {found_in(cell) for cell in cells} - {None}
        exactly = {found_in(cell) for cell in cells if named.items() <= named_in(cell).items()}
        # A cell that lacks something named, the trainer, may fail where this user's run does not.
        besides = otherwise & (found - exactly)
        assert (findings & tried(source, cells)) | besides == found, named


def test_doctor_finds_nothing_where_nothing_applies(tmp_path: Path) -> None:
    source = read(tmp_path, "newest", "uv.lock")
    for trainer in ("GRPO", "KTO", "Reward"):
        for strategy in ("ddp", "fsdp"):
            named = {"trainer": trainer, "strategy": strategy, "peft": False}
            assert said(source, named) == set()
    without = {n: v for n, v in document().stacks["newest"].packages.items() if n != "deepspeed"}
    (tmp_path / "uv.lock").write_text(WRITERS["uv.lock"](without), encoding="utf-8")
    assert said(sources.read(tmp_path / "uv.lock"), {"trainer": "GRPO", "peft": False}) == set()
