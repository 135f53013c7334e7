"""Commands of the harness itself (uv, git, an interpreter), run to their end; needs no psutil."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
    limit: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and captures what it says.

    Raises:
        OSError: there is no such program, or it cannot be started.
        subprocess.TimeoutExpired: it did not end within ``limit`` seconds, and was killed.
    """
    return subprocess.run(
        list(command),
        env=dict(env) if env is not None else None,
        cwd=cwd,
        input=text,
        stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit,
    )
