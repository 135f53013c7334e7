"""Every process that the harness starts is started here, and every one that it kills.

The elastic agent starts ranks in sessions of their own, so killing a process group is not enough:
trees are walked, and the parents of cells adopt orphans (see ``trl_compat.runtime.preload``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

# Makes every rank write the Python stack of all its threads into its log (see runtime.rank).
STACK_DUMP = signal.SIGUSR1


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command of the harness (uv, git, pip) to its end and captures what it says."""
    return subprocess.run(
        list(command),
        env=dict(env) if env is not None else None,
        cwd=cwd,
        input=text,
        stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def spawn(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, stderr: Path, pipes: bool
) -> subprocess.Popen[str]:
    """Starts a process of a cell, in a session of its own, that dies with this one (Linux)."""
    with stderr.open("ab") as log:
        return subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else log,
            stderr=log,
            text=True,
            bufsize=1,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants (Linux), so that none is lost."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def descendants(pid: int) -> list[psutil.Process]:
    """All living processes below a process, itself left out."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [p for p in children if _living(p)]


def end_tree(pid: int, *, itself: bool = True) -> int:
    """Kills a process and everything below it; gives the number of processes killed.

    Returns when all are gone: a process that forks while its tree is walked is found by the next
    walk.
    """
    killed: set[int] = set()
    while True:
        tree = descendants(pid)
        if itself:
            with contextlib.suppress(psutil.NoSuchProcess):
                top = psutil.Process(pid)
                tree += [top] if _living(top) else []
        if not tree:
            return len(killed)
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.add(process.pid)
        psutil.wait_procs(tree, timeout=5)


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Sends a signal to every process below a process."""
    for process in descendants(pid):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(process.pid, number)


def _living(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
