"""A virtual environment with packages of a line or two that are named like those under test."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.harness import made_environment
from tests.harness.made_environment import add as add
from tests.harness.made_environment import site as site
from trl_compat.stacks.environments import interpreters
from trl_compat.stacks.environments.uv import uv

VERSIONS = {
    "torch": "2.13.0+cpu",
    "trl": "1.16.0",
    "transformers": "5.23.0",
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "peft": "0.21.2",
}


def make(folder: Path) -> Path:
    """The environment; gives its interpreter."""
    uv(["venv", "--quiet", "--python", interpreters.own().path, str(folder)])
    for name, version in VERSIONS.items():
        add(folder, name, version, {f"{name}/__init__.py": "", f"{name}/more.py": "what = 1\n"})
    return folder / "bin" / "python"


def remove(folder: Path, name: str, *, modules: bool = True, info: bool = True) -> None:
    """Takes a package away, or a part of it."""
    place = made_environment.site(folder)
    if modules:
        shutil.rmtree(place / name)
    if info:
        shutil.rmtree(place / f"{name}-{VERSIONS[name]}.dist-info")
