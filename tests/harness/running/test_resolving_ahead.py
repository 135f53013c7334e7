"""Before a run its stacks are resolved together; what cannot be installed is final for a grid."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Selection, plan
from trl_compat.cells.verdict import Verdict
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.running import resolving_ahead
from trl_compat.running.campaign import Campaign, RunSpec, agrees
from trl_compat.running.execution.watch import Limits
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import NoSolution, Unavailable, build, locks
from trl_compat.stacks.matrix import Stack

GRID = "grids: {g: {about: x, axes: {trl: [1.0.0, 1.1.0, 1.2.0, 1.3.0]}}}\nstacks:\n"


@pytest.fixture
def table(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> matrix.Matrix:
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(project_folder / "cache"))
    path = project_folder / "matrix.yaml"
    path.write_text(path.read_text().replace("stacks:\n", GRID, 1))
    return matrix.load(path)


Asked = list[str]


def answers(monkeypatch: pytest.MonkeyPatch, by_trl: Callable[[str], Exception | None]) -> Asked:
    asked: Asked = []

    def check(requirements: list[str], *_: object) -> None:
        trl = next(line for line in requirements if line.startswith("trl=="))
        asked.append(trl)
        if error := by_trl(trl.removeprefix("trl==")):
            raise error

    monkeypatch.setattr("trl_compat.stacks.environments.resolving.check", check)
    return asked


def names(table: matrix.Matrix) -> list[str]:
    return table.stacks_of("g")


def test_all_are_asked_and_what_is_refused_is_not_asked_again(
    table: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(trl: str) -> Exception | None:
        return NoSolution(f"no {trl}") if trl in ("1.1.0", "1.3.0") else None

    asked = answers(monkeypatch, refuse)
    told: list[str] = []
    found = resolving_ahead.resolve(table.stacks, names(table), told.append)
    assert sorted(found.refused.values()) == ["no 1.1.0", "no 1.3.0"]
    assert told[-1] == "resolving: 4 of 4 stacks, 2 cannot be installed"
    assert len(asked) == 4
    resolving_ahead.resolve(table.stacks, names(table), told.append)
    assert sorted(asked[4:]) == ["trl==1.0.0", "trl==1.2.0"]


def test_they_are_asked_at_the_same_time(
    table: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving_ahead, "workers", lambda: 4)
    together = threading.Barrier(4, timeout=30)

    def wait(_: str) -> None:
        together.wait()

    answers(monkeypatch, wait)
    assert resolving_ahead.resolve(table.stacks, names(table), lambda _: None).done == 4


def test_a_single_stack_is_left_to_its_cells(
    table: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch, lambda _: None)
    resolving_ahead.resolve(table.stacks, names(table)[:1], lambda _: None)
    assert asked == []


def test_an_index_that_stops_answering_is_one_sentence_and_keeps_what_was_said(
    table: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving_ahead, "workers", lambda: 1)

    def stop(trl: str) -> Exception:
        if trl not in ("1.0.0", "1.1.0"):
            threading.Event().wait(2)  # time enough to call off those that have not begun
        return NoSolution(f"no {trl}") if trl == "1.0.0" else Unavailable("connection refused")

    asked = answers(monkeypatch, stop)
    with pytest.raises(BadInput, match=r"does not answer \(1 of 4 stacks .*: connection refused"):
        resolving_ahead.resolve(table.stacks, names(table), lambda _: None)
    assert len(asked) < 4  # nobody waits for the others
    first = table.stacks[names(table)[0]]
    assert locks.refused(first, locks.interpreter_of(first))


def test_stacks_by_hand_that_no_index_answers_for_are_left_to_their_cells(
    table: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trl_compat.stacks.environments.resolving.check",
        lambda *_: (_ for _ in ()).throw(Unavailable("connection refused")),
    )
    found = resolving_ahead.resolve(table.stacks, table.by_hand, lambda _: None)
    assert found.unavailable == "connection refused"


def test_the_end_is_said_in_one_line(table: matrix.Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, lambda trl: NoSolution("no") if trl == "1.0.0" else None)
    said = io.StringIO()
    resolving_ahead.show(table.stacks, names(table), Console(file=said), quiet=False)
    assert said.getvalue() == "resolved 4 stacks; 1 cannot be installed\n"


def campaign(table: matrix.Matrix, catalogue: Catalogue, folder: Path) -> Campaign:
    where = project.at(folder)
    cells = plan(table, catalogue, Selection(grids=("g",), models=("tiny-qwen2",))).cells
    order = RunSpec(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        models=dict.fromkeys(table.models, "0"),
        matrix=table,
        catalogue=catalogue,
        cells=cells,
        limits=Limits(),
    )
    return Campaign(order)


def test_a_cell_of_a_stack_that_is_refused_is_run_once_and_agrees(
    table: matrix.Matrix,
    catalogue: Catalogue,
    project_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ensure(name: str, stack: Stack) -> build.Environment:
        locks.ask(stack, locks.interpreter_of(stack))
        raise AssertionError("it is refused")

    answers(monkeypatch, lambda trl: NoSolution(f"no {trl}"))
    monkeypatch.setattr(build, "ensure", ensure)
    first = campaign(table, catalogue, project_folder)
    cell = first.order.cells[0]
    assert first.known(cell) is None
    verdict = first.run(cell)
    assert (verdict.outcome, verdict.reason) == (Outcome.UNRESOLVABLE, "no 1.0.0")
    assert agrees(cell.expectation, verdict)
    second = campaign(table, catalogue, project_folder)
    others = [one for one in second.order.cells if one.id != cell.id]
    assert second.unknown(second.order.cells) == others
    record = second.known(cell)
    assert record is not None
    assert second.reportable(cell, "9999") == record  # it is final
    for kept in (project_folder / "cache" / "locks").glob("*.refused.json"):
        kept.unlink()
    assert campaign(table, catalogue, project_folder).known(cell) is None


def test_a_stack_by_hand_that_cannot_be_installed_deviates(
    matrix: matrix.Matrix, catalogue: Catalogue
) -> None:
    cell = plan(matrix, catalogue, Selection(stacks=("old",))).cells[0]
    verdict = Verdict(outcome=Outcome.UNRESOLVABLE)
    assert not agrees(cell.expectation, verdict)
    by_rule = Expectation(outcome=Outcome.PASS, may_be_unresolvable=True)
    assert agrees(by_rule, verdict)
