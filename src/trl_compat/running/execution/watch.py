"""Watching a running cell: when to stop it, and what its ranks were doing when it was stopped.

A cell is stopped when it exceeds its time limit, when it is idle (none of its processes computes or
writes), when it uses too much memory, or when only its launcher is left and makes no progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from trl_compat.cells.observation import Stop
from trl_compat.cells.rank_records import Collectives
from trl_compat.machine import disk, processes
from trl_compat.machine.untrusted import Folder
from trl_compat.running.execution import rank_files

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
SOUNDS = ("log", "failed", "draft", "json", "left")
OURS, RANK_BEGINS = "runtime/collectives.py", "runtime/rank.py"


@dataclasses.dataclass(frozen=True)
class Limits:
    """When to stop a cell.

    Attributes:
        seconds: of time in all.
        idle: seconds in which no rank wrote a byte or used the processor.
        memory: bytes that all its processes may hold together.
    """

    seconds: float = 300.0
    idle: float = 45.0
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
        self._launcher, self._scratch = launcher, folder.parent
        self._left = Folder(folder)
        self._world_size, self._limits = world_size, limits
        self._begun = self._last_activity = time.monotonic()
        self._idle_since: float | None = None
        self._measured = 0.0
        self._last_sound: tuple[float, int] = (0.0, 0)
        self.peak_memory = 0
        self.log_bytes_dropped = 0
        self.shortage = ""
        self.left_over = 0
        self.rank_exits: dict[int, int] = {}

    def check(self) -> Stop | None:
        """Why the cell must be stopped now, or None."""
        now = time.monotonic()
        tree = processes.descendants(self._launcher)
        self._empty_long_logs()
        self.shortage = self.shortage or disk.shortage(self._scratch)
        if now - self._measured > 1.0:
            self._measured = now
            self.peak_memory = max(self.peak_memory, processes.proportional_memory(tree))
            if self.peak_memory > self._limits.memory:
                return Stop.MEMORY
        if self._nothing_to_come(tree, now):
            return Stop.LAUNCHER_STUCK
        if self._had_activity(tree, now):
            self._last_activity = now
        elif now - self._last_activity > self._limits.idle:
            return Stop.IDLE
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
            pid in living and self._left.size(f"rank{rank}.left") is None
            for rank, pid in pids.items()
        )
        self._idle_since = (self._idle_since or now) if ended else None
        self.left_over = len(living)
        return self._idle_since is not None and now - self._idle_since > IDLE_LIMIT

    def all_recorded(self) -> bool:
        """Whether every rank has left its record."""
        return all(self._left.size(f"rank{n}.json") is not None for n in range(self._world_size))

    def _had_activity(self, tree: list[psutil.Process], now: float) -> bool:
        """Whether anything was written or computed since the last activity."""
        used, busy = 0.0, False
        for process in tree:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used += times.user + times.system
                busy = busy or process.status() in BUSY
        files = (f"rank{n}.{kind}" for n in range(self._world_size) for kind in SOUNDS)
        written = sum(self._left.size(name) or 0 for name in files)
        used_before, written_before = self._last_sound
        awake = used - used_before > ASLEEP * max(1.0, now - self._last_activity)
        if busy or awake or used < used_before or written != written_before:
            self._last_sound = (used, written)
            return True
        return False

    def _empty_long_logs(self) -> None:
        for rank in range(self._world_size):
            with contextlib.suppress(OSError):
                self.log_bytes_dropped += self._left.cut(f"rank{rank}.log", LOG_LIMIT, LOG_TAIL)

    def pids(self) -> dict[int, int]:
        """The processes of the ranks that have started."""
        for rank in range(self._world_size):
            if rank not in self._known_pids:
                with contextlib.suppress(OSError, ValueError):
                    said = int(self._left.read(f"rank{rank}.pid", 20) or b"")
                    self._known_pids[rank] = self._pid_of(said) or GONE
        return dict(self._known_pids)

    def interrogate(self) -> tuple[dict[int, str], dict[int, Collectives]]:
        """Python stack and collectives of every rank that still lives, by rank.

        A rank that does not answer about its collectives is missing there: it holds the
        interpreter's lock, or torch cannot tell.
        """
        asked = {}
        living = {process.pid for process in processes.descendants(self._launcher)}
        for rank, pid in self.pids().items():
            if pid not in living:
                continue  # no signal to a process that is not of this cell
            asked[rank] = self._left.size(f"rank{rank}.log") or 0
            with contextlib.suppress(OSError):
                os.kill(pid, processes.STACK_DUMP)
                self._left.poke(f"rank{rank}.ask")
        deadline = time.monotonic() + ANSWER_LIMIT
        while True:
            stacks = {rank: self._stack(rank, start) for rank, start in asked.items()}
            # The main thread comes last, and at its end the frame that all ranks begin with.
            complete = all(RANK_BEGINS in stack for stack in stacks.values())
            if complete and all(self._left.size(_answer(rank)) is not None for rank in asked):
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        answers = {rank: rank_files.collectives(self._left, _answer(rank)) for rank in asked}
        return stacks, {rank: answer for rank, answer in answers.items() if answer is not None}

    def _stack(self, rank: int, start: int, limit: int = 200_000) -> str:
        """The dump that a rank wrote behind ``start`` of its log, innermost frame first."""
        with contextlib.suppress(OSError):
            text = self._left.behind(f"rank{rank}.log", start, limit).decode("utf-8", "replace")
            threads = [part for part in THREAD.split(text)[1:] if OURS not in part]
            return "".join(threads)[:20_000]
        return ""


def _answer(rank: int) -> str:
    return f"rank{rank}.collectives.json"
