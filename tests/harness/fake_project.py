"""A project of fakes, and the command run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.harness.conftest import HARNESS, ROOT
from tests.harness.written import cells_in

CLI = Path(sys.executable).with_name("trl-compat")


FAKES = HARNESS / "fakes"


STACK: dict[str, Any] = yaml.safe_load((ROOT / "matrix.yaml").read_text())["stacks"]["trl-1.16.0"]


def make_project(root: Path, fakes: list[str], stack: dict[str, Any] = STACK) -> Path:
    """A project whose failures are fakes that its advisories expect to pass."""
    (root / "advisories").mkdir(parents=True)
    (root / "tests" / "reproductions").mkdir(parents=True)
    shutil.copytree(ROOT / "tiny_models", root / "tiny_models")
    matrix = {
        "models": ["tiny-qwen2"],
        "stacks": {"fake-stack": stack},
        "profiles": {"default": {"about": "all", "select": [{"models": ["tiny-qwen2"]}]}},
    }
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    for fake in fakes:
        name = fake.replace("_", "-")
        advisory = {
            "id": name,
            **dict.fromkeys(("title", "summary", "cause"), "a fake"),
            "severity": "slow",
            "references": [],
            "symptoms": {},
            "affected": [],
            "reproduction": {"module": fake, "variants": {"v": {}}},
        }
        (root / "advisories" / f"{name}.yaml").write_text(yaml.safe_dump(advisory))
        shutil.copy(FAKES / f"{fake}.py", root / "tests" / "reproductions")
    return root


def command(root: Path, *more: str) -> list[str]:
    return [str(CLI), "--project", str(root), "matrix", *more]


def run(root: Path, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **env}
    return subprocess.run(
        command(root, *more), capture_output=True, text=True, check=False, env=given
    )


def cells(root: Path) -> dict[str, dict[str, Any]]:
    return {cell["failure"]: cell for cell in cells_in(root / "reports").values()}
