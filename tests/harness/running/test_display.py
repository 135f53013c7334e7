"""What is printed while cells run and when they are over."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.expectations import Expectation
from trl_compat.cells.observation import Launch, Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cells.verdict import Verdict
from trl_compat.results import CellResult
from trl_compat.running import display
from trl_compat.running.display import NORMAL, QUIET, VERBOSE, Display

CATALOGUE = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
CELL = Cell(
    stack="s",
    failure="ppo-zero3-save",
    variant="zero3",
    model="tiny-qwen2",
    world_size=2,
    device="cpu",
    expectation=Expectation(outcome=Outcome.REPRODUCED, symptom="no-engine-method"),
)
ERROR = {"exception": "KeyError", "message": "[x]", "where": "a/b.py:f", "traceback": "1\n2\n3\n4"}
EXPECTED = Verdict(outcome=Outcome.REPRODUCED, symptom="no-engine-method", error=ERROR)
SURPRISE = Verdict(outcome=Outcome.OTHER_FAILURE, reason="KeyError: [x]", error=ERROR)


SEEN = Observation(launch=Launch.PRELOADED, world_size=2, started_at="now", seconds=1.5)


def shown(
    verbosity: int, verdict: Verdict = EXPECTED, *, live: bool = False, seen: Observation = SEEN
) -> str:
    """All that a display prints of one cell."""
    file = io.StringIO()
    console = Console(file=file, width=160, force_terminal=live, highlight=False)
    agrees = verdict.outcome is CELL.expectation.outcome
    display = Display(
        total=1,
        reused=0,
        describe=lambda _: (CELL, verdict, seen, agrees),
        verbosity=verbosity,
        console=console,
    )
    report: Any = SimpleNamespace(
        when="call", failed=False, user_properties=[("cell", CELL.id)], longrepr=None
    )
    with display:
        display.pytest_runtest_logstart(f"x.py::{CELL.id}@s", None)
        display.pytest_runtest_logreport(report)
    return file.getvalue()


def concluded(*cells: CellResult, interrupted: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=160, highlight=False)
    display = Display(
        total=len(cells),
        reused=0,
        describe=lambda _: (CELL, EXPECTED, SEEN, True),
        reports=Path("reports"),
        console=console,
    )
    display.finish(document(*cells), cells, CATALOGUE, interrupted)
    return file.getvalue()


def test_without_a_terminal_there_are_plain_lines() -> None:
    lines = shown(NORMAL).splitlines()
    assert lines[0] == "1 cells"
    assert lines[1] == "stack s: preparing its environment"
    assert lines[2] == "[1/1] ❌ reproduced  s · ppo-zero3-save/zero3 · tiny-qwen2  1.5 s"
    assert len(lines) == 3
    assert "\x1b" not in shown(NORMAL)


def test_a_terminal_shows_what_runs_now() -> None:
    assert "preparing the stack" in shown(NORMAL, live=True)


def test_no_color_turns_the_live_display_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "preparing the stack" not in shown(NORMAL, live=True)
    assert "left" not in shown(NORMAL, live=True)


def test_a_deviation_is_told_in_three_lines_and_without_its_log() -> None:
    lines = shown(NORMAL, SURPRISE).splitlines()[3:]
    assert [line.strip() for line in lines] == [
        "expected reproduced (no-engine-method), is other-failure, which no advisory records",
        "KeyError: [x] (a/b.py:f)",
        f"again: {CELL.command()}",
    ]


def test_a_stack_that_could_not_be_preloaded_is_said_to_be_slower() -> None:
    seen = SEEN.model_copy(update={"not_preloaded": "its imports start threads"})
    line = (
        "stack s: its cells are started with torchrun, which is slower: its imports start threads"
    )
    assert shown(NORMAL, seen=seen).splitlines()[2] == line
    assert shown(QUIET, seen=seen) == ""


def test_what_was_left_running_is_said_of_an_expected_outcome_too() -> None:
    left = SEEN.model_copy(update={"leftovers": 3})
    assert "3 processes that it started were still running" in shown(NORMAL, seen=left)
    assert "still running" not in shown(NORMAL)


def test_what_a_machine_does_not_contain_is_said_before_the_cells() -> None:
    file = io.StringIO()
    with Display(
        total=1,
        reused=0,
        describe=lambda _: (CELL, EXPECTED, SEEN, True),
        not_contained=("cells can read all files that the user can read",),
        console=Console(file=file, width=160),
    ):
        pass
    assert "not isolated on this machine: cells can read all files" in file.getvalue()


def test_quiet_says_nothing_of_what_is_as_expected() -> None:
    assert shown(QUIET) == ""
    assert "is other-failure" in shown(QUIET, SURPRISE)


def test_verbose_also_says_what_was_raised() -> None:
    assert "KeyError: [x] (a/b.py:f)" in shown(VERBOSE)
    assert "KeyError" not in shown(NORMAL)


def test_a_cell_without_a_record_shows_the_end_of_what_pytest_says() -> None:
    file = io.StringIO()

    def missing(_: str) -> Any:
        raise LookupError

    console = Console(file=file, width=100, highlight=False)
    display = Display(total=1, reused=0, describe=missing, console=console)
    report: Any = SimpleNamespace(
        when="call", failed=True, user_properties=[("cell", "c")], longrepr="1\n2\n3\n4"
    )
    display.pytest_runtest_logreport(report)
    assert file.getvalue().split() == ["no", "record", "c", "2", "3", "4"]


def test_the_worst_deviation_comes_first_and_what_to_do_last() -> None:
    other = cell(id="o", outcome=Outcome.OTHER_FAILURE, agrees=False, reason="new")
    broken = cell(id="h", outcome=Outcome.HARNESS_ERROR, agrees=False, reason="ours")
    said = concluded(other, broken, cell())
    assert said.index("deviates h") < said.index("deviates o") < said.index("known failure")
    *_, before, last = said.splitlines()
    assert before.startswith("2 cells deviate from their advisory: read the logs under reports")
    assert last.startswith("reports: reports/compatibility.html")


def test_a_known_failure_names_its_releases_and_the_way_to_its_fix() -> None:
    proof = cell(id="p", fixed=True, fix="save-through-engine", outcome=Outcome.PASS)
    assert (
        "known failure ppo-zero3-save: TRL 1.0; fix proven in 1 of 1 cells: "
        "trl-compat fix ppo-zero3-save" in concluded(cell(), proof)
    )
    assert "was not run in this selection" in concluded(cell())


def test_an_interrupted_run_says_how_to_go_on() -> None:
    assert "the same command continues from here" in concluded(cell(), interrupted=True)


def test_nothing_run_is_never_told_as_good() -> None:
    said = concluded(cell(outcome=Outcome.UNAVAILABLE, reason="no network"))
    assert "nothing was run: check the network" in said
    assert "as its advisory says" not in said


def test_the_label_of_a_cell_names_its_fix() -> None:
    assert display.label(CELL.model_copy(update={"fix": "f"})).endswith("tiny-qwen2 + f")
