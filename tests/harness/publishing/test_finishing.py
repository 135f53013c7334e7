"""A record that is filled in is run, told what was observed, compiled and checked."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.harness.new_failures import filled_in
from tests.harness.observations import INIT, RAISED, SEEN, observed, record
from tests.harness.recorded_runs import keep
from trl_compat import advisories, results
from trl_compat.advisories import patterns
from trl_compat.advisories.symptom import OBSERVE
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cli import cli
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.publishing.adding import starting
from trl_compat.publishing.adding.observed import pattern
from trl_compat.publishing.adding.starting import Shape
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec

DAY = datetime.date(2026, 11, 22)
PPO = Shape(trainer="PPO", setting=True)
Engine = Callable[..., bool]


@pytest.fixture
def begun(where: project.Project, checkout: Path) -> project.Project:
    """A checkout in which a failure is begun and filled in."""
    filled_in(starting.start(where, "new-one", PPO, DAY))
    return where


def raising(**by_fix: dict[str, Any]) -> Engine:
    """Runs cells: what is affected raises, masked cells raise what masks them, others pass."""

    def execute(order: RunSpec, todo: list[Cell], *_: Any, **__: Any) -> bool:
        for cell in todo:
            error = by_fix.get(cell.stack, SEEN)
            match cell.expectation.outcome:
                case Outcome.REPRODUCED:
                    raised = record("raised", error=error)
                case Outcome.MASKED:
                    raised = record("raised", error=INIT)
                case _:
                    raised = record()
            keep(order, cell, observed(raised, raised))
        return False

    return execute


@pytest.fixture
def finish(begun: project.Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(*words: str, engine: Engine | None = None) -> Result:
        monkeypatch.setattr(matrix_run, "execute", engine or raising())
        command = ["--project", str(begun.root), "advisories", "finish", "new-one"]
        return CliRunner().invoke(cli, [*command, "--model", "tiny-qwen2", *words])

    return run


def text_of(where: project.Project) -> str:
    return (where.advisories / "new-one.yaml").read_text()


def change(where: project.Project, old: str, new: str) -> None:
    text = text_of(where)
    assert old in text
    (where.advisories / "new-one.yaml").write_text(text.replace(old, new))


def outcomes(where: project.Project) -> dict[tuple[str, str, str | None], Outcome]:
    document = results.read(where.reports / "results.json")
    assert document is not None
    return {(c.stack, c.variant, c.fix): c.outcome for c in document.cells}


def test_what_is_left_to_fill_in_is_refused_with_its_line(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    change(begun, "cause: |\n", "cause: |\n  TODO: Explain it.\n")
    line = text_of(begun).splitlines().index("  TODO: Explain it.") + 1
    with pytest.raises(BadInput, match=rf"^advisories/new-one\.yaml:{line}: still .*Explain it\.$"):
        finish_raising(finish)
    change(begun, "  TODO: Explain it.\n", "")
    module = begun.root / "tests" / "harness" / "sabotages" / "new_one.py"
    module.write_text(f"{module.read_text()}# TODO: Write another.\n# TODO: Write a third.\n")
    with pytest.raises(BadInput, match=r"sabotages/new_one\.py:\d+: .*another\. \(and 1 more\)$"):
        finish_raising(finish)


def finish_raising(finish: Callable[..., Result], *words: str) -> None:
    done = finish(*words)
    assert done.exception is not None
    raise done.exception


def test_modules_of_other_names_are_looked_at_as_well(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    module = begun.reproductions / "saving.py"
    module.write_text(f"# TODO: Check it.\n{module.read_text()}")
    change(begun, "module: new_one", "module: saving")
    with pytest.raises(BadInput, match=r"^tests/reproductions/saving\.py:1: still"):
        finish_raising(finish)


def test_what_was_observed_is_written_into_the_record_and_judged_by_it(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    change(begun, "    exception: observe", "    exception: observe  # of accelerate")
    done = finish()
    assert done.exit_code == 0, done.output
    text = text_of(begun)
    assert OBSERVE not in text.replace("advisories finish", "")
    assert '    exception: "AttributeError"  # of accelerate\n' in text
    assert '    where: "accelerate/accelerator.py:get_state_dict"\n' in text
    assert "the cells are judged again by this record" in done.output
    assert outcomes(begun) == {
        ("old", "ddp", None): Outcome.PASS,
        ("old", "zero3", None): Outcome.REPRODUCED,
        ("old", "zero3", "mend-it"): Outcome.PASS,
        ("new", "ddp", None): Outcome.PASS,
        ("new", "zero3", None): Outcome.PASS,
    }
    catalogue = advisories.load(begun.advisories, begun.reproductions)
    assert catalogue["new-one"].symptom_of(SEEN) == "raised"


def test_the_data_of_doctor_and_the_reports_are_those_of_the_run(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    assert finish().exit_code == 0
    shipped = begun.root / "src" / "trl_compat" / "shipped"
    assert '"new-one"' in (shipped / "advisories.json").read_text()
    assert '"old"' in (shipped / "results.json").read_text()
    checked = CliRunner().invoke(cli, ["--project", str(begun.root), "report", "--check"])
    assert checked.exit_code == 0, checked.output


def test_what_is_missing_is_the_last_sentence(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    last = finish().output.splitlines()[-1]
    assert "new-one: still missing: " in last
    assert "runs on both sides of 2 edges (trl-compat advisories check --failure new-one)" in last
    assert "python -m tests.harness.observe new-one" in last
    assert "fix" not in last.replace("fixes", "")
    # A range of one release, with the one before and the one after it in the matrix.
    change(begun, ">=0.11.0,<=1.12.0", "==0.11.4")
    table = begun.matrix_file.read_text()
    more = table.split("  old:")[1].splitlines()[0]
    for version in ("0.11.3", "0.12.0"):
        line = more.replace("trl: 0.11.4", f"trl: {version}")
        table = table.replace("  new:", f"  trl-{version}:{line}\n  new:")
    begun.matrix_file.write_text(table)
    folder = begun.root / "tests" / "harness" / "observed"
    folder.mkdir(parents=True)
    (folder / "new-one.json").write_text("[]")
    done = finish()
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].endswith("new-one: nothing is missing")


def test_a_fix_that_does_not_help_is_missing_and_deviates(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    def useless(order: RunSpec, todo: list[Cell], *_: Any, **__: Any) -> bool:
        for cell in todo:
            fails = cell.stack == "old" and cell.variant == "zero3"
            keep(order, cell, observed(*([RAISED] * 2 if fails else [record()] * 2)))
        return False

    done = finish(engine=useless)
    assert done.exit_code == 1
    assert "a cell that proves the fix 'mend-it'" in done.output.splitlines()[-1]


def test_what_no_symptom_describes_is_printed_as_lines_for_the_record(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    for field, value in {"exception": "OSError", "message": "disk", "where": "a.py:f"}.items():
        change(begun, f"    {field}: observe", f"    {field}: {value}")
    before = text_of(begun)
    done = finish()
    assert (done.exit_code, text_of(begun)) == (1, before)
    lines = done.output.splitlines()
    at = lines.index("not symptom 'raised': zero3 on old; observed:")
    assert [line.strip() for line in lines[at + 1 : at + 4]] == [
        'exception: "AttributeError"',
        f'message: "^{" ".join(SEEN["message"].split()).replace(" ", _space)}"',
        'where: "accelerate/accelerator.py:get_state_dict"',
    ]


_space = r"\\s+"  # the record made by hand has no traceback that shows the message in one line


def test_cells_that_raise_different_things_are_not_written_into_the_record(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    table = begun.matrix_file.read_text()
    line = table.split("  old:")[1].splitlines()[0].replace("trl: 0.11.4", "trl: 0.12.2")
    begun.matrix_file.write_text(table.replace("  new:", f"  other:{line}\n  new:"))
    before = text_of(begun)
    done = finish(engine=raising(other={**SEEN, "where": "trl/b.py:g"}))
    assert (done.exit_code, text_of(begun)) == (1, before)
    assert done.output.count("not symptom 'raised'") == 2
    assert "error: new-one: symptom raised: exception, message, where still" in done.output


def test_the_values_of_a_silent_fault_are_printed_and_not_written(
    where: project.Project, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_in(starting.start(where, "new-one", Shape(violates="adds-up", setting=True), DAY))
    change(where, "conditions: {}", "conditions: {zero_stage: 3}")
    before = text_of(where)
    wrong = {"exception": "PostConditionFailed", "message": "wrong", "where": "check:adds-up"}
    values = iter([{"sum": 0.25, "kind": "a (b)"}, {"sum": 0.5, "kind": "c"}] * 9)

    def measure(order: RunSpec, todo: list[Cell], *_: Any, **__: Any) -> bool:
        for cell in todo:
            if cell.expectation.outcome is Outcome.REPRODUCED:
                measured = {"measured": next(values)}
                seen = record("raised", error={**wrong, "frames": []}, observations=measured)
            else:
                seen = record()
            keep(order, cell, observed(seen, seen))
        return False

    monkeypatch.setattr(matrix_run, "execute", measure)
    words = ["advisories", "finish", "new-one", "--model", "tiny-qwen2"]
    done = CliRunner().invoke(cli, ["--project", str(where.root), *words])
    assert done.exit_code == 1, done.output
    assert text_of(where) == before
    lines = done.output.splitlines()
    at = lines.index("not symptom 'wrong': zero3 on old, zero3 on masked; observed:")
    assert lines[at + 1 : at + 4] == [
        "    measured:",
        "      sum: [0.25, 0.5]",
        r'      kind: "a \\(b\\)|c"',
    ]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("it (really) costs $1.50 [or more]*", r"^it \(really\) costs \$1\.50 \[or more\]\*"),
        ("<X object at 0x7f00aa> is gone", "^<X object at 0x[0-9a-f]+> is gone"),
        ("a \x1b[31mred\x9b word", r"^a .\[31mred. word"),
        ("word " * 100, "^" + "word " * 31 + "word"),
        ("two\n  lines", r"^two\s+lines"),
    ],
)
def test_the_expression_of_a_message_is_found_in_it(message: str, said: str) -> None:
    # As results keep them: the message in one line, the end of the traceback as it was printed.
    signature = results.Signature(
        exception="E", message=" ".join(message.split())[:500], where="a.py:f"
    )
    found = pattern(signature, f"Traceback ...\nE: {message}")
    assert found == said
    assert patterns.compiled(found)(message)


def test_an_interrupted_run_says_nothing_of_the_record(
    begun: project.Project, finish: Callable[..., Result]
) -> None:
    before = text_of(begun)
    done = finish(engine=lambda *_, **__: True)
    assert (done.exit_code, text_of(begun)) == (130, before)
    assert "still missing" not in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stack", "odl"], "unknown stack 'odl'; did you mean 'old'"),
        (["--profile", "defualt"], "unknown profile 'defualt'; did you mean 'default'"),
        (["--profile", "default", "--stack", "old"], "leave one out"),
    ],
)
def test_bad_options_are_refused(
    finish: Callable[..., Result], words: list[str], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        finish_raising(finish, *words)


def test_an_unknown_record_is_refused_with_the_nearest(where: project.Project) -> None:
    (where.root / "src" / "trl_compat" / "shipped").mkdir(parents=True)
    words = ["--project", str(where.root), "advisories", "finish", "savin"]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, BadInput)
    assert "unknown failure 'savin'; did you mean 'saving'?" in str(done.exception)
