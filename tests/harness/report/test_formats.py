"""Each format from results alone, and the committed reports from their results.json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document, merged
from trl_compat import report, results
from trl_compat.advisories import load as load_advisories
from trl_compat.cells.outcome import Outcome
from trl_compat.cli.report import FORMATS as NAMED
from trl_compat.report import badge, ctrf, junit, sarif
from trl_compat.report.changes import Change, compare, lines, regressed
from trl_compat.report.deviations import of_results
from trl_compat.report.finding import Finding
from trl_compat.report.formats import FORMATS
from trl_compat.results import CellResult

CLI = Path(sys.executable).with_name("trl-compat")
CATALOGUE = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
DEVIATES = cell(
    outcome=Outcome.CRASH, agrees=False, reason="rank 1 was killed", traceback="Traceback ..."
)
SKIPPED = cell(id="n", outcome=Outcome.NOT_APPLICABLE, variant="zero2")


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    given = [str(CLI), *map(str, words)]
    return subprocess.run(given, capture_output=True, text=True, check=False, cwd=ROOT)


def write(path: Path, *cells: CellResult) -> Path:
    results.write(path, document(*cells))
    return path


def test_the_committed_reports_are_what_their_results_make() -> None:
    done = run("report", "--check")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_a_report_that_was_edited_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "results.json", cell())
    found = results.read(path)
    assert found is not None
    report.render_all(tmp_path, found, CATALOGUE)
    assert report.outdated(tmp_path, found, CATALOGUE) == []
    page = tmp_path / "compatibility.html"
    page.write_bytes(page.read_bytes() + b" ")
    (tmp_path / "junit.xml").unlink()
    done = run("report", "--reports", tmp_path, "--check")
    assert done.returncode == 1
    assert "compatibility.html, junit.xml" in done.stdout


def test_the_file_of_a_failure_that_is_gone_is_removed(tmp_path: Path) -> None:
    path = write(tmp_path / "results.json", cell(), cell(failure="online-dpo-ref-none"))
    found = results.read(path)
    assert found is not None
    report.render_all(tmp_path, found, CATALOGUE)
    (tmp_path / "failures" / "notes.md").write_text("mine")
    assert {p.name for p in (tmp_path / "failures").iterdir()} == {
        "ppo-zero3-save.md",
        "online-dpo-ref-none.md",
        "notes.md",
    }
    fewer = document(cell())
    assert report.outdated(tmp_path, fewer, CATALOGUE)[-1] == "failures/online-dpo-ref-none.md"
    report.render_all(tmp_path, fewer, CATALOGUE)
    assert {p.name for p in (tmp_path / "failures").iterdir()} == {"ppo-zero3-save.md", "notes.md"}


def test_what_is_written_after_a_run_is_what_a_later_render_makes(tmp_path: Path) -> None:
    private = cell(reason="in /home/alice/x", stack="s")
    report.write_all(tmp_path, document(private), CATALOGUE)
    assert "alice" not in (tmp_path / "compatibility.html").read_text()
    found = results.read(tmp_path / "results.json")
    assert found is not None
    assert report.outdated(tmp_path, found, CATALOGUE) == []


def test_a_missing_stack_is_said_and_the_others_are_rendered(tmp_path: Path) -> None:
    results.write(tmp_path / "results.json", merged())
    (tmp_path / "results" / "s.json").unlink()
    done = run("report", "--reports", tmp_path)
    assert (done.returncode, done.stdout[:16]) == (2, "rendered 1 cells")
    assert "s.json: missing; restore it with git" in done.stderr
    assert "nox -s matrix -- --stack s" in done.stderr
    assert "could not be read: s." in (tmp_path / "compatibility.md").read_text()
    whole = write(tmp_path / "whole.json", cell())
    done = run("report", "--diff", whole, tmp_path / "results.json")
    assert (done.returncode, done.stdout) == (2, "")  # half of a comparison is none
    assert "s.json: missing" in done.stderr


def test_every_format_has_its_name_on_the_command_line() -> None:
    assert tuple(FORMATS) == NAMED


@pytest.mark.parametrize("name", NAMED)
def test_each_format_renders_from_a_results_file_alone(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "old.json", cell(), DEVIATES)
    done = run("report", "--results", path, "--format", name)
    assert (done.returncode, done.stderr) == (0, "")
    run("report", "--results", path, "--format", name, "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text() == done.stdout


def test_junit_tells_failures_from_errors_and_what_was_not_run() -> None:
    broken = cell(id="b", outcome=Outcome.HARNESS_ERROR, agrees=False, variant="zero3-gathered")
    root = ET.fromstring(junit.render(document(cell(), DEVIATES, SKIPPED, broken)))
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "crash (expected reproduced). rank 1 was killed"
    assert "Traceback ..." in (failure.text or "")
    assert "run again: nox -s matrix" in (failure.text or "")


def test_what_cannot_be_installed_is_no_failure_of_what_was_tested() -> None:
    unresolvable = cell(outcome=Outcome.UNRESOLVABLE, agrees=False)
    root = ET.fromstring(junit.render(document(cell(), unresolvable)))
    assert (root.get("failures"), root.get("errors")) == ("0", "1")
    tests = json.loads(ctrf.render(document(cell(), unresolvable)))["results"]["tests"]
    assert [test["status"] for test in tests] == ["passed", "other"]


def test_what_nothing_is_expected_of_is_neither_good_nor_bad() -> None:
    passes, fails = cell(expected=None, outcome=Outcome.PASS), cell(expected=None)
    shown = document(passes, fails)
    assert of_results(shown, CATALOGUE) == []
    root = ET.fromstring(junit.render(shown))
    counts = [root.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["2", "0", "0", "1"]
    (skipped,) = root.findall(".//skipped")
    assert skipped.get("message", "").startswith("reproduced (expected nothing)")
    tests = json.loads(ctrf.render(shown))["results"]["tests"]
    assert [test["status"] for test in tests] == ["passed", "skipped"]


def test_each_suite_says_where_and_how_it_was_run() -> None:
    shown = merged()
    suites = ET.fromstring(junit.render(shown)).findall("testsuite")
    told = {
        suite.get("name"): [
            p.get("value") for p in suite.iter("property") if p.get("name") == "host"
        ]
        for suite in suites
    }
    assert told == {
        "s": ["Linux, here, 1 GiB, no GPU"],
        "t": ["Linux, elsewhere, 8 GiB, H200"],
    }
    report = json.loads(ctrf.render(shown))["results"]
    assert [test["extra"]["host"] for test in report["tests"]] == [told["s"][0], told["t"][0]]


def test_ctrf_counts_what_it_lists() -> None:
    report = json.loads(ctrf.render(document(cell(), DEVIATES, SKIPPED)))["results"]
    assert [test["status"] for test in report["tests"]] == ["passed", "failed", "skipped"]
    assert (report["summary"]["tests"], report["summary"]["failed"]) == (3, 1)
    assert report["summary"]["stop"] - report["summary"]["start"] == 1000


def test_sarif_has_one_rule_for_all_its_findings() -> None:
    finding = Finding("r", "title", "message", "warning", "https://x.example", "uv.lock", 12)
    other = Finding("r", "title", "other", "warning", "https://x.example", "a b/uv.lock")
    (made,) = json.loads(sarif.render([finding, other]))["runs"]
    assert [rule["id"] for rule in made["tool"]["driver"]["rules"]] == ["r"]
    first, second = made["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "uv.lock"}, "region": {"startLine": 12}}
    assert second["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/uv.lock"},
        "region": {"startLine": 1},
    }
    assert first["partialFingerprints"] != second["partialFingerprints"]


def test_only_deviations_are_findings() -> None:
    (found,) = of_results(document(cell(), DEVIATES, SKIPPED), CATALOGUE)
    assert (found.rule_id, found.level) == ("ppo-zero3-save", "error")
    assert found.location == "advisories/ppo-zero3-save.yaml"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([cell()], "1 stack, all as recorded"),
        ([cell(), cell(stack="t", outcome=Outcome.UNAVAILABLE)], "1 stack, all as recorded"),
        ([cell(), cell(stack="t", expected=None)], "1 stack, all as recorded"),
        ([cell(), DEVIATES], "1 cell not as recorded"),
        ([SKIPPED], "nothing was run"),
    ],
)
def test_the_badge_says_it_in_words(cells: list[CellResult], said: str) -> None:
    shown = document(*cells)
    assert json.loads(badge.render_json(shown))["message"] == said
    assert ET.fromstring(badge.render_svg(shown)).get("aria-label") == f"trl-compat: {said}"


PASSES = cell(outcome=Outcome.PASS, expected=Outcome.PASS)
FAILS = cell(outcome=Outcome.REPRODUCED)
SURPRISES = cell(outcome=Outcome.OTHER_FAILURE, agrees=False)
UNREACHED = cell(outcome=Outcome.UNAVAILABLE)


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (PASSES, PASSES, Change.UNCHANGED),
        (PASSES, FAILS, Change.REGRESSED),
        (FAILS, PASSES, Change.FIXED),
        (FAILS, SURPRISES, Change.REGRESSED),
        (SURPRISES, FAILS, Change.FIXED),
        (FAILS, cell(outcome=Outcome.MASKED), Change.CHANGED),
        (PASSES, UNREACHED, Change.CHANGED),
        (UNREACHED, FAILS, Change.CHANGED),
        (None, FAILS, Change.NEW),
        (FAILS, None, Change.GONE),
    ],
)
def test_every_pair_of_cells_has_its_change(
    old: CellResult | None, new: CellResult | None, change: Change
) -> None:
    found = compare(document(*filter(None, [old])), document(*filter(None, [new])))
    assert [each.change for each in found] == [change]
    assert regressed(found) is (change is Change.REGRESSED)
    assert change is Change.UNCHANGED or f"{change} (" in "\n".join(lines(found))


def test_the_command_line_fails_when_something_got_worse(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old.json", PASSES), write(tmp_path / "new.json", FAILS)
    worse, better = run("report", "--diff", old, new), run("report", "--diff", new, old)
    assert (worse.returncode, better.returncode) == (1, 0)
    assert "1 regressed" in worse.stdout
    assert "again: nox -s matrix" in worse.stdout
    assert "1 fixed" in better.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["--format", "html", "--check"],
        ["--output", "x"],
        ["--format", "pdf"],
        ["--diff", "nothing.json", "nothing.json"],
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str]) -> None:
    done = run("report", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
