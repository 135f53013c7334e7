"""Results of several runs in one document: each cell says where, when and how it was run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.harness.fake_project import CLI
from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import as_expected, keep, where
from tests.harness.written import version_1
from trl_compat import results
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, Selection
from trl_compat.cli.matrix import conduct
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.machine import host
from trl_compat.machine.description import Host
from trl_compat.results import Results
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec

__all__ = ["where"]  # the fixture

THIS = Host(os="Linux", cpu="here", memory="1 GiB")
OTHER = Host(os="Linux", cpu="elsewhere", memory="2 GiB")


@pytest.fixture
def on(where: project.Project, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs some stacks on a machine; gives the document."""

    def run_on(
        machine: Host,
        *stacks: str,
        engine: Any = as_expected,
        place: project.Project = where,
        lenient: bool = False,
        **selected: object,
    ) -> Results:
        monkeypatch.setattr(host, "describe", lambda: machine)
        monkeypatch.setattr(matrix_run, "execute", engine)
        selection = Selection.model_validate({"stacks": stacks, "fixes": ("none",), **selected})
        command = f"run {' '.join(stacks)} on {machine.cpu}"
        conduct(place, selection, matrix_run.Options(jobs=1, command=command))
        path = place.reports / "results.json"
        found = results.read_leniently(path) if lenient else results.read(path)
        assert found is not None
        return found

    return run_on


def commands(document: Results) -> dict[str, str | None]:
    """By stack and variant the command of the run that the cell says that it is of."""
    found = {}
    for cell in document.cells:
        run = document.run_of(cell)
        found[f"{cell.stack}/{cell.variant}"] = run.command if run else None
    return found


def test_a_run_of_one_stack_leaves_the_others_their_run(on: Any) -> None:
    on(OTHER, "old", "masked")
    document = on(THIS, "new")
    assert document.command == "run new on here"  # the head is that of the last run
    assert commands(document) == {
        "old/ddp": "run old masked on elsewhere",
        "old/zero3": "run old masked on elsewhere",
        "masked/ddp": "run old masked on elsewhere",
        "masked/zero3": "run old masked on elsewhere",
        "new/ddp": "run new on here",
        "new/zero3": "run new on here",
    }
    first, second = document.runs
    assert (first.host, second.host) == (OTHER, THIS)
    assert (first.profile, first.harness_version) == ("default", document.harness_version)
    assert first.started_at <= str(first.ended_at) <= second.started_at <= str(second.ended_at)


def test_a_cell_that_is_known_stays_of_the_run_that_observed_it(on: Any) -> None:
    on(OTHER, "old")
    document = on(THIS, "old", "new")
    told = commands(document)
    assert told["old/zero3"] == "run old on elsewhere"
    assert told["new/zero3"] == "run old new on here"


def forget(where: project.Project) -> None:
    """Removes what was reported."""
    (where.reports / "results.json").unlink()
    shutil.rmtree(where.reports / "results")


def test_that_is_known_without_the_earlier_report(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    forget(where)
    document = on(THIS, "old")
    assert set(commands(document).values()) == {"run old on elsewhere"}
    assert document.command == "run old on here"


def test_a_run_of_which_no_cell_is_left_is_forgotten(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    on(THIS, "new")
    for kept in (where.state / "cells").glob("old__*"):
        kept.unlink()
    document = on(THIS, "old")
    assert {run.command for run in document.runs} == {"run new on here", "run old on here"}


def test_a_file_without_runs_is_read_and_says_so(on: Any, where: project.Project) -> None:
    on(OTHER, "old", "new")
    path = where.reports / "results.json"
    found = results.read(path)
    assert found is not None
    data = version_1(found)
    shutil.rmtree(where.reports / "results")
    del data["runs"]
    for part in (*data["cells"], *data["not_run"]):
        del part["run"]
    path.write_text(json.dumps(data))
    for kept in (where.state / "cells").glob("*"):
        kept.unlink()  # as on the machine of somebody who has cloned the report
    document = on(THIS, "new")
    assert commands(document)["old/zero3"] == "run old new on elsewhere"
    assert commands(document)["new/zero3"] == "run new on here"
    notes = {run.command: run.note for run in document.runs}
    assert "may be from earlier ones" in notes["run old new on elsewhere"]
    assert notes["run new on here"] == ""


def test_what_nothing_is_known_of_is_not_made_up(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    for kept in (where.state / "cells").glob("old__*"):
        kept.write_text(json.dumps({**json.loads(kept.read_text()), "run": ""}))
    forget(where)
    document = on(THIS, "old")
    assert set(commands(document).values()) == {None}


def test_of_a_run_that_the_head_does_not_have_nothing_is_known(
    on: Any, where: project.Project
) -> None:
    # The stack's file is written first: who reads before the head is there finds this.
    on(OTHER, "old")
    path = where.reports / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "runs": []}))
    found = results.read(path)
    assert found is not None
    assert set(commands(found).values()) == {None}


