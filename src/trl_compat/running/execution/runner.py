"""Running cells of one stack: preloaded ranks by default, plain ``torchrun`` for confirmation.

A :class:`StackRunner` owns the processes of one stack.  After each run none of its processes is
alive, and the run returns an :class:`~trl_compat.cells.observation.Observation`; it is judged
elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trl_compat.cells import hangs
from trl_compat.cells.observation import Launch, Observation, Stop
from trl_compat.cells.outcome import Outcome
from trl_compat.machine import isolation, processes
from trl_compat.results import now
from trl_compat.running.execution import bundle, cell_environment, rank_files
from trl_compat.running.execution.watch import Limits, Watch
from trl_compat.runtime.launch import torchrun_command
from trl_compat.runtime.plain import text
from trl_compat.runtime.spec import CellSpec
from trl_compat.stacks.environments import bytecode, cache
from trl_compat.stacks.providing import Environment

IMPORT_LIMIT = 300.0
GRACE = 10.0
LOOK_EVERY = 0.25
# Says what a parent imports; another list needs other bytecode.
IMPORTS = "trl_compat/runtime/preload.py"


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
        readable: what cells read beside it: reproductions and models.
        gpus: the GPUs that its ranks share out, one each; none means CPU ranks.
        preload: whether ranks are forked from a parent that has done the imports.
        share_gpu: the ranks of a cell share one GPU.

    Attributes:
        home: that of the cell that runs, or ran last.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        readable: Sequence[Path],
        gpus: tuple[str, ...] = (),
        preload: bool = True,
        share_gpu: bool = False,
    ) -> None:
        self.environment = environment
        self._scratch = Path(tempfile.mkdtemp(prefix="trl-compat-"))
        self.run_id = f"{os.getpid()}-{self._scratch.name}"
        self._guardian = processes.start_watchdog(self.run_id, self._scratch)
        self._bundle = bundle.make(self._scratch / "bundle")
        # All that a stack's processes may write to; a cell, to its own folder and home in there.
        self._work = self._scratch / "work"
        self.home = self._work / "home"
        self._make_home()
        self._readable = (
            self._bundle,
            *isolation.interpreter_files(environment.python),
            *readable,
        )
        self._gpus = gpus
        self._env = cell_environment.build(environment, self.home, gpus=gpus, run_id=self.run_id)
        self._not_preloaded = "" if sys.platform == "linux" else "ranks are forked on Linux only"
        if share_gpu:
            bundle.share_gpu(self._bundle)
            self._not_preloaded = "ranks that share a GPU are not forked"
        self._preload = preload and not self._not_preloaded
        self._parent: processes.Contained | None = None
        self._unread = b""

    def __enter__(self) -> StackRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of the stack and removes the scratch folder."""
        self._end_parent()
        processes.end_marked(self.run_id)
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._guardian.wait()

    def folder(self, name: str) -> Path:
        """A fresh scratch folder for one run."""
        return Path(tempfile.mkdtemp(prefix=f"{name[:60]}-", dir=self._work))

    def start(self) -> str:
        """Does all that comes before the first cell; why its ranks cannot be forked, if so."""
        self._provide_bytecode()
        return "" if self._preload and self._ensure_parent() else self._not_preloaded

    def _make_home(self) -> None:
        """A new home, at the same place, for each cell; what the last one left is put aside."""
        if self.home.exists():
            self.home.rename(tempfile.mkdtemp(prefix="home-of-an-earlier-cell-", dir=self._work))
        (self.home / "tmp").mkdir(parents=True)

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
        started_at = now()
        not_preloaded = ""
        self._provide_bytecode()
        if launch is Launch.PRELOADED and not (self._preload and self._ensure_parent()):
            launch, not_preloaded = Launch.TORCHRUN, self._not_preloaded
        self._make_home()
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
        strays = self._end_strays()
        records, problems = rank_files.records(folder, spec.world_size)
        failed, unreadable = rank_files.failed(folder, spec.world_size)
        finished = [rank for rank, record in records.items() if not record.failed]
        went_well = len(finished) == spec.world_size and not failed
        output = rank_files.output(folder, spec.world_size)
        if watch.log_bytes_dropped:
            output += f"\n[{watch.log_bytes_dropped} bytes of earlier output were dropped]\n"
        return Observation(
            launch=launch,
            world_size=spec.world_size,
            started_at=started_at,
            seconds=round(time.monotonic() - begun, 2),
            ranks=records,
            failed=failed,
            exit_status=end.status,
            rank_exits=watch.rank_exits | rank_files.rank_exits(folder),
            stopped=end.stopped,
            hanging=end.hanging,
            leftovers=end.leftovers + strays,
            peak_memory=watch.peak_memory,
            out_of_memory_kills=_out_of_memory_kills() - kills,
            problems=problems + unreadable,
            shortage=watch.shortage or rank_files.shortage(folder, went_well=went_well),
            not_preloaded=not_preloaded,
            output=output,
        )

    def _end_strays(self) -> int:
        """Kills what got away from the tree of a cell, as far as it carries the mark of the run.

        Nothing gets out of a room.
        """
        if isolation.containment().room:
            return 0
        parent = {self._parent.process.pid} if self._parent else set()
        return processes.end_marked(self.run_id, spare=parent)

    def _run_preloaded(self, spec: CellSpec, spec_file: Path, limits: Limits) -> tuple[_End, Watch]:
        parent = self._parent
        assert parent is not None
        assert parent.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the parent died meanwhile: seen below
            order = {"spec": str(spec_file), "room": parent.room}
            parent.process.stdin.write(json.dumps(order) + "\n")
            parent.process.stdin.flush()
        answer = self._answer(GRACE)
        inside = parent.pid(int(answer["pid"])) if answer else None
        launcher = inside or parent.process.pid
        watch = Watch(launcher, Path(spec.folder), spec.world_size, limits, parent.pid)

        def status() -> int | None:
            answer = self._answer(LOOK_EVERY)
            if answer is not None and "status" in answer:  # else the late word that it has begun
                return int(answer["status"])
            return -9 if parent.process.poll() is not None else None

        end = _until_over(watch, launcher, status)
        if end.stopped is not None and self._answer(GRACE) is None:
            self._end_parent()
            return end, watch
        # What the cell left behind was adopted by the parent when its launcher ended.
        left = parent.end_others()
        return dataclasses.replace(end, leftovers=end.leftovers + left), watch

    def _run_torchrun(self, spec: CellSpec, spec_file: Path, limits: Limits) -> tuple[_End, Watch]:
        folder = Path(spec.folder)
        command = torchrun_command(
            str(self.environment.python), self._bundle, spec_file, spec.world_size
        )
        reach = isolation.Reach(
            (*self._readable, self.environment.bytecode), (folder, self.home), bool(self._gpus)
        )
        started = processes.spawn(
            command,
            env=self._env,
            cwd=folder,
            stderr=folder / "launcher.log",
            pipes=False,
            reach=reach,
        )
        watch = Watch(started.process.pid, folder, spec.world_size, limits, started.pid)

        def status() -> int | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return started.process.wait(LOOK_EVERY)
            return None

        try:
            end = _until_over(watch, started.process.pid, status)
        finally:
            left = started.end()
        return dataclasses.replace(end, leftovers=end.leftovers + left), watch

    def _ensure_parent(self) -> bool:
        """Starts the parent with the imports done; False if this stack cannot be preloaded."""
        if self._parent is None or self._parent.process.poll() is not None:
            self._judge_parent(self._start_parent())
        return self._preload

    def _judge_parent(self, ready: dict[str, Any] | None) -> None:
        """Keeps a parent that can be forked from, else says why not; by what it has answered."""
        if self._preload and (ready is None or ready["unsafe"]):
            self._not_preloaded = str(ready["unsafe"]) if ready else self._last_words()
            self._preload = False
        if not self._preload:
            self._end_parent()

    def _provide_bytecode(self) -> None:
        """Has all that the stack's imports need compiled, once and before any cell; no cell can."""
        folder = self.environment.bytecode
        done = folder.with_name("pycache.complete")
        imports = hashlib.sha256((self._bundle / IMPORTS).read_bytes()).hexdigest()
        with cache.lock_file(folder):
            if done.is_file() and done.read_text(encoding="ascii") == imports:
                return
            bytecode.prepare(self.environment)
            ready = self._start_parent()
            if ready is not None:
                bytecode.add(self.environment, ready["uncompiled"])
            done.write_text(imports, encoding="ascii")
        self._judge_parent(ready)

    def _start_parent(self) -> dict[str, Any] | None:
        """Starts a parent; what it says when its imports are done, None if they come to no end."""
        self._end_parent()
        self._unread = b""
        self._parent = processes.spawn(
            [str(self.environment.python), str(self._bundle / "preload_main.py")],
            env=self._env,
            cwd=self._work,
            stderr=self._scratch / "preload.log",
            pipes=True,
            reach=isolation.Reach(
                (*self._readable, self.environment.bytecode), (self._work,), bool(self._gpus)
            ),
        )
        return self._answer(IMPORT_LIMIT)

    def _last_words(self) -> str:
        """Why the parent has not said that it is ready."""
        said = rank_files.last_words(self._scratch / "preload.log")
        last = (said.strip().splitlines() or ["it printed nothing"])[-1][:200]
        return f"its imports did not finish: {last}"

    def _answer(self, limit: float) -> dict[str, Any] | None:
        """The parent's next line; None when it does not come in time or the parent is gone."""
        assert self._parent is not None
        assert self._parent.process.stdout is not None
        source = self._parent.process.stdout.fileno()
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
        if parent is not None:
            parent.end()


def _until_over(watch: Watch, launcher: int, status: Callable[[], int | None]) -> _End:
    """Waits for a launcher to end, or ends it for one of the reasons that a watch knows.

    Args:
        status: waits a little; the launcher's exit status, None while it runs.
    """
    while (ended := status()) is None:
        stop = watch.check()
        match stop:
            case None:
                continue
            case Stop.LAUNCHER_STUCK:
                left = watch.left_over
                processes.end_tree(launcher)
                return _End(0 if watch.all_recorded() else -9, stop, leftovers=left)
            case Stop.MEMORY:
                processes.end_tree(launcher)
                return _End(-9, stop)
            case Stop.LIMIT | Stop.IDLE:
                hanging = hangs.states(*watch.interrogate())
                processes.end_tree(launcher)
                return _End(-9, stop, hanging)
    return _End(ended)


def not_started(outcome: Outcome, reason: str, *, world_size: int) -> Observation:
    """The observation of a cell whose stack could not be made."""
    return Observation(
        launch=Launch.PRELOADED,
        world_size=world_size,
        started_at=now(),
        seconds=0.0,
        not_started=(outcome, text(reason)),
    )


def _out_of_memory_kills() -> int:
    """How many processes this machine's kernel has killed for memory so far (Linux)."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
