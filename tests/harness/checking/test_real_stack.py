"""Real stacks in environments that the harness did not make: the verdicts of the matrix."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import plain_environment
from tests.harness.conftest import ROOT
from trl_compat.results import read

NEWEST, OLD = "trl-1.16.0", "trl-0.11.4"

LARGE = 16 * 2**20

pytestmark = pytest.mark.matrix


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    def make(stack: str, **more: Any) -> Path:
        plain_environment.make(tmp_path / "venv", stack, **more)
        return tmp_path / "venv"

    return make


def everything(venv: Path) -> str:
    """A digest of every file, link and mode; of large libraries the size and the time will do."""
    total = hashlib.sha256()
    for path in sorted(venv.rglob("*")):
        info = path.lstat()
        total.update(f"{path} {info.st_mode}".encode())
        if path.is_symlink():
            total.update(os.readlink(path).encode())
        elif path.is_file() and info.st_size > LARGE:
            total.update(f"{info.st_size} {info.st_mtime_ns} {info.st_ino}".encode())
        elif path.is_file():
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def check(venv: Path, reports: Path, *more: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("trl-compat")), "check", "--device", "cpu"]
    command += ["--python", str(venv / "bin" / "python"), "--reports", str(reports), *more]
    before = everything(venv)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=reports.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing in the environment changed" in done.stdout
    assert everything(venv) == before
    return document_of(reports)


def document_of(reports: Path) -> dict[str, Any]:
    found = read(reports / "results.json")
    assert found is not None
    return found.model_dump(mode="json")


def verdicts(document: dict[str, Any], stack: str | None = None) -> dict[tuple[str, ...], Any]:
    return {
        (cell["failure"], cell["variant"], cell["model"], str(cell["fix"])): (
            *(cell["outcome"], cell["symptom"], cell["agrees"]),
        )
        for cell in document["cells"]
        if cell["world_size"] == 2 and stack in (None, cell["stack"])
    }


@pytest.mark.parametrize(
    ("stack", "failure", "variant"),
    [
        (NEWEST, "unwrap-double-yield", "restores-after-exception"),
        (OLD, "online-dpo-ref-none", "zero3"),
    ],
)
def test_the_verdicts_are_those_of_the_matrix_and_nothing_changes(
    made: Callable[..., Path], tmp_path: Path, stack: str, failure: str, variant: str
) -> None:
    few = ("--failure", failure, "--variant", variant, "--model", "tiny-qwen2")
    found = verdicts(check(made(stack), tmp_path / "out", *few))
    expected = verdicts(document_of(ROOT / "reports"), stack)
    shared = found.keys() & expected.keys()
    assert len(shared) >= 3
    assert {place: found[place] for place in shared} == {p: expected[p] for p in shared}
    assert {outcome for outcome, *_ in found.values()} == {"pass", "reproduced"}


def test_without_deepspeed_what_needs_it_is_not_applicable(
    made: Callable[..., Path], tmp_path: Path
) -> None:
    few = ("--failure", "online-dpo-ref-none", "--model", "tiny-qwen2")
    document = check(made(NEWEST, without=("deepspeed",)), tmp_path / "out", *few)
    outcomes = {cell["variant"]: (cell["outcome"], cell["reason"]) for cell in document["cells"]}
    gone = ("not-applicable", "DeepSpeed is not installed")
    assert outcomes == {"ddp": ("pass", ""), "zero2": gone, "zero3": gone}
    expected = verdicts(document_of(ROOT / "reports"), NEWEST)
    place = ("online-dpo-ref-none", "ddp", "tiny-qwen2", "None")
    assert verdicts(document)[place] == expected[place]
