"""A Ray cluster as :class:`~trl_compat.running.engines.dispatch.Tasks`, for the time of a run.

Without an address one is started here, and ended with all of its files.  The batch of a stack is
one task that streams what it says, so that what has arrived is never lost with the task.  Ray does
not retry it by itself, because it would run the whole batch again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Hashable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from trl_compat.errors import BadInput
from trl_compat.machine import processes
from trl_compat.running.engines import ray_relay
from trl_compat.running.engines.batches import Node, Request
from trl_compat.running.engines.dispatch import Lost, Over
from trl_compat.running.engines.parcel import TASK

# Read by Ray when it is imported or started: nothing is sent to its makers, and what it reports of
# itself stays in its log files.  CPU ranks are told to see no GPU by the harness itself.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # any line: also the log of a node that was lost
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Of one that is started here: the harness has its own limit of memory, for each cell; and a busy
# machine takes longer than the 30 seconds that Ray gives it.
OF_OURS = {"RAY_memory_monitor_refresh_ms": "0", "RAY_raylet_start_wait_time_s": "120"}
OBJECTS = 100 * 2**20  # bytes; Ray takes no less than 75 MiB
PATIENCE = 10.0
LONGEST_FOLDER = 30  # Ray appends up to 76 characters to name a socket, which may have 107
LOST = {
    "NodeDiedError": "their node was lost",
    "LocalRayletDiedError": "their node was lost",
    "WorkerCrashedError": "their worker died, or its node was lost",
    "OutOfMemoryError": "Ray ended their worker because the node's memory was short",
}


def installed() -> bool:
    """Whether Ray can be imported."""
    return importlib.util.find_spec("ray") is not None


@contextlib.contextmanager
def at(address: str) -> Iterator[RayTasks]:
    """The tasks of a cluster that runs already.

    Raises:
        BadInput: it does not answer, or not to this Ray.
    """
    ray = _ray()
    check_answers(address)
    with _connected(ray, address=address):
        yield RayTasks(ray)


@contextlib.contextmanager
def started(cpus: int, gpus: int) -> Iterator[RayTasks]:
    """The tasks of a cluster of this machine alone, which ends with the context."""
    folder = _folder()
    guardian = processes.start_watchdog(f"ray-{os.getpid()}-{folder.name}", folder)
    try:
        for name, value in OF_OURS.items():
            os.environ.setdefault(name, value)
        ray = _ray()
        with _connected(
            ray,
            address="local",
            num_cpus=cpus,
            num_gpus=gpus,
            include_dashboard=False,
            object_store_memory=OBJECTS,
            _temp_dir=str(folder),
        ):
            yield RayTasks(ray)
    finally:
        if guardian.stdin is not None:
            guardian.stdin.close()
        guardian.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _ray() -> ModuleType:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    return ray  # type: ignore[no-any-return, unused-ignore]


def _folder() -> Path:
    found = Path(tempfile.mkdtemp(prefix="trl-ray-"))
    if len(str(found)) > LONGEST_FOLDER:
        found.rmdir()
        found = Path(tempfile.mkdtemp(prefix="trl-ray-", dir="/tmp"))
    return found


@contextlib.contextmanager
def _connected(ray: ModuleType, **how: Any) -> Iterator[None]:
    """Connects to a cluster; signals mean afterwards what they meant before."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        try:
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **how)
        except Exception as error:  # Ray raises many kinds, a plain Exception among them
            said = " ".join(str(error).split())[:300]
            raise BadInput(f"Ray cannot be used ({how['address']}): {said}") from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        yield
    finally:
        ray.shutdown()


def check_answers(address: str) -> None:
    """Asks a cluster for its health, in a process: Ray itself ends ours if there is no answer.

    Raises:
        BadInput: nothing answers there, or not Ray.
    """
    if address == "auto":
        return  # Ray looks for one on this machine, and says at once if there is none
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise BadInput(
            f"--address {address}: not an address such as 10.0.0.1:6379; give that of the "
            "cluster's head node, on a machine that is one of its nodes, or 'auto'"
        )
    mend = "start one with 'ray start --head', or leave --address out to use this machine alone"
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"--address {address}: no Ray cluster answers ({why}); {mend}") from None
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(
            asked, timeout=2 * PATIENCE, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"--address {address}: what answers there is no Ray cluster, or is not well; {mend}"
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:300]
        raise BadInput(f"--address {address}: no Ray cluster answers ({last}); {mend}")


class RayTasks:
    """The tasks of the cluster that this process is connected to."""

    def __init__(self, ray: ModuleType) -> None:
        self._ray = ray
        ray.cloudpickle.register_pickle_by_value(ray_relay)
        self._relay = ray.remote(ray_relay.relay)
        self._files: Any = None

    def nodes(self) -> list[Node]:
        """The living nodes."""
        found = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [Node(r.get("CPU", 0.0), r.get("GPU", 0.0), r.get("memory", 0.0)) for r in found]

    def prepare(self, files: dict[str, bytes]) -> None:
        """Puts what all tasks need where each node fetches it once."""
        self._files = self._ray.put(files)

    def start(self, task: bytes, wanted: Request) -> Hashable:
        """Starts a task; gives the stream of what it says."""
        how = self._relay.options(
            num_cpus=wanted.cpus,
            num_gpus=wanted.gpus,
            memory=wanted.memory or None,
            num_returns="streaming",
            max_retries=0,
            scheduling_strategy="SPREAD",
        )
        stream: Hashable = how.remote(self._files, task, TASK)
        return stream

    def next(
        self, running: Collection[Hashable], limit: float
    ) -> tuple[Hashable, str | Lost | Over] | None:
        """What a task says next, whichever is first; None if none says anything in time."""
        if not running:
            return None
        ready, _ = self._ray.wait(list(running), num_returns=1, timeout=limit)
        if not ready:
            return None
        stream = ready[0]
        errors = self._ray.exceptions
        try:
            said: str = self._ray.get(next(stream))
        except StopIteration:
            return stream, Over()
        except errors.TaskCancelledError:
            return stream, Over()
        except errors.RayTaskError as error:
            return stream, Lost(f"{type(error.cause).__name__}: {error.cause}"[:300])
        except errors.RayError as error:
            kind = type(error).__name__
            return stream, Lost(LOST.get(kind, kind))
        return stream, said

    def cancel(self, task: Hashable) -> None:
        """Ends a task."""
        self._ray.cancel(task)
