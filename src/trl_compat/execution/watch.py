"""Watching a running cell: when to stop it, and what its ranks were doing when it was stopped.

A cell is stopped when its time is up, when it is silent (no process of it runs or writes anything),
when it holds too much memory, or when all that is left of it has nothing to say any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from trl_compat.execution import processes
from trl_compat.outcomes import Stop

GIGABYTE = 10**9
# What a rank may write into its log before the log is cut down to its end, which is what tells.
LOG_LIMIT, LOG_TAIL = 20 * 10**6, 10**5
IDLE_LIMIT = 3.0
ANSWER_LIMIT = 3.0
# Less than this share of one core is what a process uses that only waits.
ASLEEP = 0.02
GONE = 0  # no process has this id
BUSY = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
THREAD = re.compile(r"^(?=(?:Current thread|Thread) 0x)", re.M)
OURS, RANK_BEGINS = "runtime/collectives.py", "runtime/rank.py"


@dataclasses.dataclass(frozen=True)
class Limits:
    """When to stop a cell.

    Attributes:
        seconds: of time in all.
        silence: seconds in which no rank wrote a byte or used the processor.
        memory: bytes that all its processes may hold together.
    """

    seconds: float = 300.0
    silence: float = 45.0
    memory: int = 16 * GIGABYTE


class Watch:
    """Looks at a cell now and then.

    Args:
        launcher: process below which the cell's ranks run.
        folder: the cell's scratch folder.
        pid_of: the process id of a process of this cell that calls itself by another inside.
    """

    def __init__(
        self,
        launcher: int,
        folder: Path,
        world_size: int,
        limits: Limits,
        pid_of: Callable[[int], int | None] = lambda pid: pid,
    ) -> None:
        self._pid_of = pid_of
        self._known_pids: dict[int, int] = {}
        self._launcher, self._folder = launcher, folder
        self._world_size, self._limits = world_size, limits
        self._begun = self._sound = time.monotonic()
        self._idle_since: float | None = None
        self._measured = 0.0
        self._last_sound: tuple[float, int] = (0.0, 0)
        self.peak_memory = 0
        self.log_bytes_dropped = 0
        self.left_over = 0
        self.rank_exits: dict[int, int] = {}

    def look(self) -> Stop | None:
        """Why the cell must be stopped now, or None."""
        now = time.monotonic()
        tree = processes.descendants(self._launcher)
        self._empty_long_logs()
        if now - self._measured > 1.0:
            self._measured = now
            self.peak_memory = max(self.peak_memory, processes.proportional_memory(tree))
            if self.peak_memory > self._limits.memory:
                return Stop.MEMORY
        if self._nothing_to_come(tree, now):
            return Stop.IDLE
        if self._listen(tree, now):
            self._sound = now
        elif now - self._sound > self._limits.silence:
            return Stop.SILENCE
        return Stop.LIMIT if now - self._begun > self._limits.seconds else None

    def _nothing_to_come(self, tree: list[psutil.Process], now: float) -> bool:
        """Whether every rank has ended, for a while now, and the launcher has not.

        The agent waits for every rank's return value, and for whatever a rank's children hold
        open: a rank that leaves without a word, or leaves a child behind, makes it wait for ever.
        """
        pids, living = self.pids(), {process.pid for process in tree}
        for rank, pid in pids.items():
            if pid not in living and (status := processes.exit_status(pid)) is not None:
                self.rank_exits[rank] = status
        ended = len(pids) == self._world_size and not any(
            pid in living and not self._path(rank, "left").exists() for rank, pid in pids.items()
        )
        self._idle_since = (self._idle_since or now) if ended else None
        self.left_over = len(living)
        return self._idle_since is not None and now - self._idle_since > IDLE_LIMIT

    def all_recorded(self) -> bool:
        """Whether every rank has left its record."""
        return all(self._path(rank, "json").is_file() for rank in range(self._world_size))

    def _listen(self, tree: list[psutil.Process], now: float) -> bool:
        """Whether anything was written or computed since the last sound."""
        used, busy = 0.0, False
        for process in tree:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used += times.user + times.system
                busy = busy or process.status() in BUSY
        written = 0
        for path in self._folder.glob("rank*.*"):
            with contextlib.suppress(OSError):  # a draft may become its record just now
                written += path.stat().st_size
        used_before, written_before = self._last_sound
        awake = used - used_before > ASLEEP * max(1.0, now - self._sound)
        if busy or awake or used < used_before or written != written_before:
            self._last_sound = (used, written)
            return True
        return False

    def _empty_long_logs(self) -> None:
        for rank in range(self._world_size):
            log = self._path(rank, "log")
            with contextlib.suppress(OSError):
                if (size := log.stat().st_size) > LOG_LIMIT:
                    with log.open("rb+") as file:
                        file.seek(-LOG_TAIL, os.SEEK_END)
                        tail = file.read(LOG_TAIL)
                        file.truncate(0)
                    with log.open("ab") as file:  # as the ranks do, so nobody writes over another
                        file.write(tail)
                    self.log_bytes_dropped += size - len(tail)

    def _path(self, rank: int, ending: str) -> Path:
        return self._folder / f"rank{rank}.{ending}"

    def pids(self) -> dict[int, int]:
        """The processes of the ranks that have started."""
        for rank in range(self._world_size):
            if rank not in self._known_pids:
                with contextlib.suppress(OSError, ValueError):
                    said = int(self._path(rank, "pid").read_text(encoding="ascii"))
                    self._known_pids[rank] = self._pid_of(said) or GONE
        return dict(self._known_pids)

    def interrogate(self) -> tuple[dict[int, str], dict[int, dict[str, Any]]]:
        """Python stack and collectives of every rank that still lives, by rank.

        A rank that does not answer about its collectives is missing there: it holds the
        interpreter's lock, or torch cannot tell.
        """
        asked = {}
        living = {process.pid for process in processes.descendants(self._launcher)}
        for rank, pid in self.pids().items():
            if pid not in living:
                continue  # no signal to a process that is not of this cell
            log = self._path(rank, "log")
            with contextlib.suppress(OSError):
                asked[rank] = (log, log.stat().st_size)
                os.kill(pid, processes.STACK_DUMP)
                _poke(self._path(rank, "ask"))
        deadline = time.monotonic() + ANSWER_LIMIT
        answers = [self._path(rank, "collectives.json") for rank in asked]
        while True:
            stacks = {rank: _stack(log, start) for rank, (log, start) in asked.items()}
            # The main thread comes last, and at its end the frame that all ranks begin with.
            complete = all(RANK_BEGINS in stack for stack in stacks.values())
            if complete and all(path.is_file() for path in answers):
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        collectives = {}
        for rank, path in zip(asked, answers, strict=True):
            with contextlib.suppress(OSError, ValueError):
                collectives[rank] = json.loads(path.read_text(encoding="utf-8"))
        return stacks, collectives


def _poke(pipe: Path) -> None:
    # Not blocking: a rank that never opened its pipe must not stop us.
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, b"?")
    finally:
        os.close(writer)


def _stack(log: Path, start: int, limit: int = 200_000) -> str:
    """The dump that a rank wrote behind ``start`` of its log, innermost frame first."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(min(start, log.stat().st_size))
        text = file.read(limit).decode("utf-8", "replace")
        threads = [part for part in THREAD.split(text)[1:] if OURS not in part]
        return "".join(threads)[:20_000]
    return ""
