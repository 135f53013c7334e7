"""Whether a process that has done a stack's imports may be forked, and which import prevents it.

A thread or a CUDA context does not survive a fork, and an import that changes what others share
reaches ranks that would never do it.  :class:`Imports` notes, while modules are
imported, which of them did so, so that the reason names a module and not only a thread.
Nothing that it replaces for that stays replaced: forked ranks find ``threading`` as it was.
"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

TASKS = Path("/proc/self/task")
# Threads that know of forks: jemalloc (inside pyarrow) starts its own anew in the child.
FORKED_BY_THEMSELVES = {"jemalloc_bg_thd"}
# Between a module and the thread that it starts stand modules that only start it for others.
MIDDLEMEN = ("importlib", "_frozen_importlib", "threading", "concurrent.futures", __name__)
ENDING = 0.2  # seconds


@dataclass(frozen=True)
class ImportSetting:
    """An environment variable that is set while the parent imports, and in no rank.

    Attributes:
        reason: why, and for which releases.
    """

    name: str
    value: str
    reason: str


SETTINGS = (
    ImportSetting(
        "TORCH_WARM_POOL",
        "0",
        "torch 2.5 to 2.8 start their pool of compile workers, with a thread that reads from it, "
        "as soon as torch._inductor.async_compile is imported, which DeepSpeed does from 0.17 on. "
        "With this switch of torch the pool is started by the first compilation, in the rank that "
        "compiles; the number of workers and every other setting stay as they are.",
    ),
)


# A list that every configuration reads.  GRPOConfig of TRL 0.17 and 0.18 adds a field of its own to
# it with transformers up to 4.50.3; from then on no other configuration can be made.
SHARED = ("transformers.training_args", "_VALID_DICT_FIELDS")


class Imports:
    """Imports modules and remembers which of them started or changed what prevents a fork."""

    def __init__(self) -> None:
        self._starters: dict[int, str] = {}  # by the thread's id in the kernel
        self._cuda = ""
        self._shared: object = None
        self._changed = ""

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """The block in which modules are imported, with :data:`SETTINGS` in place."""
        threads: Any = threading.Thread
        start, new = threads.start, _thread.start_new_thread

        def noted_start(thread: threading.Thread) -> None:
            by = importing(sys._getframe(1))
            start(thread)
            if thread.native_id is not None:
                self._starters[thread.native_id] = f"'{thread.name}' by {by}"

        def noted_new(function: Any, *more: Any) -> int:
            by = importing(sys._getframe(1))
            noted = _thread.allocate_lock()
            noted.acquire()

            def run(*args: Any, **options: Any) -> Any:
                name = getattr(function, "__name__", "?")
                self._starters[_thread.get_native_id()] = f"'{name}' by {by}"
                noted.release()
                return function(*args, **options)

            identity: int = new(run, *more)
            noted.acquire()
            return identity

        before = {s.name: os.environ.get(s.name) for s in SETTINGS}
        os.environ.update({s.name: s.value for s in SETTINGS})
        threads.start = noted_start
        _thread.start_new_thread = noted_new
        try:
            yield
        finally:
            threads.start = start
            _thread.start_new_thread = new
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def module(self, name: str) -> None:
        """Imports a module, as far as it can be; what cannot is raised again by the ranks."""
        before = _threads()
        with contextlib.suppress(BaseException):  # a release may raise anything
            importlib.import_module(name)
        for task, called in _threads().items():
            if task not in before:  # else a library in C has started it
                self._starters.setdefault(task, f"'{called}' by {name}")
        if not self._cuda and _cuda_started():
            self._cuda = name
        shared = _shared()
        if self._shared is not None and shared != self._shared and not self._changed:
            self._changed = name
        self._shared = shared

    def unsafe(self) -> str:
        """Why ranks must not be forked from this process; empty if they may."""
        if _cuda_started():
            return f"importing {self._cuda or 'it'} starts CUDA, which does not survive a fork"
        if self._changed:
            what = ".".join(SHARED)
            return f"importing {self._changed} changes {what}, which ranks without it read, too"
        alive = _threads()
        deadline = time.monotonic() + ENDING
        while alive and time.monotonic() < deadline:  # one that has ended is listed a while longer
            time.sleep(0.01)
            alive = _threads()
        names = {self._starters.get(task, f"'{called}'") for task, called in alive.items()}
        if names:
            who = ", ".join(sorted(names))
            return f"its imports start threads, which do not survive a fork: {who}"
        return ""


def importing(frame: FrameType | None) -> str:
    """The module that runs its top level innermost, and the one that a user would have named."""
    running = []
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "?"))
        if frame.f_code.co_name == "<module>" and not name.startswith((*MIDDLEMEN, "__main__")):
            running.append(name)
        frame = frame.f_back
    if not running:
        return "an import"
    first, last = running[0], running[-1]
    return first if last == first else f"{first}, which {last} imports"


def _threads() -> dict[int, str]:
    """The threads of this process that would be lost in a fork, by their id in the kernel."""
    found = {}
    for task in TASKS.iterdir() if TASKS.is_dir() else ():
        with contextlib.suppress(OSError):  # it has ended
            called = (task / "comm").read_text().strip()
            if int(task.name) != os.getpid() and called not in FORKED_BY_THEMSELVES:
                found[int(task.name)] = called
    return found


def _shared() -> tuple[object, ...] | None:
    """What :data:`SHARED` holds; None while it is not there."""
    module, name = SHARED
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return tuple(found) if isinstance(found, list) else None


def _cuda_started() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
