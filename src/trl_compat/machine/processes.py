"""Every process of a stack is started here, and every process that is killed is killed here.

The elastic agent starts ranks in their own sessions, so killing a process group is not enough:
process trees are walked, the parents of cells adopt orphans (see ``trl_compat.runtime.preload``),
and every process of a run carries the run's mark in its environment, which finds the remaining
ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from trl_compat.machine import isolation, untrusted

# Makes every rank write the Python stack of all its threads into its log (see runtime.rank).
STACK_DUMP = signal.SIGUSR1
# The variable that marks every process of a run.
MARK = "TRL_COMPAT_RUN"
# The process ids in a room of the keeper and of the stack's first process.
KEEPER, FIRST = 1, 2
# How often what is left of a cell is killed before its stack is: a process may fork meanwhile.
ROUNDS = 20
OUTPUT_LIMIT = 200_000


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stderr: Path,
    pipes: bool,
    reach: isolation.Reach,
    how: isolation.Containment | None = None,
) -> Contained:
    """Starts a stack's process kept to itself, in a session of its own, ending with this one.

    Args:
        pipes: whether its input and output are pipes; else its output goes where errors go.
        reach: the files that it may reach.
        how: as far as this machine can by default.
    """
    reader, writer = os.pipe()
    kept = isolation.keep(command, cwd=cwd, reach=reach, how=how, report=writer)
    try:
        with os.fdopen(untrusted.appended(stderr), "ab") as log:
            process = subprocess.Popen(
                kept,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else log,
                stderr=log,
                text=True,
                bufsize=1,
                start_new_session=True,
                pass_fds=(writer,),
            )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return Contained(process, reader, room=isolation.containment().room)


def run_contained(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    reach: isolation.Reach,
    limit: float,
    how: isolation.Containment | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs somebody else's code kept to itself, to its end or to its limit in seconds.

    What it prints is in ``stdout``, errors included.  A run that is stopped ends with -9.
    """
    with tempfile.TemporaryDirectory(prefix="trl-compat-log-") as folder:
        log = Path(folder) / "output"  # where that code cannot put something else in its place
        started = spawn(command, env=env, cwd=cwd, stderr=log, pipes=False, reach=reach, how=how)
        try:
            status = started.process.wait(limit)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            started.end()
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - OUTPUT_LIMIT))
            said = file.read(OUTPUT_LIMIT).decode("utf-8", "replace")
    return subprocess.CompletedProcess(list(command), status, said, "")


class Contained:
    """A process of a stack with all that it starts.

    In a room of its own it has other process ids than out here; those inside are what the processes
    know and say of themselves.

    Attributes:
        process: the outermost: the keeper, or the command itself where there is no room.
        room: whether there is a room, which nothing can leave.
    """

    def __init__(self, process: subprocess.Popen[str], report: int, *, room: bool) -> None:
        self.process, self.room = process, room
        self._report = report

    def pid(self, inside: int) -> int | None:
        """The process id out here of a process that calls itself ``inside``; None if it is gone.

        Only processes of this stack are found, whatever they say.
        """
        return self._pids().get(inside) if self.room else inside

    def _pids(self) -> dict[int, int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.process.pid).children(recursive=True)
            return {inside: p.pid for p in below if (inside := _pid_inside(p.pid)) is not None}
        return {}

    def end_others(self) -> int:
        """Kills all but the first process; gives the number of processes killed.

        Where they fork faster than they are killed, the first ends with them.
        """
        pids = self._pids() if self.room else {}
        spared = {self.process.pid, *(pids[n] for n in (KEEPER, FIRST) if n in pids)}
        killed: set[int] = set()
        for _ in range(ROUNDS):
            others = [p for p in descendants(self.process.pid) if p.pid not in spared]
            if not others:
                return len(killed)
            killed |= _kill(others)
        self.end()
        return len(killed)

    def end(self) -> int:
        """Kills all of it; how many processes were left if it had ended by itself."""
        end_tree(self.process.pid)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return self._left()

    def _left(self) -> int:
        if self._report < 0:
            return 0
        with os.fdopen(self._report, "rb") as file:
            self._report = -1
            said = file.read(100)
        return int(json.loads(said)["left"]) if said else 0


def _pid_inside(pid: int) -> int | None:
    """What a process in a room calls itself; None if it is gone, or in no room."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        for line in text.splitlines():
            if line.startswith("NSpid:"):
                pids = line.split()[1:]
                return int(pids[1]) if len(pids) > 1 else None
    return None


def start_watchdog(run_id: str, scratch: Path) -> subprocess.Popen[bytes]:
    """Starts the guardian of a run; closing its input makes it clean up and leave."""
    command = [sys.executable, "-m", "trl_compat.machine.watchdog", run_id, str(scratch)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


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
        killed |= _kill(tree)


def end_marked(run_id: str, *, spare: Collection[int] = ()) -> int:
    """Kills every process that carries a run's mark, wherever it is; gives their number."""
    killed: set[int] = set()
    while found := [p for p in marked(run_id) if p.pid not in spare]:
        killed |= _kill(found)
    return len(killed)


def _kill(processes: Sequence[psutil.Process]) -> set[int]:
    """Kills processes and waits until they are gone; gives their ids."""
    killed = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
            killed.add(process.pid)
    _wait_until_gone(processes)
    return killed


def marked(run_id: str) -> list[psutil.Process]:
    """All living processes that carry a run's mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == run_id and _living(process):
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
