"""Every process that the harness starts is started here, and every one that it kills.

The elastic agent starts ranks in sessions of their own, so killing a process group is not enough:
trees are walked, the parents of cells adopt orphans (see ``trl_compat.runtime.preload``), and every
process of a run carries its mark in its environment, by which what got away is found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from trl_compat.execution import isolation

# Makes every rank write the Python stack of all its threads into its log (see runtime.rank).
STACK_DUMP = signal.SIGUSR1
# The variable that marks every process of a run.
MARK = "TRL_COMPAT_RUN"


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
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stderr: Path,
    pipes: bool,
    writable: Sequence[Path],
) -> subprocess.Popen[str]:
    """Starts a process of a cell: isolated, in a session of its own, dying with this one (Linux).

    Args:
        writable: the only folders below which it may write, where the machine can see to that.
    """

    parts = isolation.available()

    def before_it_runs() -> None:
        isolation.enter(writable, parts)
        die_with_parent()  # last: the kernel forgets it when credentials change

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
            preexec_fn=before_it_runs,
        )


def guard(mark: str, scratch: Path) -> subprocess.Popen[bytes]:
    """Starts the guardian of a run; closing its input makes it clean up and leave."""
    command = [sys.executable, "-m", "trl_compat.execution.guardian", mark, str(scratch)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants (Linux), so that none is lost."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies, in whatever way (Linux)."""
    if sys.platform == "linux":
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
        _wait_until_gone(tree)


def end_marked(mark: str, *, spare: Collection[int] = ()) -> int:
    """Kills every process that carries a run's mark, wherever it is; gives their number."""
    killed: set[int] = set()
    while found := [p for p in marked(mark) if p.pid not in spare]:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
        _wait_until_gone(found)
    return len(killed)


def marked(mark: str) -> list[psutil.Process]:
    """All living processes that carry a run's mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and _living(process):
                found.append(process)
    return found


def proportional_memory(tree: Iterable[psutil.Process]) -> int:
    """Bytes that processes hold, what they share counted once (Linux; elsewhere an upper bound)."""
    total = 0
    for process in tree:
        with contextlib.suppress(psutil.Error, OSError):
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
    return total


def exit_status(pid: int) -> int | None:
    """Exit status of a process that has ended and was not yet waited for, negative for a signal.

    None where the kernel does not tell (only Linux does).
    """
    with contextlib.suppress(OSError, ValueError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        state, *fields = text.rpartition(")")[2].split()
        if state == "Z":
            return os.waitstatus_to_exitcode(int(fields[-1]))
    return None


def _wait_until_gone(killed: Iterable[psutil.Process], limit: float = 5.0) -> None:
    """Waits for killed processes; a zombie is gone, though its parent may never reap it."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and any(map(_living, killed)):
        time.sleep(0.01)


def _living(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
