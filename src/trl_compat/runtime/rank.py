"""What one rank does: capture its output, install stand-ins, apply the fix, run the scenario.

Called by torch's elastic agent, in a fresh process by ``torchrun`` or in one forked from a parent
that has done the imports (:mod:`.preload`); both run the same :func:`run`.  Whatever happens, a
record ``rank<N>.json`` is on disk before the process ends, except when a signal kills it.  What a
scenario registers as false is on disk at once, in ``rank<N>.failed``: the scenario may swallow it
and never end, and its threads and children may register it when the record is written.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from . import collectives, needs, offline, signature, stand_ins
from .confine import die_with_parent
from .context import ControlFailed, NotApplicable, OnFailure, Rank, installed
from .plain import plain
from .spec import UNRECORDED, CellSpec

# So many of the things that a rank registers as false are on disk at once; the first one decides.
MOST_FAILURES = 20


def load_reproduction(path: str) -> ModuleType:
    """Imports a reproduction from its file, without putting its folder on the path."""
    spec = importlib.util.spec_from_file_location("reproduction", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no reproduction at {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduction"] = module
    spec.loader.exec_module(module)
    return module


def find(entry: str) -> Callable[[], Any]:
    """The function behind ``module:function``."""
    module, _, function = entry.partition(":")
    found: Callable[[], Any] = getattr(importlib.import_module(module), function)
    return found


def apply_fix(spec: CellSpec) -> str:
    """Applies the fix of a cell and says what it did.

    The standalone form is executed as a script executes what was pasted into it: at its own top
    level, and before anything of the scenario.
    """
    if not spec.fix_code:
        return str(find(spec.fix or "")())
    pasted = compile(spec.fix_code, "<the standalone form of the fix>", "exec")
    exec(pasted, {"__name__": "__main__"})
    return "executed the standalone form"


def capture_output(folder: Path, rank: int) -> None:
    """Sends stdout and stderr of this process, C code's too, to ``rank<N>.log``."""
    (folder / f"rank{rank}.pid").write_text(str(os.getpid()), encoding="ascii")
    log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)


def be_killed_first() -> None:
    """Asks the kernel to take this process, not the user's others, when memory runs out (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def journal(path: Path) -> OnFailure:
    """What writes down at once that something was registered as false: a line of JSON each."""
    written: list[str] = []

    def note(kind: str, name: str, error: Exception) -> None:
        now = time.time()
        written.append(name)
        if len(written) > MOST_FAILURES:
            return
        way = list(traceback.walk_stack(sys._getframe(2)))[::-1]
        entered = (n for n, (frame, _) in enumerate(way) if frame.f_code is run.__code__)
        way = way[next(entered, 0) :]  # as an exception that :func:`run` catches would have it
        entry = {"kind": kind, "name": name, "at": now, "error": signature.describe(error, way)}
        # The record says it, too, if this disk is full.
        with contextlib.suppress(OSError):
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(log, json.dumps(entry).encode() + b"\n")
            finally:
                os.close(log)

    return note


def seed_everything(seed: int) -> None:
    """The same seed on every rank, for Python, numpy and torch."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def run(spec: CellSpec) -> None:
    """Runs the scenario of a cell as the rank that the environment names.

    Raises:
        SystemExit: with status 1 after anything but a clean end; the record says what it was.
    """
    die_with_parent()
    # A forked rank has inherited the agent's handler, which would raise where torchrun's rank dies.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    rank = Rank(spec)
    rank.on_failure = journal(rank.folder / f"rank{rank.rank}.failed")
    capture_output(rank.folder, rank.rank)
    collectives.answer_when_asked(rank.folder, rank.rank, write_record)
    offline.refuse_if_asked()
    be_killed_first()
    os.chdir(rank.folder)
    record: dict[str, Any] = {"rank": rank.rank, "pid": os.getpid(), "started": time.time()}
    try:
        if lacking := needs.lacking(spec.conditions, installed):
            rank.not_applicable(lacking)
        stand_ins.install(rank)
        reproduction = load_reproduction(spec.reproduction)
        seed_everything(spec.seed)
        if spec.fix or spec.fix_code:
            rank.observe("fix", apply_fix(spec))
        reproduction.scenario(rank)
        record.update(ended=time.time(), status="finished")
    except BaseException as error:
        record.update(ended=time.time(), status=status_of(error), error=signature.describe(error))
        with contextlib.suppress(Exception):  # a full disk, a stream that was closed or replaced
            print(record["error"]["traceback"], file=sys.stderr, flush=True)
    record.update(
        checks=rank.checks,
        preconditions=rank.preconditions,
        observations=rank.observations,
        stand_ins=rank.stand_ins,
    )
    try:
        write_record(rank.folder / f"rank{rank.rank}.json", record)
    except OSError:
        sys.exit(UNRECORDED)
    if record["status"] not in ("finished", "not-applicable"):
        sys.exit(1)
    wait_for_the_others()


def status_of(error: BaseException) -> str:
    """How a scenario that ended with an exception is recorded to have ended."""
    kind = type(error)  # not isinstance, which asks an exception what it would like to be
    if issubclass(kind, NotApplicable):
        return "not-applicable"
    return "control-failed" if issubclass(kind, ControlFailed) else "raised"


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Writes a record so that a reader sees all of it or nothing."""
    try:
        said = json.dumps(record, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a scenario has put something else into it
        said = json.dumps(plain(record))
    draft = path.with_suffix(".draft")
    draft.write_text(said, encoding="utf-8")
    draft.replace(path)


def wait_for_the_others() -> None:
    """Waits for the other ranks, if the scenario made a process group: none may outrun another.

    The group is left as it is, as users' scripts leave it.  Destroying it holds the interpreter's
    lock while it joins gloo's worker threads, and one of these may just be waiting for that lock to
    release the tensors of the last collective: about one run in fifty hung there (torch 2.4.1).
    """
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        with contextlib.suppress(Exception):
            dist.barrier()


if __name__ == "__main__":
    run(CellSpec.read(Path(sys.argv[1])))
