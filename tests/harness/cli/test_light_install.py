"""What reads works beside a stack, where nothing is installed that runs cells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT

# None in place of a module makes its import fail; no uv is beside an interpreter that is nowhere.
LIGHT = """
import sys
for name in ("psutil", "pytest", "_pytest", "xdist", "unearth", "uv", "covertable"):
    sys.modules[name] = None
sys.executable = "/nowhere/python"
from trl_compat.cli import main
main()
"""
STACK = """\
torch==2.4.1
trl==0.11.4
transformers==4.45.2
deepspeed==0.15.2
accelerate==0.34.2
peft==0.13.2
"""


def light(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIGHT, *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PATH": "", "HOME": str(cwd), "TRL_COMPAT_CACHE": "/nowhere"},
    )


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text(STACK, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "markdown"])
def test_doctor_works_without_what_runs_cells(lock: Path, form: str) -> None:
    said = light("doctor", "--trainer", "PPO", "--format", form, lock.name, cwd=lock.parent)
    assert (said.returncode, said.stderr) == (1, "")
    assert "ppo-zero3-save" in said.stdout


def test_doctor_looks_another_environment_up_without_it(tmp_path: Path) -> None:
    said = light("doctor", "--python", sys.executable, cwd=tmp_path)
    assert said.returncode == 2
    assert "psutil" not in said.stderr
    assert "trl" in said.stderr


def test_results_are_merged_without_it(tmp_path: Path) -> None:
    said = light("merge", "reports", "--into", str(tmp_path / "merged"))
    assert (said.returncode, said.stderr) == (0, "")
    assert (tmp_path / "merged" / "results.json").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["explain", "ppo-zero3-save"], "ppo-zero3-save"),
        (["fix", "ppo-zero3-save", "--trl", "0.11.4"], "ppo_zero3_save"),
        (["constraints", "--avoid", "ppo-zero3-save"], "trl"),
        (["schema"], "Results"),
        (["report", "--check"], ""),
        (["advisories", "lint"], ""),
    ],
)
def test_the_commands_that_read_work_without_it(words: list[str], told: str) -> None:
    said = light(*words)
    assert "not installed" not in said.stderr
    assert "Traceback" not in said.stderr
    assert said.returncode in (0, 1)
    assert told in said.stdout


def test_a_plan_is_made_without_asking_the_index_and_says_so(lock: Path) -> None:
    words = ("plan", "--from", lock.name, "--to", "trl==0.12.*", "--trainer", "SFT")
    said = light(*words, cwd=lock.parent)
    assert said.returncode in (0, 1)
    assert "so the package index is not asked" in said.stderr
    offline = light(*words, "--offline", cwd=lock.parent)
    assert (said.stdout, offline.stderr) == (offline.stdout, "")


@pytest.mark.parametrize(
    "words",
    [["matrix"], ["gate", "--from", "a", "--to", "b"], ["bench"]],
    ids=lambda words: words[0],
)
def test_what_runs_cells_says_in_a_sentence_what_is_missing(words: list[str]) -> None:
    said = light(*words)
    assert said.returncode == 2
    assert said.stderr == (
        f"trl-compat: {words[0]} runs cells and needs packages that are not installed (psutil, "
        "pytest, pytest-xdist, unearth, uv); install trl-compat with its extra: python -m pip "
        "install '.[matrix]' in a clone\n"
    )
    assert light(words[0], "--help").returncode == 0


def test_check_needs_nothing_that_builds_stacks() -> None:
    said = light("check")
    assert said.returncode == 2
    assert said.stderr == (
        "trl-compat: check runs cells and needs packages that are not installed (psutil, pytest, "
        "pytest-xdist); install trl-compat with its extra: python -m pip install '.[check]' in a "
        "clone\n"
    )
    assert light("check", "--help").returncode == 0
