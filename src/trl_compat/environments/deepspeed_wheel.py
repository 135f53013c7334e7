"""DeepSpeed's wheel, built once per release, build of torch and interpreter, and kept.

Its source packages import torch in ``setup.py``, so they are built without isolation in a small
environment that has that torch and the build tools; no operator is compiled (``DS_BUILD_OPS=0``).
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from trl_compat.environments import cache
from trl_compat.environments.interpreters import Interpreter
from trl_compat.environments.uv import reason, uv
from trl_compat.execution import processes

# What setup.py imports besides torch, in the releases of the matrix.
BUILD_TOOLS = (
    "setuptools",
    "wheel",
    "ninja",
    "py-cpuinfo",
    "packaging",
    "psutil",
    "pydantic",
    "msgpack",
    "tqdm",
    "numpy",
    "pip",
)


def path(version: str, torch: str, interpreter: Interpreter) -> Path:
    """Where the wheel is kept; a folder per release, so that a search there finds this one only."""
    folder = cache.folder("wheels") / f"torch-{torch}-{interpreter.tag}" / version
    return folder / f"deepspeed-{version}-py3-none-any.whl"


def ensure(version: str, torch: str, as_of: datetime.date, interpreter: Interpreter) -> Path:
    """The wheel, from the cache or built now.

    Raises:
        Unresolvable: there is no such release, or its build fails.
        Unavailable: the package index cannot be reached.
    """
    wheel = path(version, torch, interpreter)
    return wheel if wheel.is_file() else build(version, torch, as_of, interpreter)


def build(version: str, torch: str, as_of: datetime.date, interpreter: Interpreter) -> Path:
    """Builds the wheel from the source package, whose hash is checked."""
    wheel = path(version, torch, interpreter)
    with cache.guard(wheel.parent):
        if wheel.is_file():
            return wheel
        python = _build_environment(torch, as_of, interpreter)
        wheel.parent.mkdir(parents=True, exist_ok=True)
        requirement = wheel.parent / "source.txt"
        requirement.write_text(source_requirement(version), encoding="utf-8")
        command = [str(python), "-m", "pip", "wheel", "--no-cache-dir", "--no-deps", "--quiet"]
        command += ["--no-build-isolation", "--require-hashes", "-w", str(wheel.parent)]
        env = {**os.environ, "DS_BUILD_OPS": "0", "PATH": f"{python.parent}:{os.environ['PATH']}"}
        done = processes.run([*command, "-r", str(requirement)], env=env)
        if done.returncode != 0:
            raise reason(f"building deepspeed {version} with torch {torch}\n{done.stderr}")
        return wheel


def source_requirement(version: str) -> str:
    """``deepspeed==X --hash=...`` of the source package, from the index and without a build."""
    quietly = ["--quiet", "--no-header", "--no-annotate"]
    return uv(
        ["pip", "compile", "-", "--no-deps", "--generate-hashes", *quietly],
        text=f"deepspeed=={version}\n",
    )


def _build_environment(torch: str, as_of: datetime.date, interpreter: Interpreter) -> Path:
    folder = cache.folder("build") / f"torch-{torch}-{interpreter.tag}"
    python = folder / "bin" / "python"
    with cache.guard(folder):
        done = folder / "complete"
        if not done.is_file():
            uv(["venv", "--quiet", "--clear", "--python", interpreter.path, str(folder)])
            command = ["pip", "install", "--quiet", "--python", str(python)]
            command += ["--exclude-newer", as_of.isoformat(), f"torch=={torch}", *BUILD_TOOLS]
            uv(command)
            done.touch()
    return python
