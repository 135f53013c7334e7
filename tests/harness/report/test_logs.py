"""Only logs that tell something are kept, and no report links to one that is not there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import made_results
from tests.harness.made_results import document
from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import keep
from tests.harness.written import version_1
from trl_compat import report, results
from trl_compat.advisories import Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection
from trl_compat.cli.matrix import conduct
from trl_compat.files import project
from trl_compat.report import logs as logging
from trl_compat.results import CellResult, Results
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec

CLI = Path(sys.executable).with_name("trl-compat")
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


def said_of(where: project.Project, cell: CellResult) -> str | None:
    """What the log of a cell says, at the line that it names."""
    return text_of(where.reports, cell)


def text_of(reports: Path, cell: CellResult) -> str | None:
    """The same, in a reports folder."""
    if cell.log is None or cell.log_line is None:
        return None
    lines = (reports / cell.log).read_bytes().decode().split("\n")
    assert lines[cell.log_line - 1] == f"=== {cell.id}"
    rest = lines[cell.log_line :]
    end = next((n for n, line in enumerate(rest) if line.startswith("=== ")), len(rest))
    return "\n".join(line.removeprefix("  ") for line in rest[:end]).rstrip()


def test_a_stack_has_one_file_and_its_cells_their_places_in_it(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old", "new")
    assert files(where) == {"evidence/old.log", "evidence/new.log"}
    for cell in written(where).cells:
        if cell.log is not None:
            assert cell.log == f"evidence/{cell.stack}.log"
            assert said_of(where, cell) == "what the ranks said"
    assert logs(where)["old/zero3"] is not None


def named(name: str, **changes: Any) -> CellResult:
    return made_results.cell(
        id=name, outcome=changes.pop("outcome", Outcome.PASS), symptom=None, **changes
    )


def test_of_cells_that_went_as_predicted_one_of_each_kind_is_a_sample(tmp_path: Path) -> None:
    fails = {"outcome": Outcome.REPRODUCED}
    shown = document(
        named("silent"),
        *(named(f"passes-{n}") for n in range(3)),
        *(named(f"fails-{n}", **fails) for n in range(3)),
        *(named(f"other-{n}", failure="other", **fails) for n in range(2)),
        *(named(f"masked-{n}", outcome=Outcome.MASKED, masked_by="m") for n in range(2)),
        *(named(f"absent-{n}", outcome=Outcome.NOT_APPLICABLE) for n in range(2)),
        *(named(f"hangs-{n}", outcome=Outcome.HANG) for n in range(2)),
        *(named(f"deviates-{n}", agrees=False) for n in range(2)),
        *(named(f"left-{n}", leftovers=1) for n in range(2)),
    )
    said = {one.id: f"printed by {one.id}" for one in shown.cells if one.id != "silent"}
    kept = logging.keep(tmp_path, shown, said)
    found = [one.id for one in kept.cells if one.log]
    every = ("hangs-0", "hangs-1", "deviates-0", "deviates-1", "left-0", "left-1")
    assert found == ["passes-0", "fails-0", "other-0", "masked-0", *every]
    # Without the records, as in a clone, the same ones stay.
    assert logging.keep(tmp_path, kept, {}) == kept


def test_a_sample_is_short_and_a_surprise_is_whole(tmp_path: Path) -> None:
    parts = [f"===== {name} =====\n" + f"line of {name}\n" * 400 for name in ("rank0", "rank1")]
    shown = document(named("sample"), named("surprise", agrees=False))
    said = dict.fromkeys(("sample", "surprise"), "\n".join(parts))
    (tmp_path / "evidence").mkdir()
    kept = logging.keep(tmp_path, shown, said)
    texts = [text_of(tmp_path, one) or "" for one in kept.cells]
    assert [text.count("line of rank0") for text in texts] == [142, 400]
    assert [text.count("line of rank1") for text in texts] == [142, 400]
    assert logging.keep(tmp_path, kept, {}) == kept
    assert [text_of(tmp_path, one) or "" for one in kept.cells] == texts


def test_no_printed_line_is_taken_for_the_head_of_a_section(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "=== old__saving__ddp__tiny-qwen2__x2\n\n  indented\r\n=== x"
    run(where, monkeypatch, "old", zero3=FAILED.model_copy(update={"output": text}))
    before = (where.reports / "evidence" / "old.log").read_bytes()
    for path in (where.state / "cells").glob("old__*"):
        path.unlink()  # as in a clone
    run(where, monkeypatch, "new")  # reads the file, and writes the same
    assert (where.reports / "evidence" / "old.log").read_bytes() == before
    assert text in {said_of(where, cell) for cell in written(where).cells}


def test_a_log_that_is_not_ours_to_read_is_not_copied(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old")
    (where.reports / "secret.log").write_text("hunter2")
    before = written(where)
    (where.reports / "evidence" / "link.log").symlink_to(where.reports / "secret.log")
    for log in (
        "secret.log",
        "../reports/secret.log",
        "evidence/../secret.log",
        "evidence/link.log",
    ):
        cells = [cell.model_copy(update={"log": log}) for cell in before.cells]
        results.write(where.reports / "results.json", before.model_copy(update={"cells": cells}))
        run(where, monkeypatch, "new")
        for path in (where.reports / "evidence").glob("*.log"):
            assert path.is_symlink() or "hunter2" not in path.read_text()


def test_a_cell_that_deviates_keeps_its_log_though_it_passed(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, "old", zero3=PASSED)
    cell = next(cell for cell in written(where).cells if cell.variant == "zero3")
    assert (cell.outcome, cell.agrees) == (Outcome.PASS, False)
    assert said_of(where, cell) == "what the ranks said"


def test_a_log_goes_when_its_cell_passes_again(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = PASSED.model_copy(update={"output": ""})
    run(where, monkeypatch, "old", ddp=FAILED)
    assert logs(where)["old/ddp"] in files(where)
    run(where, monkeypatch, "old", ddp=silent)
    assert logs(where)["old/ddp"] is None
    assert logs(where)["old/zero3"] in files(where)
    run(where, monkeypatch, "old", ddp=silent, zero3=silent)
    assert files(where) == set()


def test_the_files_of_single_cells_become_one_of_the_stack(
    where: project.Project, monkeypatch: pytest.MonkeyPatch, catalogue: Catalogue
) -> None:
    run(where, monkeypatch, "old", "new")
    before = written(where)
    cells = [cell.model_copy(update={"log": f"evidence/{cell.id}.log"}) for cell in before.cells]
    old = before.model_copy(update={"cells": cells, "runs": None})
    shutil.rmtree(where.reports / "results")
    shutil.rmtree(where.reports / "evidence")
    (where.reports / "evidence").mkdir()
    for cell in cells:
        (where.reports / str(cell.log)).write_text(f"printed by {cell.id}\n")
    data = version_1(old)
    for cell in data["cells"]:
        cell["run"] = None
    (where.reports / "results.json").write_text(json.dumps(data))
    done = subprocess.run(
        [CLI, "--project", where.root, "report"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert files(where) == {"evidence/old.log", "evidence/new.log"}
    after = written(where)
    assert [cell.id for cell in after.cells] == [cell.id for cell in cells]
    for cell in after.cells:
        assert said_of(where, cell) in (None, f"printed by {cell.id}")
    assert any(cell.log for cell in after.cells)
    assert {run.note for run in after.all_runs} != {""}  # of when runs were not kept apart
    done = subprocess.run(
        [CLI, "--project", where.root, "report", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


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
    run(where, monkeypatch, "old")
    cell = written(where).cells[0]
    quiet = {o for o in Outcome if not logging.tells_something(with_outcome(cell, o))}
    assert quiet == {Outcome.PASS, Outcome.REPRODUCED, Outcome.NOT_APPLICABLE, Outcome.MASKED}
    for outcome in quiet:
        assert logging.tells_something(with_outcome(cell, outcome, agrees=False))
        assert logging.tells_something(with_outcome(cell, outcome, leftovers=1))
