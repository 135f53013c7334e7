"""Shards as runs on several machines, and ``trl-compat merge``: nothing is executed, all is judged.

The cells are run by an engine that writes records by hand; everything else is the real path.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import CLI
from tests.harness.conftest import ROOT
from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import as_expected, keep
from tests.harness.written import cells_in, version_1
from trl_compat import results
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection
from trl_compat.cells.shards import Shard
from trl_compat.cli.matrix import conduct
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE
from trl_compat.files import project
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec

Run = Callable[..., int]
TIMES = {"started_at", "seconds", "run"}


def talking(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
    """Runs cells whose ranks print something that tells one cell from another."""
    for cell in todo:
        broken = cell.expectation.outcome is Outcome.REPRODUCED
        seen = observed(RAISED, RAISED) if broken else observed(record(), record())
        keep(order, cell, seen.model_copy(update={"output": f"said of {cell.id}"}))
    return False


def passing(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
    for cell in todo:
        keep(order, cell, observed(record(), record()))
    return False


@pytest.fixture
def on(where: project.Project, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs all cells or a shard of them into a folder, as another machine would."""

    def run_on(folder: str, shard: str | None = None, engine: Any = talking, **more: Any) -> int:
        monkeypatch.setattr(matrix_run, "execute", engine)
        there = project.at(where.root, reports=where.root / folder)
        words = ["trl-compat", "matrix", *(["--shard", shard] if shard else [])]
        options = matrix_run.Options(
            jobs=1,
            command=" ".join([*words, "--reports", folder]),
            start="trl-compat matrix",
            shard=Shard.parse(shard) if shard else None,
        )
        given = {"models": ("tiny-qwen2",), "variants": ("ddp", "zero2", "zero3"), **more}
        return conduct(there, Selection.model_validate(given), options)

    return run_on


def merge(
    where: project.Project, *folders: str, into: str = "merged"
) -> subprocess.CompletedProcess[str]:
    words = [str(CLI), "--project", ".", "merge", *folders, "--into", into]
    return subprocess.run(words, cwd=where.root, capture_output=True, text=True, check=False)


