"""Results of several runs in one document: each cell says where, when and how it was run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.recorded_runs import as_expected, where
from trl_compat import results
from trl_compat.cells.plan import Selection
from trl_compat.cli.matrix import conduct
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.machine import host
from trl_compat.machine.description import Host
from trl_compat.results import Results
from trl_compat.running import matrix_run

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
        **selected: object,
    ) -> Results:
        monkeypatch.setattr(host, "describe", lambda: machine)
        monkeypatch.setattr(matrix_run, "execute", engine)
        selection = Selection.model_validate({"stacks": stacks, "fixes": ("none",), **selected})
        command = f"run {' '.join(stacks)} on {machine.cpu}"
        conduct(place, selection, matrix_run.Options(jobs=1, command=command))
        found = results.read(place.reports / "results.json")
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


def test_that_is_known_without_the_earlier_report(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    (where.reports / "results.json").unlink()
    document = on(THIS, "old")
    assert set(commands(document).values()) == {"run old on elsewhere"}
    assert document.command == "run old on here"


def test_a_run_of_which_no_cell_is_left_is_forgotten(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    on(THIS, "new")
    for record in (where.state / "cells").glob("old__*"):
        record.unlink()
    document = on(THIS, "old")
    assert {run.command for run in document.runs} == {"run new on here", "run old on here"}


def test_a_file_without_runs_is_read_and_says_so(on: Any, where: project.Project) -> None:
    on(OTHER, "old", "new")
    path = where.reports / "results.json"
    data = json.loads(path.read_text())
    del data["runs"]
    for part in (*data["cells"], *data["not_run"]):
        del part["run"]
    path.write_text(json.dumps(data))
    for record in (where.state / "cells").glob("*"):
        record.unlink()  # as on the machine of somebody who has cloned the report
    document = on(THIS, "new")
    assert commands(document)["old/zero3"] == "run old new on elsewhere"
    assert commands(document)["new/zero3"] == "run new on here"
    notes = {run.command: run.note for run in document.runs}
    assert "may be from earlier ones" in notes["run old new on elsewhere"]
    assert notes["run new on here"] == ""


def test_what_nothing_is_known_of_is_not_made_up(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    for record in (where.state / "cells").glob("old__*"):
        record.write_text(json.dumps({**json.loads(record.read_text()), "run": ""}))
    (where.reports / "results.json").unlink()
    document = on(THIS, "old")
    assert set(commands(document).values()) == {None}


def test_a_run_that_is_not_there_cannot_be_named(on: Any, where: project.Project) -> None:
    on(OTHER, "old")
    path = where.reports / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "runs": []}))
    with pytest.raises(BadInput, match="not a results file of schema version 1"):
        results.read(path)


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
