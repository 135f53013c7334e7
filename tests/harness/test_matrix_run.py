"""Only what was observed under the present conditions is reported; nothing missing is green."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.test_outcomes import RAISED, observed, record
from trl_compat import matrix_run, project, results
from trl_compat.campaign import Campaign, Order
from trl_compat.cells import Cell, Selection
from trl_compat.environments import locks
from trl_compat.errors import HarnessError
from trl_compat.outcomes import Observation, Outcome
from trl_compat.store import CellRecord, Surroundings

LOCK = Surroundings(lock_sha256="lock", packages={})
OLD = Selection(stacks=("old",), fixes=("none",))


@pytest.fixture
def where(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> project.Project:
    monkeypatch.setattr(project, "check_models", lambda *_: {"tiny-qwen2": "digest"})
    monkeypatch.setattr(locks, "kept", lambda *_: "lock")
    return project.at(project_folder)


def keep(order: Order, cell: Cell, seen: Observation, key: str | None = None) -> None:
    campaign = Campaign(order)
    kept = CellRecord(
        key=key or campaign.key(cell, "lock"),
        cell_id=cell.id,
        surroundings=LOCK,
        observations=(seen,),
    )
    campaign.store.write(kept)


def run(where: project.Project, monkeypatch: pytest.MonkeyPatch, engine: Any) -> int:
    monkeypatch.setattr(matrix_run, "execute", engine)
    return matrix_run.run(where, OLD, matrix_run.Options(jobs=1))


def as_expected(order: Order, todo: list[Cell], *_: Any) -> bool:
    for cell in todo:
        broken = cell.expectation.outcome is Outcome.REPRODUCED
        keep(order, cell, observed(RAISED, RAISED) if broken else observed(record(), record()))
    return False


def outcomes(where: project.Project) -> dict[str, Outcome]:
    found = results.read(where.reports / "results.json")
    assert found is not None
    return {cell.variant: cell.outcome for cell in found.cells}


def test_a_run_as_expected_exits_with_0(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(where, monkeypatch, as_expected) == 0
    assert outcomes(where) == {"ddp": Outcome.PASS, "zero3": Outcome.REPRODUCED}


def test_a_cell_without_a_record_is_never_green(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses_one(order: Order, todo: list[Cell], *_: Any) -> bool:
        return as_expected(order, todo[:1])

    with pytest.raises(HarnessError, match="1 of 2 cells have no record"):
        run(where, monkeypatch, loses_one)
    assert outcomes(where) == {"ddp": Outcome.PASS}  # what there is, is kept


def test_an_outdated_record_is_not_reported(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outdated(order: Order, todo: list[Cell], *_: Any) -> bool:
        keep(order, todo[0], observed(record(), record()))
        keep(order, todo[1], observed(RAISED, RAISED), key="of another reproduction")
        return True  # interrupted before the second

    assert run(where, monkeypatch, outdated) == 1
    assert outcomes(where) == {"ddp": Outcome.PASS}


def test_nothing_is_reproduced_while_its_control_has_no_record(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_control(order: Order, todo: list[Cell], *_: Any) -> bool:
        return not as_expected(order, todo[1:])

    run(where, monkeypatch, without_control)
    assert outcomes(where) == {"zero3": Outcome.MASKED}


def test_results_of_a_stack_that_changed_are_dropped(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, as_expected)
    text = where.matrix_file.read_text().replace("deepspeed: 0.15.2", "deepspeed: 0.15.4", 1)
    where.matrix_file.write_text(text)
    monkeypatch.setattr(locks, "kept", lambda *_: "another lock")
    run(where, monkeypatch, lambda *_: True)
    assert outcomes(where) == {}
