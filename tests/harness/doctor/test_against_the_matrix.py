"""Doctor says of each stack that was run exactly what running it found, from any kind of lock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from tests.harness.lock_texts import WRITERS
from trl_compat import advisories, results
from trl_compat.advisories import INTERNAL, Catalogue
from trl_compat.advisories.compiling import implied
from trl_compat.advisories.schema import ConditionMap as Inner
from trl_compat.doctor.diagnosis import examine
from trl_compat.results import CellResult, Results, found_in
from trl_compat.stacks import sources
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


def tried(cells: list[CellResult]) -> set[str]:
    """The failures that these cells would have shown: their own, and those that mask them."""
    own = {cell.failure for cell in cells}
    masks = {
        mask.id
        for mask in catalogue().masks
        for scope in mask.affected
        for cell in cells
        if implied(conditions_of(cell), scope.conditions)
    }
    return own | masks


def said(source: sources.Source, named: Mapping[str, Any]) -> set[str]:
    conditions = UsageBuilder()
    for name, value in named.items():
        conditions.say(name, (value,), "a test")
    report = examine(source, conditions.values)
    return {d.record.id for d in report.findings}


def read(folder: Path, stack: str, form: str) -> sources.Source:
    path = folder / form
    path.write_text(WRITERS[form](document().stacks[stack].packages), encoding="utf-8")
    return sources.read(path)


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("stack", STACKS)
def test_doctor_finds_what_the_matrix_found(tmp_path: Path, stack: str, form: str) -> None:
    source = read(tmp_path, stack, form)
    cells = unfixed(stack)
    assert said(source, {}) & tried(cells) == {found_in(cell) for cell in cells} - {None}


def named_in(cell: CellResult) -> dict[str, Any]:
    """What a user of the cell would name; CPU ranks stand in for GPUs unless it is about them."""
    inner = conditions_of(cell)
    named = {name: value for name, value in inner.items() if name not in INTERNAL}
    return {**named, "device": "cpu" if "without_stand_in" in inner else "cuda"}


def compatible(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(other.get(name, value) == value for name, value in one.items())


@pytest.mark.parametrize("stack", STACKS)
def test_doctor_is_exact_for_the_conditions_of_each_cell(tmp_path: Path, stack: str) -> None:
    source = read(tmp_path, stack, "requirements.txt")
    for named in {repr(named_in(cell)): named_in(cell) for cell in unfixed(stack)}.values():
        cells = [cell for cell in unfixed(stack) if compatible(named, named_in(cell))]
        found = {found_in(cell) for cell in cells} - {None}
        assert said(source, named) & tried(cells) == found, named


def test_doctor_finds_nothing_where_nothing_applies(tmp_path: Path) -> None:
    source = read(tmp_path, "newest", "uv.lock")
    for trainer in ("GRPO", "Online DPO", "SFT"):
        for strategy in ("ddp", "fsdp"):
            assert said(source, {"trainer": trainer, "strategy": strategy}) == set()
    without = {n: v for n, v in document().stacks["newest"].packages.items() if n != "deepspeed"}
    (tmp_path / "uv.lock").write_text(WRITERS["uv.lock"](without), encoding="utf-8")
    assert said(sources.read(tmp_path / "uv.lock"), {}) == set()
