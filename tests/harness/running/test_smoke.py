"""The smoke profile, end to end: real stacks are built and verdicts come out both ways."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from tests.harness.written import cells_in

pytestmark = pytest.mark.matrix
CLI = Path(sys.executable).with_name("trl-compat")


def smoke(reports: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(CLI), "matrix", "--profile", "smoke", "--reports", str(reports), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def first(reports: Path) -> subprocess.CompletedProcess[str]:
    return smoke(reports)


@pytest.fixture(scope="module")
def cells(first: subprocess.CompletedProcess[str], reports: Path) -> dict[str, dict[str, Any]]:
    assert first.returncode == 0, first.stdout + first.stderr
    return cells_in(reports)


def test_a_failure_is_found_at_its_place(cells: dict[str, dict[str, Any]]) -> None:
    cell = cells["trl-1.12.0__ppo-zero3-save__zero3__tiny-qwen2__x2"]
    assert cell["outcome"] == "reproduced"
    assert cell["signature"]["where"] == "transformers/trainer.py:save_model"


def test_its_fix_is_proven_by_the_checkpoint(cells: dict[str, dict[str, Any]]) -> None:
    cell = cells["trl-1.12.0__ppo-zero3-save__zero3__tiny-qwen2__x2__save-through-engine"]
    assert cell["outcome"] == "pass"
    assert {"saved-tensors", "reloaded"} <= set(cell["checks"])


def test_so_is_what_does_without_this_package(cells: dict[str, dict[str, Any]]) -> None:
    name = "trl-1.12.0__ppo-zero3-save__zero3__tiny-qwen2__x2__save-through-engine-standalone"
    assert cells[name]["outcome"] == "pass"
    assert {"saved-tensors", "reloaded"} <= set(cells[name]["checks"])


def test_a_wrong_fix_is_shown_wrong(cells: dict[str, dict[str, Any]]) -> None:
    cell = cells["trl-1.12.0__ppo-zero3-save__zero3__tiny-qwen2__x2__ungathered-save-pretrained"]
    assert cell["outcome"] == "reproduced"
    assert "tensors empty" in cell["signature"]["message"]


def test_a_release_that_works_passes(cells: dict[str, dict[str, Any]]) -> None:
    name = "zero3-gloo-unwaited-allgather__as-released__tiny-qwen2__x2"
    assert cells[f"trl-1.12.0__{name}"]["outcome"] == "reproduced"
    assert cells[f"trl-1.16.0__{name}"]["outcome"] == "pass"


def test_a_release_without_the_trainer_is_not_applicable(cells: dict[str, dict[str, Any]]) -> None:
    cell = cells["trl-1.16.0__ppo-zero3-save__zero3__tiny-qwen2__x2"]
    assert cell["outcome"] == "not-applicable"
    assert "until 1.12.0" in cell["reason"]


def test_every_cell_has_its_log_and_its_command(
    cells: dict[str, dict[str, Any]], reports: Path
) -> None:
    for cell in cells.values():
        # Of what passed, a sample is kept.
        assert cell["log"] is not None or cell["outcome"] != "reproduced"
        assert cell["log"] is None or (reports / cell["log"]).is_file()
        words = shlex.split(cell["command"])
        assert words[1] == "matrix", "it is started again as it was started"
        assert words[words.index("--stack") + 1] == cell["stack"]


def test_a_second_run_runs_nothing(cells: dict[str, dict[str, Any]], reports: Path) -> None:
    again = smoke(reports)
    assert again.returncode == 0
    assert f"({len(cells)} reused)" in again.stdout