def talking(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
    """Runs cells whose ranks print something."""
    for cell in todo:
        broken = cell.expectation.outcome is Outcome.REPRODUCED
        seen = observed(RAISED, RAISED) if broken else observed(record(), record())
        keep(order, cell, seen.model_copy(update={"output": "said"}))
    return False


def test_a_stack_touched_alone_is_written_alone(on: Any, where: project.Project) -> None:
    on(OTHER, "old", "masked", engine=talking)
    paths = {p.name: p for p in where.reports.glob("results/*.json")}
    assert set(paths) == {"old.json", "masked.json"}
    for path in (*paths.values(), where.reports / "evidence" / "old.log"):
        os.utime(path, (1, 1))
    on(THIS, "new")
    assert {p.name for p in where.reports.glob("results/*.json")} == {*paths, "new.json"}
    assert {path.stat().st_mtime for path in paths.values()} == {1}
    assert (where.reports / "evidence" / "old.log").stat().st_mtime == 1
    for path in (where.state / "cells").glob("old__*"):
        path.unlink()
    on(THIS, "old")
    assert paths["old.json"].stat().st_mtime != 1
    assert paths["masked.json"].stat().st_mtime == 1


def test_the_file_of_a_stack_that_is_gone_is_removed(on: Any, where: project.Project) -> None:
    on(OTHER, "old", "masked")
    folder = where.reports / "results"
    mine = {"mine.json": '{"of": "mine"}', "Mine too.json": "{", "old.txt": ""}
    for name, text in mine.items():
        (folder / name).write_text(text)
    text = where.matrix_file.read_text()
    where.matrix_file.write_text(text.replace("  masked:", "  other:"))
    on(THIS, "old")
    assert {path.name for path in folder.iterdir()} == {"old.json", *mine}


def test_what_cannot_be_read_costs_the_other_stacks_nothing(
    on: Any, where: project.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    on(OTHER, "old", "masked")
    broken = where.reports / "results" / "masked.json"
    whole = broken.read_text()
    broken.write_text(whole[:300])
    with pytest.raises(BadInput, match=r"masked\.json: not the results of the stack 'masked'"):
        results.read(where.reports / "results.json")
    for kept in (where.state / "cells").glob("masked__*"):
        kept.unlink()
    found = on(THIS, "new", lenient=True)
    assert "nox -s matrix -- --stack masked" in capsys.readouterr().err
    assert set(found.unread) == {"masked"}
    assert {cell.stack for cell in found.cells} == {"old", "new"}
    assert broken.read_text() == whole[:300]  # it may still be mended
    for name in ("compatibility.md", "compatibility.html"):
        said = (where.reports / name).read_text()
        assert "The results of 1 stack could not be read" in said
    broken.write_text(whole)
    found = results.read(where.reports / "results.json")
    assert found is not None
    assert {cell.stack for cell in found.cells} == {"old", "masked", "new"}
    # Whoever does as the sentence says has it back as well.
    broken.write_text(whole[:300])
    found = on(THIS, "masked")
    assert {cell.stack for cell in found.cells} == {"old", "masked", "new"}


LEFT_OUT = "  - {stack: old, variant: zero2, reason: it takes a day there}\n"
BOTH = {"variants": ("ddp", "zero2"), "models": ("tiny-qwen2",)}


def test_what_was_left_out_stays_said_until_it_is_run(on: Any, where: project.Project) -> None:
    plain = where.matrix_file.read_text()
    where.matrix_file.write_text(plain + LEFT_OUT)
    on(OTHER, "old", **BOTH)
    document = on(THIS, "new")
    assert [(n.stack, n.variant, n.reason) for n in document.not_run] == [
        ("old", "zero2", "it takes a day there")
    ]
    told = document.run_of(document.not_run[0])
    assert told is not None
    assert told.command == "run old on elsewhere"
    # A later run that leaves it out as well says nothing new.
    again = on(THIS, "old", **BOTH)
    assert again.run_of(again.not_run[0]) == told
    # No reason any more, so nothing is said of it, though it was not run either.
    where.matrix_file.write_text(plain)
    assert on(THIS, "new").not_run == []
    where.matrix_file.write_text(plain + LEFT_OUT)
    assert on(OTHER, "old", **BOTH).not_run
    where.matrix_file.write_text(plain)
    document = on(THIS, "old", **BOTH)
    assert document.not_run == []
    assert "old/zero2" in commands(document)


def test_another_matrix_file_says_nothing_of_stacks_that_it_does_not_have(
    on: Any, where: project.Project
) -> None:
    on(OTHER, "old")
    text = where.matrix_file.read_text()
    for name in ("new", "old"):
        text = text.replace(f"  {name}:", f"  my-{name}:")
        text = text.replace(f"stack: {name}", f"stack: my-{name}")
    other = where.root / "other.yaml"
    other.write_text(text)
    document = on(THIS, "my-new", place=project.at(where.root, matrix=other))
    assert set(commands(document)) == {"old/ddp", "old/zero3", "my-new/ddp", "my-new/zero3"}
    # The project's own matrix does: what it does not have any more is gone.
    assert set(commands(on(THIS, "new"))) == {"old/ddp", "old/zero3", "new/ddp", "new/zero3"}


def rename(where: project.Project, old: str, new: str) -> None:
    path = where.advisories / "saving.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


TRIED = {"fixes": ("none", "right"), "models": ("tiny-qwen2",)}


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("name: right", "name: better", {("zero3", "right"), ("zero2", "right")}),
        ("zero2: {zero_stage: 2}", "zero1: {zero_stage: 1}", {("zero2", None), ("zero2", "right")}),
    ],
)
def test_cells_of_a_fix_or_a_variant_that_is_gone_are_left_out(
    on: Any, where: project.Project, old: str, new: str, gone: set[tuple[str, str | None]]
) -> None:
    on(OTHER, "old", "masked", variants=("zero2",), **TRIED)
    before = on(OTHER, "old", "masked", variants=("zero3",), **TRIED)
    rename(where, old, new)
    words = [str(CLI), "--project", str(where.root), "report", "--check"]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    word = old.split(":")[0].replace("name", "fix 'right'").replace("zero2", "variant 'zero2'")
    said = [line for line in checked.stdout.splitlines() if f"there is no {word}" in line]
    assert [line.split(": ")[1] for line in said] == ["old", "masked"]
    after = on(THIS, "new", variants=("zero3",))
    stay = [c for c in before.cells if (c.variant, c.fix) not in gone]
    assert len(stay) < len(before.cells)
    assert [c for c in after.cells if c.stack != "new"] == stay
    assert {c.run for c in after.cells} == {run.id for run in after.all_runs}
    assert after.summary == results.summary(after.cells)
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_nothing_is_left_out_because_it_was_not_selected(on: Any) -> None:
    before = on(OTHER, "old", **TRIED)
    after = on(THIS, "old", variants=("zero3",), fixes=("none",))
    assert {cell.id for cell in after.cells} == {cell.id for cell in before.cells}


def test_what_was_not_run_of_a_variant_that_is_gone_is_not_told(
    on: Any, where: project.Project
) -> None:
    where.matrix_file.write_text(where.matrix_file.read_text() + LEFT_OUT)
    assert on(OTHER, "old", **BOTH).not_run
    rename(where, "zero2: {zero_stage: 2}", "zero1: {zero_stage: 1}")
    document = on(THIS, "new")
    assert document.not_run == []
    assert {run.command for run in document.all_runs} == {
        "run old on elsewhere",
        "run new on here",
    }


@pytest.mark.parametrize(
    ("device", "backend", "evidence"),
    [
        ("cpu", "gloo", "cpu-gloo × 2"),
        ("cuda", "nccl", "cuda-nccl × 2"),
        ("cuda-shared", "gloo on a shared GPU", "cuda-gloo × 2, shared GPU"),
    ],
)
def test_evidence_says_on_what_it_was_proven(
    on: Any, monkeypatch: pytest.MonkeyPatch, device: str, backend: str, evidence: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    document = on(THIS, "old", device=device)
    ran = [cell for cell in document.cells if cell.evidence != "none"]
    assert {(cell.backend, cell.evidence) for cell in ran} == {(backend, evidence)}
