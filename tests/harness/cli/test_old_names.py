"""What was renamed is understood by its old name for one release, and no help shows that."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.harness.commands import run
from tests.harness.conftest import ROOT
from tests.harness.gate_bench import Bench
from tests.harness.observations import observed, record
from trl_compat import advisories, results
from trl_compat.cells.observation import Observation, Stop
from trl_compat.cells.outcome import Outcome
from trl_compat.cli import cli
from trl_compat.cli.advisories import advisories as advisories_command
from trl_compat.gate.report import GateReport

# Key of an affected block (or of a record): its name before.
KEYS = {
    "user_conditions": "means",
    "also_requires": "provided",
    "precedence": "first",
    "phase": "moment",
}


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("matrix", ["--limit", "20", "--silence", "4"], ["--timeout", "20", "--idle-timeout", "4"]),
        ("gate", ["--reference", "a", "--candidate", "b"], ["--from", "a", "--to", "b"]),
        ("gate", ["--reference=a", "--to", "b"], ["--from", "a", "--to", "b"]),
    ],
)
def test_an_old_option_is_the_new_one(command: str, old: list[str], new: list[str]) -> None:
    made = cli.commands[command]
    assert made.make_context(command, [*old]).params == made.make_context(command, [*new]).params


def test_old_options_set_what_the_new_ones_do() -> None:
    params = (
        cli.commands["matrix"].make_context("matrix", ["--limit", "20", "--silence", "4"]).params
    )
    assert (params["timeout"], params["idle_timeout"]) == (20.0, 4.0)


def test_the_old_options_are_checked_and_the_new_ones_named() -> None:
    done = run("matrix", "--limit", "0")
    assert done.returncode == 2
    assert "Invalid value for '--timeout'" in done.stderr


def test_no_help_shows_an_old_name() -> None:
    said = run("matrix", "--help").stdout + run("gate", "--help").stdout
    assert {"--timeout", "--idle-timeout", "--from", "--to"} <= set(re.findall(r"--[\w-]+", said))
    for old in ("--limit", "--silence", "--reference", "--candidate"):
        assert f"{old} " not in said
    assert not re.search(r"^  releases", run("advisories", "--help").stdout, re.M)


def test_advisories_releases_is_refresh() -> None:
    old, new = run("--project", "/", "advisories", "releases"), run("--project", "/", "refresh")
    assert (old.returncode, old.stderr) == (new.returncode, new.stderr) == (2, new.stderr)
    assert "no releases.json found" in new.stderr
    assert advisories_command.commands["releases"].hidden


def test_a_record_with_its_old_keys_is_the_same_record(tmp_path: Path) -> None:
    seen = set()
    shutil.copytree(ROOT / "invariants", tmp_path / "invariants")
    old_records = tmp_path / "advisories"
    old_records.mkdir()
    for path in (ROOT / "advisories").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        for new, old in KEYS.items():
            text, found = re.subn(rf"(?m)^((?:  - |    )?){new}:", rf"\1{old}:", text)
            seen |= {new} if found else set()
        (old_records / path.name).write_text(text, encoding="utf-8")
    assert seen == set(KEYS)
    reproductions = ROOT / "tests" / "reproductions"
    assert advisories.load(old_records, reproductions) == advisories.load(
        ROOT / "advisories", reproductions
    )


def test_a_gate_report_with_its_old_key_is_read(bench: Bench) -> None:
    bench.judge = lambda cell: Outcome.UNSTABLE if cell.stack == "old" else Outcome.PASS
    report = bench.gate("before", "old")
    data = json.loads(report.model_dump_json())
    assert "verdict" in data["failures"][0]
    assert "rung" not in data["failures"][0]
    old = report.model_dump_json().replace('"verdict":', '"rung":')
    assert GateReport.model_validate_json(old) == report


@pytest.mark.parametrize(
    ("said", "stop"), [("idle", Stop.LAUNCHER_STUCK), ("silence", Stop.IDLE), ("limit", Stop.LIMIT)]
)
def test_an_observation_that_was_kept_before_is_read(said: str, stop: Stop) -> None:
    seen = observed(record(), None, stopped=stop, not_started=(Outcome.UNAVAILABLE, "no network"))
    data = seen.model_dump(mode="json")
    data["unsound"] = data.pop("not_started")
    data["stopped"] = said
    assert Observation.model_validate_json(json.dumps(data)) == seen


def test_an_observation_of_today_is_what_it_says() -> None:
    for stop in Stop:
        seen = observed(record(), None, stopped=stop)
        assert Observation.model_validate_json(seen.model_dump_json()).stopped is stop


def test_the_results_that_are_committed_are_read() -> None:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    assert found.cells
