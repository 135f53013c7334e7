"""Calls of uv: one place that knows where it is, with which settings, and what its errors mean."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from trl_compat.environments import EnvironmentFailed, Unavailable, Unresolvable
from trl_compat.environments.settings import uv_environment
from trl_compat.errors import BadInput
from trl_compat.execution import processes

OUT_OF_REACH = re.compile(
    r"error sending request|dns error|failed to fetch|could not connect|connection refused"
    r"|network (?:was disabled|unreachable|is unreachable)|timed out|Git operation failed"
    r"|failed to (?:clone|fetch) |Could not resolve host|operation timed out|tunnel error",
    re.IGNORECASE,
)
NOISE = re.compile(r"^\s*(?:[×╰├│─▶:]|-+>|cause:|hint:|error:|warning:)*[\s─▶>]*")


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
        Unresolvable: uv refuses; the text is its own reason, shortened to a line.
        BadInput: the disk is full.
    """
    return uv_said(arguments, text=text)[0]


def uv_said(arguments: Sequence[str], *, text: str | None = None) -> tuple[str, str]:
    """Like :func:`uv`, and what uv said beside it (its warnings)."""
    env = {**os.environ, **uv_environment(os.environ), "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    env.pop("VIRTUAL_ENV", None)
    done = processes.run([program(), *arguments], env=env, text=text)
    if done.returncode == 0:
        return done.stdout, done.stderr
    raise reason(done.stderr)


def find_links(folder: Path) -> list[str]:
    """Options that add a folder of wheels; naming one would make uv forget those configured."""
    configured = {**os.environ, **uv_environment(os.environ)}.get("UV_FIND_LINKS", "")
    places = [place for place in configured.replace(",", " ").split() if place]
    return [option for place in (*places, str(folder)) for option in ("--find-links", place)]


def reason(stderr: str) -> EnvironmentFailed | BadInput:
    """The error that a failed call of uv or pip means, with its reason in one line."""
    if "No space left on device" in stderr:
        return BadInput("the disk is full; free some space and run the same command again")
    line = one_line(stderr)
    return Unavailable(line) if OUT_OF_REACH.search(stderr) else Unresolvable(line)


def one_line(stderr: str, limit: int = 300) -> str:
    """The reason in a resolver's or builder's output, without its drawing, hints and URLs."""
    raised = re.findall(r"^\s*((?:\w+\.)*\w*(?:Error|Exception): .+)$", stderr, re.M)
    if raised:  # a build's own exception says more than the frames around it
        first, _, _ = stderr.partition("\n")
        return f"{first[:120]}: {raised[-1].strip()}"[:limit]
    kept: list[str] = []
    for raw in stderr.splitlines():
        if raw.lstrip().startswith(("hint:", "warning:", "Using Python", "Resolved", "note:")):
            continue
        line = NOISE.sub("", raw).strip()
        if line and not line.startswith(("help:", "[tool.uv")):
            kept.append(line)
    text = re.sub(r"\b(?:https?|file)://[^\s)`'\"]+", "<url>", " ".join(kept))
    text = re.sub(r"(?<![\w/])/(?:[\w.+@-]+/)+[\w.+@-]*", "<path>", text)
    because = text.find("Because ")
    text = text[because:] if because >= 0 else text
    return text if len(text) <= limit else text[: limit - 1] + "…"
