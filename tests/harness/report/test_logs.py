"""Only logs that tell something are kept, and no report links to one that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import keep
from trl_compat import report, results
from trl_compat.advisories import Catalogue
from trl_compat.cells.outcomes import Outcome
from trl_compat.cells.plan import Cell, Selection
from trl_compat.cli.matrix import conduct
from trl_compat.files import project
from trl_compat.results import CellResult, Results
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec

SAID = {"output": "what the ranks said\n"}
PASSED = observed(record(), record()).model_copy(update=SAID)
FAILED = observed(RAISED, RAISED).model_copy(update=SAID)


def run(where: project.Project, monkeypatch: pytest.MonkeyPatch, *stacks: str, **by: Any) -> None:
    """Runs the variants ddp and zero3 of some stacks; each ends as ``by`` says, else as expected.

    With ``by``, cells that are known are run again.
    """

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        for cell in todo:
            broken = cell.expectation.outcome is Outcome.REPRODUCED
            keep(order, cell, by.get(cell.variant, FAILED if broken else PASSED))
        return False

    monkeypatch.setattr(matrix_run, "execute", engine)
    selection = Selection(stacks=stacks, fixes=("none",))
    conduct(where, selection, matrix_run.Options(jobs=1, fresh=bool(by)))


def written(where: project.Project) -> Results:
    document = results.read(where.reports / "results.json")
    assert document is not None
    return document


def logs(where: project.Project) -> dict[str, str | None]:
    return {f"{cell.stack}/{cell.variant}": cell.log for cell in written(where).cells}


def files(where: project.Project) -> set[str]:
    return {f"evidence/{path.name}" for path in (where.reports / "evidence").glob("*")}


def test_the_log_of_a_cell_that_passed_is_not_kept(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old")
    found = logs(where)
    assert found["old/ddp"] is None
    assert found["old/zero3"] is not None
    assert files(where) == {found["old/zero3"]}
    assert "what the ranks said" in (where.reports / found["old/zero3"]).read_text()


def test_a_cell_that_deviates_keeps_its_log_though_it_passed(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old", zero3=PASSED)
    cell = next(cell for cell in written(where).cells if cell.variant == "zero3")
    assert (cell.outcome, cell.agrees) == (Outcome.PASS, False)
    assert files(where) == {cell.log}


def test_a_log_goes_when_its_cell_passes_again(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old", ddp=FAILED)
    assert logs(where)["old/ddp"] in files(where)
    run(where, monkeypatch, "old", ddp=PASSED)
    assert logs(where)["old/ddp"] is None
    assert files(where) == {logs(where)["old/zero3"]}


def test_logs_of_passes_that_earlier_runs_kept_go_with_the_next_run(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old")
    before = written(where)
    cells = [cell.model_copy(update={"log": f"evidence/{cell.id}.log"}) for cell in before.cells]
    results.write(where.reports / "results.json", before.model_copy(update={"cells": cells}))
    for cell in cells:
        (where.reports / str(cell.log)).write_text("as it was written before\n")
    kept = next(cell.log for cell in cells if cell.variant == "zero3")

    run(where, monkeypatch, "new")
    assert logs(where)["old/ddp"] is None
    assert logs(where)["old/zero3"] == kept
    assert files(where) == {name for name in logs(where).values() if name}


def test_only_logs_are_removed_and_only_from_their_own_folder(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = where.reports / "evidence"
    (folder / "a folder.log").mkdir(parents=True)
    notes = [folder / "notes.txt", folder / "a folder.log" / "x.log", where.reports / "mine.log"]
    for path in notes:
        path.write_text("mine\n")
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "other.log").write_text("mine\n")
    (folder / "left.log").write_text("of a cell that is not there any more\n")
    run(where, monkeypatch, "old")
    assert [path for path in notes if not path.is_file()] == []
    assert not (folder / "left.log").exists()


def test_nothing_is_removed_behind_a_link(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.log").write_text("mine\n")
    where.reports.mkdir(parents=True)
    (where.reports / "evidence").symlink_to(elsewhere)
    run(where, monkeypatch, "old")
    assert (elsewhere / "mine.log").read_text() == "mine\n"


def test_no_report_links_to_a_log_that_is_not_there(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, catalogue: Catalogue
) -> None:
    run(where, monkeypatch, "old", "new")
    present = files(where)
    assert present
    for name, text in report.rendered(written(where), catalogue).items():
        named = set(re.findall(r"evidence/[\w.+-]+\.log", text))
        assert named <= present, name


def with_outcome(cell: CellResult, outcome: Outcome, **changes: Any) -> CellResult:
    return cell.model_copy(update={"outcome": outcome, "agrees": True, **changes})


def test_what_a_log_tells_depends_on_the_outcome(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl_compat.report import logs

    run(where, monkeypatch, "old")
    cell = written(where).cells[0]
    quiet = {o for o in Outcome if not logs.tells_something(with_outcome(cell, o))}
    assert quiet == {Outcome.PASS, Outcome.NOT_APPLICABLE, Outcome.MASKED}
    for outcome in quiet:
        assert logs.tells_something(with_outcome(cell, outcome, agrees=False))
        assert logs.tells_something(with_outcome(cell, outcome, leftovers=1))
