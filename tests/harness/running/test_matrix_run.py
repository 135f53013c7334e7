"""Only what was observed under the present conditions is reported; nothing missing is green."""

from __future__ import annotations

import errno
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import OLD, as_expected, keep, outcomes, read_by, run
from trl_compat import advisories, results
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection
from trl_compat.cells.verdict import Verdict
from trl_compat.cli.matrix import conduct
from trl_compat.errors import EXIT_HARNESS, EXIT_INTERRUPTED, BadInput, HarnessError
from trl_compat.files import project
from trl_compat.running import display, matrix_run
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.store import CellRecord
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import locks


def test_a_run_as_expected_exits_with_0(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(where, monkeypatch, as_expected) == 0
    assert outcomes(where) == {"ddp": Outcome.PASS, "zero3": Outcome.REPRODUCED}


def test_a_cell_without_a_record_is_never_green(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses_one(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        return as_expected(order, todo[:1])

    with pytest.raises(HarnessError, match="1 of 2 cells have no record"):
        run(where, monkeypatch, loses_one)
    assert outcomes(where) == {"ddp": Outcome.PASS}  # what there is, is kept


def test_an_outdated_record_is_not_reported(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outdated(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        keep(order, todo[0], observed(record(), record()))
        keep(order, todo[1], observed(RAISED, RAISED), key="of another reproduction")
        return True  # interrupted before the second

    assert run(where, monkeypatch, outdated) == EXIT_INTERRUPTED
    assert outcomes(where) == {"ddp": Outcome.PASS}


def test_nothing_is_reproduced_while_its_control_has_no_record(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_control(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
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


class Broken:
    """A runner that fails in a way that nobody thought of."""

    def __init__(self, error: Exception, folder: Path) -> None:
        self.error, self._folder = error, folder

    def folder(self, _: str) -> Path:
        return self._folder

    def run(self, *_: Any, **__: Any) -> Observation:
        raise self.error

    def close(self) -> None:
        pass


def broken_by(error: Exception, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    lock = SimpleNamespace(sha256="lock", packages={})
    locked = SimpleNamespace(lock=lock, wrong=lambda depth: "")
    monkeypatch.setattr(Campaign, "_ready", lambda *_: locked)

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        for cell in todo:
            campaign = Campaign(order)
            vars(campaign)["_runner"] = Broken(error, folder)
            campaign.run(cell)
        return False

    return engine


def test_what_the_harness_does_wrong_costs_no_record_and_is_its_own_exit_code(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = broken_by(FileNotFoundError("rank0.draft"), monkeypatch, tmp_path)
    assert run(where, monkeypatch, engine) == EXIT_HARNESS
    assert set(outcomes(where).values()) == {Outcome.HARNESS_ERROR}
    again = run(where, monkeypatch, as_expected)  # such a record is not used again
    assert again == 0


def test_a_full_disk_stops_with_a_sentence(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(BadInput, match="No space left on device; the results so far are kept"):
        run(where, monkeypatch, broken_by(full, monkeypatch, tmp_path))


def test_what_the_matrix_leaves_out_by_now_is_not_reported_any_more(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, as_expected)
    assert set(outcomes(where)) == {"ddp", "zero3"}
    left_out = "  - {stack: old, variant: zero3, reason: it does not fit there}\n"
    where.matrix_file.write_text(where.matrix_file.read_text() + left_out)
    other = Selection(stacks=("new",), fixes=("none",))
    conduct(where, other, matrix_run.Options(jobs=1))
    found = results.read(where.reports / "results.json")
    assert found is not None
    assert {cell.variant for cell in found.cells if cell.stack == "old"} == {"ddp"}


def test_asking_for_torchrun_runs_what_torchrun_has_not_run(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[bool, int]] = []

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        ran.append((order.preload, len(todo)))
        launch = Launch.PRELOADED if order.preload else Launch.TORCHRUN
        for cell in todo:
            broken = cell.expectation.outcome is Outcome.REPRODUCED
            seen = observed(RAISED, RAISED) if broken else observed(record(), record())
            keep(order, cell, seen.model_copy(update={"launch": launch}))
        return False

    monkeypatch.setattr(matrix_run, "execute", engine)
    for preload in (True, True, False, False, True):
        options = matrix_run.Options(jobs=1, preload=preload)
        assert conduct(where, OLD, options) == 0
        document = results.read(where.reports / "results.json")
        assert document is not None
        by_torchrun = (False, 2) in ran
        assert {cell.launch is Launch.TORCHRUN for cell in document.cells} == {by_torchrun}
        # Who runs such a cell again is to see what was seen.
        assert {"--torchrun" in cell.command for cell in document.cells} == {by_torchrun}
    assert ran == [(True, 2), (False, 2)]


def test_every_file_of_the_project_is_read_once(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_by(monkeypatch)
    run(where, monkeypatch, as_expected)
    assert set(read) > {"matrix.yaml", "saving.yaml"}
    assert set(read.values()) == {1}


def test_a_run_in_which_every_cell_is_known_reads_each_record_once(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, as_expected)
    parsed: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    parse, verdict = CellRecord.model_validate_json, Campaign.verdict

    def counted(data: bytes) -> CellRecord:
        found = parse(data)
        parsed[found.cell_id] += 1
        return found

    def counting(self: Campaign, cell: Cell, record: CellRecord) -> Verdict:
        judged[cell.id] += cell.is_control
        return verdict(self, cell, record)

    monkeypatch.setattr(CellRecord, "model_validate_json", counted)
    monkeypatch.setattr(Campaign, "verdict", counting)
    run(where, monkeypatch, as_expected)
    assert parsed
    assert set(parsed.values()) == {1}
    # Once for itself in each part of the run, and once there for all whom it vouches for.
    assert max(judged.values()) <= 4


def test_a_run_is_handed_back_and_nothing_but_its_state_is_written(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix_run, "execute", as_expected)
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    console = display.console_of(sys.stderr)
    options = matrix_run.Options(jobs=1)
    ran = matrix_run.run(where, table, catalogue, OLD, options, console)
    assert capsys.readouterr().out == ""
    assert not where.reports.exists()
    assert not ran.interrupted
    document = ran.over(None)
    assert {cell.variant for cell in ran.cells(document)} == {"ddp", "zero3"}
    again = matrix_run.run(where, table, catalogue, OLD, options, console).over(document)
    assert again.cells == document.cells
