"""gate and plan on their command lines: bad input is a sentence and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.commands import run

GATE = ["gate", "--from", "trl-0.12.2"]
PINNED = "torch==2.4.1\ntrl==0.12.2\ntransformers==4.46.3\naccelerate==0.34.2\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gate", "--to", "trl-0.13.0"], "Missing option '--from'"),
        ([*GATE], "Missing option '--to'"),
        ([*GATE, "--to", "missing.lock"], "missing.lock: no such file"),
        ([*GATE, "--to", "README.md"], "README.md:3: this line is not a requirement"),
        ([*GATE, "--to", "trl-0.13.0", "--failure", "ppo-save"], "did you mean 'ppo-zero3"),
        ([*GATE, "--to", "trl-0.13.0", "--model", "tiny-qwen"], "did you mean 'tiny-qwen2'"),
        ([*GATE, "--to", "trl-0.13.0", "--trainer", "SFTT"], "did you mean 'SFT'"),
        ([*GATE, "--to", "trl-0.13.0", "--strategy", "zero"], "unknown strategy 'zero'"),
        ([*GATE, "--to", "trl-0.13.0", "--world-size", "9"], "--world-size"),
        ([*GATE, "--to", "trl-0.13.0", "--as-of", "soon"], "--as-of"),
        (["gate", "--from", "current", "--to", "newest"], "no TRL in it"),
        (["plan", "--from", "missing.lock", "--to", "trl==1.12.*"], "missing.lock: no such file"),
        (["plan", "--from", "current", "--to", "trl==1.12.*"], "no TRL in it"),
        (["plan", "--to", "trl==1.12.*"], "Missing option '--from'"),
        (["plan", "--from", "x", "--python", "y", "--to", "trl"], "a file and --python: name one"),
        (["fix", "ppo-zero3-save", "x", "--python", "y"], "a file and --python: name one of"),
        (["fix", "ppo-zero3-save", "missing.lock"], "missing.lock: no such file"),
        (["--project", "/", "gate", "--from", "a", "--to", "b"], "is not a checkout"),
    ],
)
def test_wrong_usage_exits_with_2(words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_offline_is_quick_and_exits_by_its_answer(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(PINNED)
    found = run("plan", "--from", str(lock), "--to", "trl==0.13.*", "--offline")
    assert (found.returncode, found.stderr) == (0, "")
    assert "1. trl 0.12.2 → 0.13.0" in found.stdout
    none = run("plan", "--from", str(lock), "--to", "trl>1.12", "--trainer", "PPO", "--offline")
    assert none.returncode == 1
    assert "There is no upgrade path that is safe at each step." in none.stdout


def test_a_plan_starts_from_the_environment_of_an_interpreter() -> None:
    words = ["--python", sys.executable, "--to", "trl==1.12.*"]
    done = run("plan", *words)
    assert done.returncode == 2
    assert f"{sys.executable}: no TRL in it" in done.stderr


def test_a_fix_is_for_the_versions_of_a_file(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(PINNED)
    found = run("fix", "ppo-zero3-save", str(lock))
    assert (found.returncode, found.stderr) == (0, "")
    assert "# Needed with trl 0.12.2, transformers 4.46.3" in found.stdout
    other = run("fix", "ppo-zero3-save", str(lock), "--trl", "1.16.0")
    assert "# Not needed with trl 1.16.0" in other.stdout


@pytest.mark.parametrize("command", ["gate", "plan"])
def test_help_has_an_example_and_the_exit_codes(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"Example: trl-compat {command}" in done.stdout
    assert "Exit code 0" in done.stdout
