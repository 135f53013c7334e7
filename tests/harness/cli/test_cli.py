"""Bad input: one clear sentence and the documented exit code, never a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness.commands import run
from tests.harness.conftest import ROOT
from trl_compat.cli import cli


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["matrix", "--stack", "trl-0.12"], "unknown stack 'trl-0.12'; did you mean"),
        (["matrix", "--failure", "ppo-save"], "did you mean 'ppo-zero3-save'"),
        (["matrix", "--model", "tiny-qwen3"], "did you mean 'tiny-qwen2'"),
        (["matrix", "--profile", "smok"], "did you mean 'smoke'"),
        (["matrix", "--world-size", "1"], "--world-size 1: a cell has 2 to 8 ranks"),
        (["matrix", "--world-size", "9"], "--world-size 9: a cell has 2 to 8 ranks"),
        (["matrix", "--matrix", "nothing.yaml"], "no such file"),
        (["matrix", "--colour"], "No such option"),
        (["--project", "/", "matrix"], "is not a checkout of trl-compat"),
    ],
)
def test_wrong_usage_exits_with_2(words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("advisories", "invariants", "tests/reproductions", "tiny_models"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "matrix.yaml", tmp_path)
    return tmp_path


def test_a_changed_tiny_model_is_refused(copy: Path) -> None:
    config = copy / "tiny_models" / "tiny-qwen2" / "config.json"
    config.write_text(config.read_text() + " ")
    done = run("--project", str(copy), "matrix")
    assert done.returncode == 2
    assert "config.json: does not match SHA256SUMS" in done.stderr


def test_a_corrupt_results_file_is_not_overwritten(copy: Path) -> None:
    path = copy / "reports" / "results.json"
    path.parent.mkdir()
    path.write_text("{")
    done = run("--project", str(copy), "matrix", "--profile", "smoke")
    assert done.returncode == 2
    assert "not a results file" in done.stderr
    assert path.read_text() == "{"


def test_a_failure_without_advisory_is_unknown(copy: Path) -> None:
    (copy / "advisories" / "ppo-zero3-save.yaml").unlink()
    done = run("--project", str(copy), "matrix", "--failure", "ppo-zero3-save")
    assert done.returncode == 2
    assert "unknown failure or invariant 'ppo-zero3-save'" in done.stderr


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert "Example: trl-compat" in done.stdout


@pytest.mark.parametrize("command", ["check", "compile", "export", "finish", "lint", "new"])
def test_every_command_for_advisories_has_help_with_an_example(command: str) -> None:
    done = run("advisories", command, "--help")
    assert done.returncode == 0
    assert f"Example: trl-compat advisories {command}" in done.stdout
