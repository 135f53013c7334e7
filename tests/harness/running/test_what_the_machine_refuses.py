"""What a user can mend on the machine ends the whole command with one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.fake_project import STACK, make_project, run
from trl_compat.gate.sides import THIS_PYTHON


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", ["passes"], {**STACK, "python": THIS_PYTHON})


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_cache_of_uv_that_cannot_be_written_is_said(
    root: Path, tmp_path: Path, jobs: str
) -> None:
    (tmp_path / "file").touch()
    surroundings = {"UV_CACHE_DIR": str(tmp_path / "file"), "TRL_COMPAT_CACHE": str(tmp_path / "c")}
    done = run(root, "--jobs", jobs, **surroundings)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("trl-compat: uv cannot access its files: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (root / "reports" / "results.json").exists()


def test_a_cache_of_ours_that_cannot_be_written_is_said(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(root, TRL_COMPAT_CACHE=str(tmp_path / "file" / "cache"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the cache cannot be written" in done.stderr
    assert "TRL_COMPAT_CACHE" in done.stderr


def test_a_setting_that_uv_refuses_is_said(root: Path, tmp_path: Path) -> None:
    surroundings = {"UV_INDEX_STRATEGY": "banana", "TRL_COMPAT_CACHE": str(tmp_path / "c")}
    done = run(root, "--jobs", "1", **surroundings)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "uv rejects a setting: invalid value 'banana'" in done.stderr


def test_a_uv_that_is_not_understood_is_the_harness_failing(root: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "uv").write_text(
        "#!/bin/sh\necho \"error: unexpected argument '--x'\" >&2; exit 2\n"
    )
    (programs / "uv").chmod(0o755)
    done = run_with(programs, root, tmp_path)
    assert done.returncode == 70, done.stdout + done.stderr
    assert "uv does not know an option of the harness" in done.stdout


def run_with(programs: Path, root: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The command with another uv, which is looked for beside the interpreter first."""
    script = "import sys; from pathlib import Path; from trl_compat.stacks.environments import uv\n"
    script += f"uv.program = lambda: {str(programs / 'uv')!r}\n"
    script += "from trl_compat.cli import main; main()\n"
    command = [sys.executable, "-c", script, "--project", str(root), "matrix", "--jobs", "1"]
    env = {**os.environ, "TRL_COMPAT_CACHE": str(tmp_path / "c")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)
