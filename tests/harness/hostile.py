"""Files that a pull request may bring, and how a command refuses them."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.harness.doctor_runs import CLI, OLD


def refused(done: subprocess.CompletedProcess[bytes], said: str) -> None:
    text = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in text
    assert text.startswith("trl-compat: ")
    assert text.count("\n") == 1
    assert len(text) < 600


def doctor(folder: Path, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
    command: list[str | bytes] = [str(CLI), "doctor", *words]
    return subprocess.run(command, capture_output=True, check=False, cwd=folder, timeout=60)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder with things that are no files."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.txt").symlink_to("pipe")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "ok.txt").write_text(OLD)
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)  # the path of a socket is short
        server.bind("socket")
        os.chdir(here)
    return tmp_path
