"""Running cells in one stack: preloaded ranks by default, plain ``torchrun`` for confirmation.

A :class:`StackRunner` owns the processes of one stack.  Each run ends with nothing of it alive and
gives an :class:`~trl_compat.outcomes.Observation`; judging is not done here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from trl_compat.environments.build import Environment
from trl_compat.errors import HarnessError
from trl_compat.execution import bundle, cell_environment, processes
from trl_compat.outcomes import Launch, Observation, Outcome
from trl_compat.runtime.launch import torchrun_command
from trl_compat.runtime.spec import CellSpec

IMPORT_LIMIT = 300.0
GRACE = 10.0
IDLE_LIMIT = 3.0
EXIT_LINE = re.compile(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.S)


@dataclasses.dataclass(frozen=True)
class _End:
    """How a run ended: exit status of the launcher, and what had to be killed after it."""

    status: int
    timed_out: bool = False
    leftovers: int = 0


class StackRunner:
    """Runs cells of one stack, one after the other, in scratch folders of its own.

    Args:
        environment: the stack's environment.
        gpus: the GPUs that its ranks share out, one each; none means CPU ranks.
        preload: whether ranks are forked from a parent that has done the imports.
    """

    def __init__(
        self, environment: Environment, *, gpus: tuple[str, ...] = (), preload: bool = True
    ) -> None:
        self.environment = environment
        self._scratch = Path(tempfile.mkdtemp(prefix="trl-compat-"))
        self._bundle = bundle.make(self._scratch / "bundle")
        self._env = cell_environment.build(
            environment.python,
            self._scratch / "home",
            environment.extensions,
            gpus=gpus,
            run_id=f"{os.getpid()}-{self._scratch.name}",
        )
        self._preload = preload and sys.platform == "linux"
        self._parent: subprocess.Popen[str] | None = None
        self._unread = b""
        self.import_errors: dict[str, str] = {}
        self.import_seconds = 0.0

    def __enter__(self) -> StackRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of the stack and removes the scratch folder."""
        self._end_parent()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def folder(self, name: str) -> Path:
        """A fresh scratch folder for one run."""
        return Path(tempfile.mkdtemp(prefix=f"{name[:60]}-", dir=self._scratch))

    def run(
        self, spec: CellSpec, *, limit: float, launch: Launch = Launch.PRELOADED
    ) -> Observation:
        """Runs a cell once; it is over, with all of its processes, when this returns.

        Args:
            spec: the cell; its folder must exist and be empty.
            limit: seconds after which it counts as hanging.
            launch: how to start the ranks; preloading falls back to ``torchrun`` where need be.
        """
        spec_file = Path(spec.folder) / "spec.json"
        spec.write(spec_file)
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        if launch is Launch.PRELOADED and not (self._preload and self._ensure_parent()):
            launch = Launch.TORCHRUN
        begun = time.monotonic()
        match launch:
            case Launch.PRELOADED:
                end = self._run_preloaded(spec, spec_file, limit)
            case Launch.TORCHRUN:
                end = self._run_torchrun(spec, spec_file, limit)
        return Observation(
            launch=launch,
            world_size=spec.world_size,
            started_at=started_at,
            seconds=round(time.monotonic() - begun, 2),
            ranks=_records(Path(spec.folder), spec.world_size),
            exit_status=end.status,
            rank_exits=_rank_exits(Path(spec.folder)),
            timed_out=end.timed_out,
            leftovers=end.leftovers,
            output=_output(Path(spec.folder), spec.world_size),
        )

    def _run_preloaded(self, spec: CellSpec, spec_file: Path, limit: float) -> _End:
        parent = self._parent
        assert parent is not None
        assert parent.stdin is not None
        parent.stdin.write(json.dumps({"spec": str(spec_file)}) + "\n")
        parent.stdin.flush()
        answer = self._answer(GRACE)
        launcher = int(answer["pid"]) if answer else parent.pid
        end = self._wait(launcher, spec, limit)
        if end is None:
            processes.signal_tree(launcher, processes.STACK_DUMP)
            time.sleep(0.5)  # the time that faulthandler takes to write the stacks
            processes.end_tree(launcher)
            end = _End(-9, timed_out=True)
            if self._answer(GRACE) is None:
                self._end_parent()
                return end
        # What the cell left behind was adopted by the parent when its launcher ended.
        left = processes.end_tree(parent.pid, itself=False)
        return dataclasses.replace(end, leftovers=end.leftovers + left)

    def _wait(self, launcher: int, spec: CellSpec, limit: float) -> _End | None:
        """Waits for a launcher to end; None when it does not in time.

        The agent waits for every rank's return value, and for whatever a rank's children hold
        open: a rank that leaves without a word, or leaves a child behind, makes it wait for ever.
        When no process is left that has still to write its record, the launcher is ended.
        """
        deadline = time.monotonic() + limit
        idle_since = 0.0
        while (left := deadline - time.monotonic()) > 0:
            answer = self._answer(min(left, 0.5))
            if answer is not None:
                return _End(int(answer["status"]))
            if self._gone():
                return _End(-9)
            done = {int(r["pid"]) for r in _records(Path(spec.folder), spec.world_size).values()}
            others = {process.pid for process in processes.descendants(launcher)} - done
            if not done or (others and len(done) < spec.world_size):
                idle_since = 0.0
                continue
            idle_since = idle_since or time.monotonic()
            if time.monotonic() - idle_since > IDLE_LIMIT:
                processes.end_tree(launcher)
                self._answer(GRACE)
                return _End(0 if len(done) == spec.world_size else -9, leftovers=len(others))
        return None

    def _gone(self) -> bool:
        return self._parent is None or self._parent.poll() is not None

    def _run_torchrun(self, spec: CellSpec, spec_file: Path, limit: float) -> _End:
        command = torchrun_command(
            str(self.environment.python), self._bundle, spec_file, spec.world_size
        )
        folder = Path(spec.folder)
        process = processes.spawn(
            command, env=self._env, cwd=folder, stderr=folder / "launcher.log", pipes=False
        )
        timed_out = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
            processes.signal_tree(process.pid, processes.STACK_DUMP)
            time.sleep(0.5)
        finally:
            leftovers = processes.end_tree(process.pid)
            process.wait()
        return _End(process.returncode, timed_out, 0 if timed_out else leftovers)

    def _ensure_parent(self) -> bool:
        """Starts the parent with the imports done; False if this stack cannot be preloaded."""
        if self._parent is not None and self._parent.poll() is None:
            return True
        self._unread = b""
        log = self._scratch / "preload.log"
        self._parent = processes.spawn(
            [str(self.environment.python), str(self._bundle / "preload_main.py")],
            env=self._env,
            cwd=self._scratch,
            stderr=log,
            pipes=True,
        )
        ready = self._answer(IMPORT_LIMIT)
        if ready is None:
            self._end_parent()
            self._preload = False
            return False
        self.import_errors = ready["failed"]
        self.import_seconds = round(float(ready["seconds"]), 2)
        return True

    def _answer(self, limit: float) -> dict[str, Any] | None:
        """The parent's next line; None when it does not come in time or the parent is gone."""
        assert self._parent is not None
        assert self._parent.stdout is not None
        source = self._parent.stdout.fileno()
        deadline = time.monotonic() + limit
        while b"\n" not in self._unread:
            readable, _, _ = select.select([source], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(source, 65536) if readable else b""
            if not chunk:
                return None
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end_parent(self) -> None:
        parent, self._parent = self._parent, None
        if parent is None:
            return
        with contextlib.suppress(OSError):
            if parent.stdin is not None:
                parent.stdin.close()
        processes.end_tree(parent.pid)
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()


def unsound(outcome: Outcome, reason: str, *, world_size: int) -> Observation:
    """The observation of a cell whose stack could not be made."""
    return Observation(
        launch=Launch.PRELOADED,
        world_size=world_size,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        unsound=(outcome, reason),
    )


def _records(folder: Path, world_size: int) -> dict[int, dict[str, Any]]:
    records = {}
    for rank in range(world_size):
        path = folder / f"rank{rank}.json"
        if path.is_file():
            try:
                records[rank] = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise HarnessError(f"unreadable record {path.name}: {error}") from None
    return records


def _rank_exits(folder: Path) -> dict[int, int]:
    """Exit status of the ranks that failed, as the elastic agent's own summary gives them."""
    log = folder / "launcher.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return {int(m[1]): int(m[2]) for m in EXIT_LINE.finditer(text)}


def _output(folder: Path, world_size: int, limit: int = 12_000) -> str:
    """What the ranks and the launcher printed, the end of it where it is long."""
    parts = []
    for name in [*(f"rank{rank}" for rank in range(world_size)), "launcher"]:
        path = folder / f"{name}.log"
        if path.is_file():
            text = path.read_bytes()[-4 * limit :].decode("utf-8", "replace")
            if len(text) > limit:
                text = "[...]\n" + text[-limit:]
            parts.append(f"===== {name} =====\n{text.rstrip()}\n")
    return "\n".join(parts)