def without_times(reports: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name, cell in cells_in(reports).items():
        kept = {key: value for key, value in cell.items() if key not in TIMES}
        kept["attempts"] = [{**attempt, "seconds": 0} for attempt in cell["attempts"]]
        kept["command"] = cell["command"].partition(" --reports ")[0]
        found[name] = kept
    return found


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def shards_of(on: Run, count: int, **more: Any) -> list[str]:
    for number in range(1, count + 1):
        assert on(f"shard-{number}", f"{number}/{count}", **more) in (EXIT_OK, EXIT_FINDINGS)
    return [f"shard-{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_shards_that_are_merged_are_one_run_cell_by_cell(
    on: Run, where: project.Project, count: int
) -> None:
    on("whole")
    done = merge(where, *shards_of(on, count))
    assert (done.returncode, done.stderr) == (0, "")
    assert without_times(where.root / "merged") == without_times(where.root / "whole")
    for name in ("evidence", "known-good"):
        one, other = where.root / "whole" / name, where.root / "merged" / name
        assert tree(one) == tree(other)
    assert "said of" in (where.root / "merged" / "evidence" / "old.log").read_text()


def test_each_cell_still_tells_its_run_and_its_machine(on: Run, where: project.Project) -> None:
    shards_of(on, 2)
    merge(where, "shard-1", "shard-2")
    found = results.read(where.root / "merged" / "results.json")
    assert found is not None
    told = {c.stack: run.command for c in found.cells if (run := found.run_of(c))}
    assert len(set(told.values())) == 2
    assert all("--shard" in command for command in told.values())


def test_reports_of_merged_results_are_up_to_date(on: Run, where: project.Project) -> None:
    merge(where, *shards_of(on, 2))
    words = [str(CLI), "--project", ".", "report", "--check", "--reports", "merged"]
    done = subprocess.run(words, cwd=where.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_commands_write_to_where_the_results_are_now(on: Run, where: project.Project) -> None:
    assert merge(where, *shards_of(on, 2), into="reports").returncode == 0
    for cell in cells_in(where.reports).values():
        assert "--reports" not in cell["command"]
        assert "--shard" not in cell["command"]
    merge(where, "shard-1", into="else where")
    for cell in cells_in(where.root / "else where").values():
        assert cell["command"].endswith("--reports 'else where'")


def test_merging_again_changes_no_file(on: Run, where: project.Project) -> None:
    folders = shards_of(on, 3)
    merge(where, *folders)
    before = tree(where.root / "merged")
    assert merge(where, *folders[::-1]).returncode == 0
    assert tree(where.root / "merged") == before


def test_a_shard_without_cells_ends_well_and_is_merged(on: Run, where: project.Project) -> None:
    assert on("full", "1/40", stacks=("old",), fixes=("none",)) == EXIT_OK
    assert on("empty", "40/40", stacks=("old",), fixes=("none",)) == EXIT_OK
    assert cells_in(where.root / "empty") == {}
    assert merge(where, "full", "empty").returncode == 0
    assert len(cells_in(where.root / "merged")) == 2


def test_a_shard_that_is_missing_is_named(on: Run, where: project.Project) -> None:
    shards_of(on, 3)
    done = merge(where, "shard-1", "shard-3")
    assert done.returncode == 0
    assert "note: no results of shard 2/3 of: trl-compat matrix" in done.stdout
    assert "note" not in merge(where, "shard-1", "shard-2", "shard-3").stdout


def conflict(on: Run, where: project.Project) -> subprocess.CompletedProcess[str]:
    on("one", stacks=("old",), fixes=("none",))
    on("other", stacks=("old",), fixes=("none",), engine=passing)
    return merge(where, "one", "other")


def test_a_conflict_is_reported_with_both_sides_and_both_are_kept(
    on: Run, where: project.Project
) -> None:
    done = conflict(on, where)
    assert done.returncode == EXIT_FINDINGS
    name = "old__saving__zero3__tiny-qwen2__x2"
    assert f"conflict: {name}: 2 results differ: " in done.stdout
    assert "reproduced (text) (observed" in done.stdout
    assert "pass (observed" in done.stdout
    cell = cells_in(where.root / "merged")[name]
    assert (cell["outcome"], cell["agrees"]) == ("unstable", False)
    assert {side["outcome"] for side in cell["sides"]} == {"reproduced", "pass"}
    assert cells_in(where.root / "merged")["old__saving__ddp__tiny-qwen2__x2"]["outcome"] == "pass"
    assert "unstable" in (where.root / "merged" / "compatibility.md").read_text()


def test_a_conflict_stays_one_until_the_cell_is_run_again(on: Run, where: project.Project) -> None:
    conflict(on, where)
    before = tree(where.root / "merged")
    assert merge(where, "one").returncode == EXIT_FINDINGS
    assert tree(where.root / "merged") == before
    # The line of the report runs it again there.
    on("merged", stacks=("old",), fixes=("none",))
    cell = cells_in(where.root / "merged")["old__saving__zero3__tiny-qwen2__x2"]
    assert (cell["outcome"], cell["sides"]) == ("reproduced", [])


def test_the_logs_of_both_sides_of_a_conflict_are_kept(on: Run, where: project.Project) -> None:
    def saying(text: str, *ranks: dict[str, Any]) -> Any:
        def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
            for cell in todo:
                keep(order, cell, observed(*ranks, output=text))
            return False

        return engine

    only = {"stacks": ("old",), "fixes": ("none",), "variants": ("ddp",)}
    on("one", engine=saying("all is well here", record(), record()), **only)
    on("other", engine=saying("it broke here", RAISED, RAISED), **only)
    for _ in range(2):
        assert merge(where, "one", "other").returncode == EXIT_FINDINGS
        log = (where.root / "merged" / "evidence" / "old.log").read_text()
        assert (log.count("all is well here"), log.count("it broke here")) == (1, 1)


def test_results_of_both_schema_versions_are_merged(on: Run, where: project.Project) -> None:
    on("one", "1/2")
    on("other", "2/2")
    found = results.read(where.root / "one" / "results.json")
    assert found is not None
    shutil.rmtree(where.root / "one" / "results")
    data = version_1(found)
    for cell in data["cells"]:
        del cell["key"], cell["sides"]  # as they were then
    (where.root / "one" / "results.json").write_text(json.dumps(data))
    done = merge(where, "one/results.json", "other")
    assert (done.returncode, done.stderr) == (0, "")
    on("whole")
    assert cells_in(where.root / "merged").keys() == cells_in(where.root / "whole").keys()


def newer(head: Path) -> None:
    head.write_text(json.dumps({**json.loads(head.read_text()), "schema_version": 3}))


def truncated(head: Path) -> None:
    head.write_text(head.read_text()[:100])


def a_stack_is_missing(head: Path) -> None:
    (head.parent / "results" / "old.json").unlink()


def a_stack_is_broken(head: Path) -> None:
    (head.parent / "results" / "old.json").write_text("{")


def nothing_there(head: Path) -> None:
    shutil.rmtree(head.parent)


def an_empty_folder(head: Path) -> None:
    shutil.rmtree(head.parent)
    head.parent.mkdir()


def another_stack(head: Path) -> None:
    for path in (head, head.parent / "results" / "old.json"):
        path.write_text(path.read_text().replace("0.11.4", "0.11.3"))


def another_failure(head: Path) -> None:
    path = head.parent / "results" / "old.json"
    path.write_text(path.read_text().replace('"failure": "saving"', '"failure": "unheard-of"'))


@pytest.mark.parametrize(
    ("spoil", "said", "exists"),
    [
        (newer, "schema version 3 is newer than 2", True),
        (truncated, "not a results file of schema version 2", False),
        (a_stack_is_missing, "missing", True),
        (a_stack_is_broken, "not the results of the stack 'old'", False),
        (nothing_there, "no results", True),
        (an_empty_folder, "no results", False),
        (another_stack, "the stack 'old' is not the same in both", True),
        (another_failure, "'unheard-of', of which there is no advisory", False),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    on: Run, where: project.Project, spoil: Callable[[Path], None], said: str, exists: bool
) -> None:
    on("one", engine=as_expected, stacks=("old",), fixes=("none",))
    shutil.copytree(where.root / "one", where.root / "other")
    if exists:
        assert merge(where, "one").returncode == 0
    before = tree(where.root)
    spoil(where.root / "other" / "results.json")
    spoiled = tree(where.root / "other") if (where.root / "other").exists() else {}
    done = merge(where, "one", "other")
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    kept = {name: text for name, text in tree(where.root).items() if not name.startswith("other/")}
    assert kept == {name: text for name, text in before.items() if not name.startswith("other/")}
    assert (where.root / "merged").exists() == exists
    assert (tree(where.root / "other") if (where.root / "other").exists() else {}) == spoiled


def test_results_that_are_broken_where_they_are_merged_to_are_not_written_over(
    on: Run, where: project.Project
) -> None:
    on("one", stacks=("old",), fixes=("none",))
    merge(where, "one")
    truncated(where.root / "merged" / "results.json")
    before = tree(where.root)
    done = merge(where, "one")
    assert (done.returncode, tree(where.root)) == (EXIT_USAGE, before)


def test_a_folder_that_cannot_be_written_to_is_bad_input(on: Run, where: project.Project) -> None:
    on("one", stacks=("old",), fixes=("none",))
    (where.root / "file").write_text("")
    done = merge(where, "one", into="file/below")
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert "--into file/below: cannot be written to" in done.stderr


def test_results_of_an_environment_as_it_is_stay_when_the_matrix_is_run(
    on: Run, where: project.Project
) -> None:
    on("one", stacks=("old",), fixes=("none",))
    for path in sorted((where.root / "one").rglob("*.json")):
        if ".state" not in path.parts:
            text = path.read_text().replace("old__", "installed-trl-0.11.4-ab12__")
            text = text.replace('"old"', '"installed-trl-0.11.4-ab12"')
            path.write_text(
                text.replace("results/old.json", "results/installed-trl-0.11.4-ab12.json")
            )
    folder = where.root / "one" / "results"
    (folder / "old.json").rename(folder / "installed-trl-0.11.4-ab12.json")
    assert merge(where, "one", into="reports").returncode == 0
    conduct(
        project.at(where.root),
        Selection(stacks=("new",), fixes=("none",)),
        matrix_run.Options(jobs=1),
    )
    stacks = {cell["stack"] for cell in cells_in(where.reports).values()}
    assert stacks == {"installed-trl-0.11.4-ab12", "new"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["matrix", "--shard", "3/2"], "--shard 3/2: no such shard; the shards are 1/2 to 2/2"),
        (["matrix", "--shard", "half"], "--shard half: not of the form K/N"),
        (["merge", "--into", "x"], "Missing argument"),
        (["merge", "reports"], "Missing option '--into'"),
    ],
)
def test_wrong_usage_is_one_sentence(words: Sequence[str], said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(CLI), "--project", str(ROOT), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
