"""Calls of uv: the one place that knows where uv is and with which settings it runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from trl_compat.errors import BadInput
from trl_compat.machine import commands
from trl_compat.stacks.environments import uv_errors
from trl_compat.stacks.environments.settings import uv_environment

# Nothing is built by uv itself: a build runs a package's code.  See `source_build`.
ONLY_WHEELS = ("--no-build",)


def program() -> str:
    """Where uv is: beside this interpreter, or on the path.

    Raises:
        BadInput: it is nowhere.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if not found:
        raise BadInput("uv is not installed; install it with: python -m pip install uv")
    return found


def uv(arguments: Sequence[str], *, text: str | None = None) -> str:
    """Runs uv and gives what it printed.

    Raises:
        Unavailable: an index or a repository cannot be reached.
        Unresolvable: there is no such stack; the text is uv's own reason, shortened to a line.
        WrongFile: an index has another file than the one that is wanted.
        BadInput: the disk is full, a folder cannot be written, or the user's settings are wrong.
        HarnessError: uv does not understand what is asked of it, or crashed.
    """
    return uv_said(arguments, text=text)[0]


def uv_said(arguments: Sequence[str], *, text: str | None = None) -> tuple[str, str]:
    """Like :func:`uv`, and what uv said beside it (its warnings)."""
    env = {**os.environ, **uv_environment(os.environ)}
    env |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    env.pop("VIRTUAL_ENV", None)
    done = commands.run([program(), *arguments], env=env, text=text)
    if done.returncode == 0:
        return done.stdout, done.stderr
    raise uv_errors.failure(arguments, done.returncode, done.stderr)


def find_links(folders: Sequence[Path]) -> list[str]:
    """Options that add folders of wheels; naming one would make uv forget those configured."""
    if not folders:
        return []
    configured = {**os.environ, **uv_environment(os.environ)}.get("UV_FIND_LINKS", "")
    places = [place for place in configured.replace(",", " ").split() if place]
    wanted = [*places, *map(str, folders)]
    return [option for place in wanted for option in ("--find-links", place)]
