"""The gate, end to end: stacks and a lock are really built and run, and compared both ways."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat.gate.sides import THIS_PYTHON
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import cache, interpreters, locks
from trl_compat.stacks.sources import installed

pytestmark = pytest.mark.matrix
CLI = Path(sys.executable).with_name("trl-compat")
FAILURE = "zero3-gloo-unwaited-allgather"


def gate(reference: str, candidate: str) -> tuple[int, dict[str, Any]]:
    words = ["--from", reference, "--to", candidate, "--failure", FAILURE]
    command = [str(CLI), "gate", *words, "--device", "cpu", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_an_upgrade_that_mends_is_let_through_and_says_what_it_fixes() -> None:
    code, report = gate("trl-1.12.0", "trl-1.16.0")
    (found,) = report["failures"]
    assert (code, found["verdict"]) == (0, "fixed by the upgrade")


def test_a_step_back_is_blocked_with_a_fix_that_was_run_there() -> None:
    code, report = gate("trl-1.16.0", "trl-1.12.0")
    (found,) = report["failures"]
    assert (code, found["verdict"], found["blocks"]) == (1, "regression", True)
    assert found["remedies"][0]["name"] == "wait-for-every-handle"
    assert found["remedies"][0]["proven"] is True


@pytest.mark.skipif(THIS_PYTHON != "3.11", reason="a lock is installed for this Python")
def test_a_lock_is_run_exactly_and_its_results_are_kept(tmp_path: Path) -> None:
    stack = matrix.load(ROOT / "matrix.yaml").stacks["trl-1.12.0"]
    lock = locks.resolve(stack, interpreters.find(stack.python))
    path = tmp_path / "requirements.txt"
    path.write_text(lock.text, encoding="utf-8")
    code, report = gate("trl-1.16.0", str(path))
    assert (code, report["failures"][0]["verdict"]) == (1, "regression")
    built = report["candidate"]
    folder = f"environments/{built['stack']}-{built['lock_sha256'][:12]}/bin/python"
    have = installed(cache.root() / folder)
    assert dict(have.versions) == lock.packages
    _, again = gate("trl-1.16.0", str(path))
    assert again["failures"] == report["failures"]  # with the times at which they were run
