"""A bisection end to end: real stacks on both sides of an edge, and the same command once more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT

pytestmark = pytest.mark.matrix
CLI = Path(sys.executable).with_name("trl-compat")


def bisect(*words: str) -> tuple[int, dict[str, Any]]:
    command = [str(CLI), "bisect", "online-dpo-ref-none", "--package", "trl", *words]
    done = subprocess.run(
        [*command, "--device", "cpu", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_edge_of_online_dpo_is_where_the_advisory_says() -> None:
    code, found = bisect("--good", "0.13.0", "--bad", "0.12.1")
    assert (found["bad"]["version"], found["good"]["version"]) == ("0.12.2", "0.13.0")
    assert found["bad"]["symptom"] == "no-model"
    assert (found["bad"]["runs"], found["good"]["runs"]) == (2, 2)
    assert found["also_moved"] == []
    assert (code, found["advice"]["agrees"]) == (0, True)
    _, again = bisect("--good", "0.13.0", "--bad", "0.12.1")
    assert again["runs"] == 0
    assert again == {**found, "runs": 0}


def test_ends_the_wrong_way_round_are_said_with_what_was_seen() -> None:
    command = [str(CLI), "bisect", "online-dpo-ref-none", "--package", "trl"]
    done = subprocess.run(
        [*command, "--good", "0.12.2", "--bad", "0.13.0", "--device", "cpu"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "the ends are the wrong way round" in done.stderr
