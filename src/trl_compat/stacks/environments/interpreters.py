"""Finding the Python interpreter that a stack needs; none is ever downloaded."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trl_compat.machine import commands
from trl_compat.stacks.environments import Unavailable


@dataclass(frozen=True)
class Interpreter:
    """An interpreter: where it is and its full version, e.g. ``3.11.7``."""

    path: str
    version: str

    @property
    def tag(self) -> str:
        """For folder names, e.g. ``py3.11``."""
        return "py" + ".".join(self.version.split(".")[:2])


@functools.cache
def find(wanted: str) -> Interpreter:
    """The interpreter of a version such as ``3.11``.

    Raises:
        Unavailable: this machine has none; says where it was looked for.
    """
    for path in _candidates(wanted):
        version = _version(path)
        if version and (version == wanted or version.startswith(f"{wanted}.")):
            return Interpreter(path, version)
    raise Unavailable(
        f"no Python {wanted} on this machine (checked: the harness's own, PATH and "
        "pyenv); install it, then run again"
    )


def own() -> Interpreter:
    """The interpreter that the harness runs on, outside of its virtual environment."""
    path = getattr(sys, "_base_executable", sys.executable)
    return Interpreter(path, platform.python_version())


def _candidates(wanted: str) -> Iterator[str]:
    yield own().path
    minor = ".".join(wanted.split(".")[:2])
    on_path = shutil.which(f"python{minor}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in sorted(pyenv.glob(f"versions/{minor}*"), reverse=True):
        yield str(folder / "bin" / "python")


def _version(path: str) -> str:
    if not Path(path).is_file():
        return ""
    script = "import platform; print(platform.python_version())"
    return commands.run([path, "-I", "-c", script]).stdout.strip()
