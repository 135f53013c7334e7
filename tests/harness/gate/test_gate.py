"""A gate from what is named on its command line to its verdicts; the cells themselves are faked."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import trl_compat
from tests.harness.gate_bench import (
    Bench,
    a_lock,
    as_expected,
)
from tests.harness.recorded_runs import read_by
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.errors import BadInput
from trl_compat.gate import gate_findings, markdown, output, run, text
from trl_compat.gate.judgement import ChangeVerdict
from trl_compat.gate.report import FailureReport, GateReport
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import Unresolvable, locks


def only(report: GateReport) -> FailureReport:
    (failure,) = report.failures
    return failure


def test_a_release_that_breaks_what_worked_blocks_and_prints_its_proven_fix(bench: Bench) -> None:
    report = bench.gate("before", "old")
    found = only(report)
    assert (report.exit_code, found.verdict, found.blocks) == (1, ChangeVerdict.REGRESSION, True)
    assert [(r.name, r.proven) for r in found.remedies] == [("right", True)]
    said = text.render(report)
    assert "fix: right (proven on the candidate): It gathers." in said
    assert said.splitlines()[-1] == "⛔ Do not upgrade: 1 regression"


def test_a_failure_that_is_not_new_does_not_block(bench: Bench) -> None:
    report = bench.gate("old", "after")
    assert (report.exit_code, only(report).verdict) == (0, ChangeVerdict.STILL_FAILING)
    assert "fix: right" in text.render(report)


def test_what_the_upgrade_fixes_is_said(bench: Bench) -> None:
    def upstream_mended_it(cell: Cell) -> Outcome:
        return Outcome.PASS if cell.stack == "after" else as_expected(cell)

    bench.judge = upstream_mended_it
    report = bench.gate("old", "after")
    assert (report.exit_code, only(report).verdict) == (0, ChangeVerdict.FIXED)
    said = text.render(report)
    assert "zero3: the reference fails as recorded (text), the candidate passes" in said
    assert "the upgrade fixes saving." in said


def test_only_the_fixes_of_what_fails_are_run_and_no_wrong_one(bench: Bench) -> None:
    bench.gate("before", "old")
    fixes = [cell for cell in bench.ran if cell.endswith(("right", "wrong"))]
    assert fixes == ["old__saving__zero3__tiny-qwen2__x2__right"]


def test_a_control_that_stops_working_is_a_regression_even_where_the_failure_is_old(
    bench: Bench,
) -> None:
    report = bench.gate("old", "masked")
    found = only(report)
    assert {p.variant: p.verdict for p in found.places} == {
        "ddp": ChangeVerdict.REGRESSION,
        "zero3": ChangeVerdict.STILL_FAILING,
    }
    assert report.exit_code == 1
    assert "is masked by early-stop" in found.why
    assert [r.text for r in found.remedies] == ["Take accelerate 0.34.2"]
    assert "fix: Take accelerate 0.34.2 (for early-stop)" in text.render(report)


def test_a_fix_that_does_not_help_on_the_candidate_is_not_offered(bench: Bench) -> None:
    bench.judge = lambda cell: Outcome.REPRODUCED if cell.fix else as_expected(cell)
    report = bench.gate("before", "old")
    assert [r.proven for r in only(report).remedies] == [False]
    assert "evidence/old__saving__zero3__tiny-qwen2__x2.log" in text.render(report)


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_the_line_that_asks_again_can_be_pasted_from_what_is_published(
    bench: Bench, form: str
) -> None:
    bench.judge = lambda cell: Outcome.UNSTABLE if cell.stack == "old" else Outcome.PASS
    line = "trl-compat gate --from '/tmp/a folder/x.txt' --to /data/trl-compat-1/y.txt"
    report = bench.gate("before", "old").model_copy(update={"command": line})
    assert line in output.render(report, form)
    private = report.model_copy(update={"command": "trl-compat gate --from /home/alice/x"})
    assert "trl-compat gate --from ~/x" in output.render(private, form)
    assert "alice" not in output.render(private, form)
    assert "<tmp>" in output.render(report.model_copy(update={"unresolvable": "/tmp/y"}), form)


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.MASKED, Outcome.HARNESS_ERROR])
def test_a_fix_that_was_not_run_is_not_said_to_be_of_no_help(
    bench: Bench, outcome: Outcome
) -> None:
    bench.judge = lambda cell: outcome if cell.fix else as_expected(cell)
    report = bench.gate("before", "old")
    assert [r.proven for r in only(report).remedies] == [None]
    assert "fix: right (not run on the candidate)" in text.render(report)


def test_no_answer_where_the_reference_passes_is_not_green(bench: Bench) -> None:
    bench.judge = lambda cell: Outcome.UNSTABLE if cell.stack == "old" else Outcome.PASS
    report = bench.gate("before", "old")
    assert (report.exit_code, only(report).verdict) == (1, ChangeVerdict.CANNOT_TELL)
    said = text.render(report)
    assert "run: trl-compat gate --failure saving --fresh" in said


@pytest.mark.parametrize("stacks", [("old",), ("before", "old")])
def test_a_failing_harness_is_no_verdict_on_a_stack(bench: Bench, stacks: tuple[str, ...]) -> None:
    bench.judge = lambda cell: Outcome.HARNESS_ERROR if cell.stack in stacks else Outcome.PASS
    report = bench.gate("before", "old")
    assert report.exit_code == 70
    assert report.headline == "⚠️ The harness failed in some cells: run the gate again"


def test_an_interrupted_gate_says_nothing_on_half_of_the_cells(bench: Bench) -> None:
    bench.lost = "zero3"
    with pytest.raises(KeyboardInterrupt):
        bench.gate("before", "old")
    assert not [cell for cell in bench.ran if cell.endswith("right")]


def test_a_gate_that_could_compare_nothing_is_not_green(bench: Bench) -> None:
    bench.judge = lambda cell: Outcome.UNAVAILABLE
    report = bench.gate("before", "old")
    assert (report.exit_code, report.headline) == (1, "⚠️ Cannot tell: no cell could be compared")


def test_a_trainer_that_is_gone_blocks_who_uses_it(bench: Bench) -> None:
    unsaid = bench.gate("before", "new")
    assert (unsaid.exit_code, only(unsaid).verdict) == (0, ChangeVerdict.CANNOT_TELL)
    assert "name it as well: trl-compat gate --trainer PPO" in text.render(unsaid)
    used = bench.gate("before", "new", trainers=("PPOTrainer",))
    assert (used.exit_code, only(used).verdict) == (1, ChangeVerdict.REGRESSION)
    assert "the candidate no longer has the PPO trainer" in only(used).why


def test_a_candidate_that_cannot_be_installed_is_refused_with_the_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(stack: matrix.Stack, _: object) -> locks.Lock:
        if stack.trl == "0.11.4":
            raise Unresolvable("Because trl==0.11.4 depends on transformers>=9")
        return a_lock(stack)

    monkeypatch.setattr(locks, "resolve", refuses)
    report = bench.gate("before", "old")
    assert (report.exit_code, report.failures, bench.ran) == (1, (), [])
    for said in (text.render(report), markdown.render(report)):
        assert "The candidate cannot be installed" in said
        assert "Because trl==0.11.4 depends on transformers>=9" in said
    with pytest.raises(BadInput, match="--from old: it cannot be installed"):
        bench.gate("old", "before")


def test_the_same_packages_need_no_run(bench: Bench) -> None:
    report = bench.gate("old", "masked")
    assert bench.ran
    bench.ran.clear()
    report = bench.gate("old", "old")
    assert (report.exit_code, bench.ran) == (0, [])
    assert "nothing was run" in text.render(report)


def test_findings_name_the_candidate_file_and_rank_what_stops(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = bench.gate("before", "old")
    log = json.loads(output.render(report, "sarif"))
    (found,) = log["runs"][0]["results"]
    assert (found["ruleId"], found["level"]) == ("saving", "error")
    assert output.render(report, "github").startswith(
        "::error file=pyproject.toml,line=1,title=saving%3A It cannot save::⛔ regression: zero3"
    )
    assert output.render(bench.gate("new", "new"), "github") == ""
    lock = tmp_path / "requirements.txt"
    lock.write_text("")
    side = report.candidate.model_copy(update={"given": str(lock)})
    (of_file,) = gate_findings.of_gate(report.model_copy(update={"candidate": side}))
    assert of_file.location == str(lock)


def test_the_json_is_the_report_and_has_a_published_schema(bench: Bench) -> None:
    report = bench.gate("before", "old")
    said = output.render(report, "json")
    assert GateReport.model_validate_json(said) == report
    schema = Path(trl_compat.__file__).parent / "schema" / "gate-1.json"
    published = json.loads(schema.read_text())
    again = f"make it again with: trl-compat schema --gate > {schema.name}"
    assert published == GateReport.model_json_schema(mode="serialization"), again
    jsonschema.validate(json.loads(said), published)


def test_the_summary_is_written_and_the_job_summary_is_appended_to(
    bench: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    report = bench.gate("before", "old")
    output.summarise(report, path, append=True)
    assert path.read_text().startswith(f"before\n{markdown.MARK}\n")
    output.summarise(report, path, append=False)
    assert path.read_text().startswith(markdown.MARK)
    with pytest.raises(BadInput, match="cannot be written"):
        output.summarise(report, tmp_path, append=False)


IGNORE = """
[tool.trl-compat]
ignore = [{failure = "saving", reason = "we never save there", expires = %s}]
"""


@pytest.mark.parametrize(
    ("expires", "code"), [("2026-11-22", 0), ("2026-11-21", 0), ("2026-11-20", 1)]
)
def test_an_ignore_holds_to_the_end_of_its_day(bench: Bench, expires: str, code: int) -> None:
    (bench.where.root / "pyproject.toml").write_text(IGNORE % expires)
    report = bench.gate("before", "old")
    assert report.exit_code == code
    assert (only(report).ignored is not None) is (code == 0)
    said = text.render(report)
    assert ("ignored: we never save there" in said) is (code == 0)
    assert ("expired on 2026-11-20" in said) is (code == 1)


def test_an_expired_ignore_fails_even_where_nothing_blocks(bench: Bench) -> None:
    (bench.where.root / "pyproject.toml").write_text(IGNORE % "2026-01-01")
    report = bench.gate("old", "after")
    assert report.exit_code == 1
    assert report.headline == "⛔ 1 ignore expired: review it"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('ignore = [{failure = "savin", reason = "long enough", expires = 2027-01-01}]', "did you"),
        ('ignore = [{failure = "saving", reason = "short", expires = 2027-01-01}]', "reason"),
        ('ignore = [{failure = "saving", reason = "long enough"}]', "expires: Field required"),
        ("ignor = []", "ignor"),
        ("ignore = [", "not valid TOML"),
    ],
)
def test_a_broken_ignore_is_bad_input(bench: Bench, table: str, said: str) -> None:
    (bench.where.root / "pyproject.toml").write_text(f"[tool.trl-compat]\n{table}\n")
    with pytest.raises(BadInput, match=said):
        bench.gate("before", "old")


def test_the_comment_for_a_pull_request_answers_first_and_folds_the_rest(bench: Bench) -> None:
    lines = markdown.render(bench.gate("before", "old")).splitlines()
    assert lines[:2] == [markdown.MARK, "### ⛔ Do not upgrade: 1 regression"]
    assert "| trl | 0.9.6 | 0.11.4 |" in lines
    assert any(line.startswith("| ⛔ regression | [saving](https://") for line in lines)
    assert "<details open><summary>The fix for saving</summary>" in lines
    assert "<details><summary>Every cell (2)</summary>" in lines


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"failures": ("savin",)}, "did you mean 'saving'"),
        ({"trainers": ("GRPO",)}, "--trainer GRPO: no known failure concerns it; available: PPO"),
        ({"strategies": ("zero4",)}, "unknown strategy 'zero4'; did you mean 'zero3'"),
        ({"strategies": ("fsdp",)}, "nothing to run: no known failure matches"),
    ],
)
def test_an_unknown_name_is_bad_input(
    bench: Bench, named: dict[str, tuple[str, ...]], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        bench.gate("before", "old", **named)


def test_a_gate_reads_every_file_once_and_prints_nothing_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = read_by(monkeypatch)
    bench.gate("before", "old")
    assert "matrix.yaml" in read
    assert set(read.values()) == {1}
    folder = next((bench.where.state / "gate").iterdir())
    assert {path.name for path in folder.iterdir()} == {"matrix.yaml", "results.json", "results"}
    assert capsys.readouterr().out == ""


def test_a_stack_that_a_grid_has_made_can_be_a_side(project_folder: Path) -> None:
    path = project_folder / "matrix.yaml"
    grids = "grids: {g: {about: x, axes: {trl: [1.0.0, 1.1.0]}}}\nstacks:\n"
    exclude = "excludes:\n  - {grid: g, variant: zero3, reason: the grid leaves it out}\n"
    path.write_text(
        path.read_text().replace("stacks:\n", grids, 1).replace("excludes:\n", exclude, 1)
    )
    table = matrix.load(path)
    name = table.stacks_of("g")[0]
    sides = {one: table.stacks[one] for one in ("old", name)}
    own = run._matrix_of(table, sides, (matrix.Selector(),))
    assert own.by_hand == ["old", name]
    place = {"failure": "saving", "variant": "zero3", "model": "tiny-qwen2"}
    assert own.excluded(stack=name, **place) == "the grid leaves it out"
    assert own.excluded(stack="old", **place) is None
    written = project_folder / "own.yaml"
    written.write_text(run._text_of(own))
    assert matrix.load(written) == own
