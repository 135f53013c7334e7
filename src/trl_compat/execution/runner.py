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
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from trl_compat import hangs
from trl_compat.environments.build import Environment
from trl_compat.execution import bundle, cell_environment, evidence, processes
from trl_compat.execution.watch import Limits, Watch
from trl_compat.outcomes import Launch, Observation, Outcome, Stop
from trl_compat.runtime.launch import torchrun_command
from trl_compat.runtime.spec import CellSpec

IMPORT_LIMIT = 300.0
GRACE = 10.0
LOOK_EVERY = 0.25


@dataclasses.dataclass(frozen=True)
class _End:
    """How a run ended.

    Attributes:
        status: exit status of the launcher; negative for a signal.
        hanging: the state of the ranks that were running when a hang was ended.
        leftovers: processes that had to be killed after the launcher had ended.
    """

    status: int
    stopped: Stop | None = None
    hanging: dict[int, hangs.RankState] = dataclasses.field(default_factory=dict)
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
        self.mark = f"{os.getpid()}-{self._scratch.name}"
        self._guardian = processes.guard(self.mark, self._scratch)
        self._bundle = bundle.make(self._scratch / "bundle")
        for folder in environment.writable:
            folder.mkdir(exist_ok=True)
        self._env = cell_environment.build(
            environment, self._scratch / "home", gpus=gpus, mark=self.mark
        )
        self._not_preloaded = "" if sys.platform == "linux" else "ranks are forked on Linux only"
        self._preload = preload and not self._not_preloaded
        self._parent: subprocess.Popen[str] | None = None
        self._unread = b""

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
        processes.end_marked(self.mark)
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._guardian.wait()

    def folder(self, name: str) -> Path:
        """A fresh scratch folder for one run."""
        return Path(tempfile.mkdtemp(prefix=f"{name[:60]}-", dir=self._scratch))

    def run(
        self, spec: CellSpec, *, limits: Limits, launch: Launch = Launch.PRELOADED
    ) -> Observation:
        """Runs a cell once; it is over, with all of its processes, when this returns.

        Args:
            spec: the cell; its folder must exist and be empty.
            limits: when to stop it.
            launch: how to start the ranks; preloading falls back to ``torchrun`` where need be.
        """
        folder = Path(spec.folder)
        spec_file = folder / "spec.json"
        spec.write(spec_file)
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        not_preloaded = ""
        if launch is Launch.PRELOADED and not (self._preload and self._ensure_parent()):
            launch, not_preloaded = Launch.TORCHRUN, self._not_preloaded
        kills = _out_of_memory_kills()
        begun = time.monotonic()
        try:
            match launch:
                case Launch.PRELOADED:
                    end, watch = self._run_preloaded(spec, spec_file, limits)
                case Launch.TORCHRUN:
                    end, watch = self._run_torchrun(spec, spec_file, limits)
        except BaseException:
            self._end_parent()  # what it will say next belongs to this run
            raise
        # What got away from the tree (a daemon, say) still carries the mark of the run.
        parent = {self._parent.pid} if self._parent else set()
        strays = processes.end_marked(self.mark, spare=parent)
        records, problems = evidence.records(folder, spec.world_size)
        output = evidence.output(folder, spec.world_size)
        if watch.log_bytes_dropped:
            output += f"\n[{watch.log_bytes_dropped} bytes of earlier output were dropped]\n"
        return Observation(
            launch=launch,
            world_size=spec.world_size,
            started_at=started_at,
            seconds=round(time.monotonic() - begun, 2),
            ranks=records,
            exit_status=end.status,
            rank_exits=watch.rank_exits | evidence.rank_exits(folder),
            stopped=end.stopped,
            hanging=end.hanging,
            leftovers=end.leftovers + strays,
            peak_memory=watch.peak_memory,
            out_of_memory_kills=_out_of_memory_kills() - kills,
            problems=problems,
            not_preloaded=not_preloaded,
            output=output,
        )

    def _run_preloaded(self, spec: CellSpec, spec_file: Path, limits: Limits) -> tuple[_End, Watch]:
        parent = self._parent
        assert parent is not None
        assert parent.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the parent died meanwhile: seen below
            parent.stdin.write(json.dumps({"spec": str(spec_file)}) + "\n")
            parent.stdin.flush()
        answer = self._answer(GRACE)
        launcher = int(answer["pid"]) if answer else parent.pid
        watch = Watch(launcher, Path(spec.folder), spec.world_size, limits)

        def status() -> int | None:
            answer = self._answer(LOOK_EVERY)
            if answer is not None and "status" in answer:  # else the late word that it has begun
                return int(answer["status"])
            return -9 if parent.poll() is not None else None

        end = _until_over(watch, launcher, status)
        if end.stopped is not None and self._answer(GRACE) is None:
            self._end_parent()
            return end, watch
        # What the cell left behind was adopted by the parent when its launcher ended.
        left = processes.end_tree(parent.pid, itself=False)
        return dataclasses.replace(end, leftovers=end.leftovers + left), watch

    def _run_torchrun(self, spec: CellSpec, spec_file: Path, limits: Limits) -> tuple[_End, Watch]:
        folder = Path(spec.folder)
        command = torchrun_command(
            str(self.environment.python), self._bundle, spec_file, spec.world_size
        )
        process = processes.spawn(
            command,
            env=self._env,
            cwd=folder,
            stderr=folder / "launcher.log",
            pipes=False,
            writable=self._writable,
        )
        watch = Watch(process.pid, folder, spec.world_size, limits)

        def status() -> int | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_EVERY)
            return None

        try:
            end = _until_over(watch, process.pid, status)
        finally:
            left = processes.end_tree(process.pid)
            process.wait()
        return dataclasses.replace(end, leftovers=end.leftovers + left), watch

    @property
    def _writable(self) -> list[Path]:
        return [self._scratch, *self.environment.writable]

    def _ensure_parent(self) -> bool:
        """Starts the parent with the imports done; False if this stack cannot be preloaded."""
        if self._parent is not None and self._parent.poll() is None:
            return True
        self._end_parent()
        self._unread = b""
        self._parent = processes.spawn(
            [str(self.environment.python), str(self._bundle / "preload_main.py")],
            env=self._env,
            cwd=self._scratch,
            stderr=self._scratch / "preload.log",
            pipes=True,
            writable=self._writable,
        )
        ready = self._answer(IMPORT_LIMIT)
        if ready is not None and not ready["unsafe"]:
            return True
        self._not_preloaded = ready["unsafe"] if ready else self._last_words()
        self._end_parent()
        self._preload = False
        return False

    def _last_words(self) -> str:
        """Why the parent has not said that it is ready."""
        text = (self._scratch / "preload.log").read_text(encoding="utf-8", errors="replace")
        last = (text.strip().splitlines() or ["it said nothing"])[-1][:200]
        return f"its imports came to no end: {last}"

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


def _until_over(watch: Watch, launcher: int, status: Callable[[], int | None]) -> _End:
    """Waits for a launcher to end, or ends it for one of the reasons that a watch knows.

    Args:
        status: waits a little; the launcher's exit status, None while it runs.
    """
    while (ended := status()) is None:
        stop = watch.look()
        match stop:
            case None:
                continue
            case Stop.IDLE:
                left = watch.left_over
                processes.end_tree(launcher)
                return _End(0 if watch.all_recorded() else -9, stop, leftovers=left)
            case Stop.MEMORY:
                processes.end_tree(launcher)
                return _End(-9, stop)
            case Stop.LIMIT | Stop.SILENCE:
                hanging = hangs.states(*watch.interrogate())
                processes.end_tree(launcher)
                return _End(-9, stop, hanging)
    return _End(ended)


def unsound(outcome: Outcome, reason: str, *, world_size: int) -> Observation:
    """The observation of a cell whose stack could not be made."""
    return Observation(
        launch=Launch.PRELOADED,
        world_size=world_size,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        unsound=(outcome, reason),
    )


def _out_of_memory_kills() -> int:
    """How many processes this machine's kernel has killed for memory so far (Linux)."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
