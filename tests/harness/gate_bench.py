"""A gate whose cells are judged by hand: nothing is executed."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import made_results
from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.cells.observation import Launch
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, plan
from trl_compat.files import project
from trl_compat.gate import run, sides
from trl_compat.gate.report import GateReport
from trl_compat.machine.description import Host
from trl_compat.running import matrix_run
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import locks

DAY = datetime.date(2026, 11, 21)


REST = "as_of: 2024-09-12, torch: 2.4.1, deepspeed: 0.15.1, accelerate: 0.34.2, peft: 0.12.0"


EXTRA = f"""
  before: {{trl: 0.9.6, transformers: 4.44.2, {REST}}}
  after: {{trl: 0.13.0, transformers: 4.46.3, {REST}}}
profiles:"""


Judge = Callable[[Cell], Outcome]


def as_expected(cell: Cell) -> Outcome:
    return cell.expectation.outcome or Outcome.PASS


def cell_result(cell: Cell, outcome: Outcome) -> results.CellResult:
    return results.CellResult(
        id=cell.id,
        stack=cell.stack,
        failure=cell.failure,
        variant=cell.variant,
        model=cell.model,
        world_size=cell.world_size,
        backend="gloo",
        fixed=cell.fix is not None,
        fix=cell.fix,
        wrong_fix=cell.wrong_fix,
        control=cell.is_control,
        outcome=outcome,
        expected=cell.expectation.outcome,
        agrees=True,
        reason="",
        symptom=cell.expectation.symptom if outcome is Outcome.REPRODUCED else None,
        masked_by=cell.expectation.masked_by if outcome is Outcome.MASKED else None,
        signature=None,
        checks=[],
        stand_ins=[],
        evidence="cpu-gloo × 2",
        started_at="2026-11-20T10:00:00+00:00",
        seconds=1.0,
        launch=Launch.PRELOADED,
        attempts=[],
        log=f"evidence/{cell.id}.log",
        command=cell.command(),
    )


def a_lock(stack: matrix.Stack) -> locks.Lock:
    return locks.lock_of("\n".join(stack.requirements()) + "\n")


@dataclasses.dataclass
class Ran:
    """What a run gives back, with its cells as they were judged."""

    cells: list[results.CellResult]
    interrupted: bool

    def over(self, previous: results.Results | None) -> results.Results:
        found = {cell.id: cell for cell in (previous.cells if previous else [])}
        found |= {cell.id: cell for cell in self.cells}
        return results.Results(
            generated_at=results.now(),
            command="",
            profile="gate",
            host=Host(os="", cpu="", memory=""),
            stacks={cell.stack: made_results.document().stacks["s"] for cell in found.values()},
            cells=list(found.values()),
            summary={},
        )

    def with_logs(self, document: results.Results) -> results.Results:
        return document

    def check_complete(self) -> None:
        assert not self.interrupted

    def show_end(self, _: results.Results) -> None:
        assert self.interrupted


@dataclasses.dataclass
class Bench:
    """A project whose cells end as ``judge`` says."""

    where: project.Project
    judge: Judge = as_expected
    lost: str = ""
    ran: list[str] = dataclasses.field(default_factory=list)

    def run(
        self, _: project.Project, table: matrix.Matrix, catalogue: Catalogue, *more: Any
    ) -> Ran:
        cells = plan(table, catalogue, more[0]).cells
        cells = [cell for cell in cells if cell.variant != self.lost]
        self.ran += [cell.id for cell in cells]
        return Ran([cell_result(cell, self.judge(cell)) for cell in cells], bool(self.lost))

    def gate(self, reference: str, candidate: str, **named: tuple[str, ...]) -> GateReport:
        request = run.Request(
            reference=reference,
            candidate=candidate,
            failures=named.get("failures", ()),
            trainers=named.get("trainers", ()),
            strategies=named.get("strategies", ()),
            models=("tiny-qwen2",),
            world_size=None,
            device="cpu",
            asked=sides.SideOptions(self.where.state / "gate" / "locks", "3.11", DAY),
            pyproject=self.where.root / "pyproject.toml",
            today=DAY,
        )
        return run.run(self.where, request, matrix_run.Options(jobs=1, command="trl-compat gate"))


@pytest.fixture
def bench(project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    path = project_folder / "matrix.yaml"
    path.write_text(path.read_text().replace("profiles:", EXTRA.strip("\n"), 1))
    mask = project_folder / "advisories" / "early-stop.yaml"
    mask.write_text(mask.read_text() + 'avoid: [{pin: {accelerate: "==0.34.2"}}]\n')
    found = Bench(project.at(project_folder))
    monkeypatch.setattr(matrix_run, "run", found.run)
    monkeypatch.chdir(project_folder)
    monkeypatch.setattr(locks, "resolve", lambda stack, _: a_lock(stack))
    return found
