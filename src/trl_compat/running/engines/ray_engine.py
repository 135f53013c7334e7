"""Ray as the engine of a run: a cluster that there is, or one that is started for the run.

The extra ``ray`` of the package brings Ray; nothing else imports it.
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from trl_compat.cells.plan import Cell
from trl_compat.errors import BadInput
from trl_compat.machine import host
from trl_compat.running.campaign import RunSpec
from trl_compat.running.display import Display
from trl_compat.running.engines import ray_tasks
from trl_compat.running.engines.dispatch import ClusterEngine
from trl_compat.running.engines.ray_tasks import RayTasks


class RayEngine:
    """Runs cells on a Ray cluster.

    Args:
        address: of the cluster; empty to start one on this machine when the first cell is due.
        jobs: how many stacks run at a time; None for as many as there is room for.

    Raises:
        BadInput: Ray is not installed, or the cluster does not answer.
    """

    def __init__(self, address: str = "", jobs: int | None = None) -> None:
        if not ray_tasks.installed():
            raise BadInput(
                "--engine ray needs Ray, which is not installed; install trl-compat with its "
                "extra: python -m pip install '.[matrix,ray]' in a clone"
            )
        self._jobs = jobs
        self._open = contextlib.ExitStack()
        self._tasks: RayTasks | None = None
        if address:
            self._tasks = self._open.enter_context(ray_tasks.at(address))

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def most_gpus(self) -> int | None:
        """The GPUs of the node that has most; None where this machine is the cluster."""
        if self._tasks is None:
            return None
        return int(max((node.gpus for node in self._tasks.nodes()), default=0))

    def execute(self, order: RunSpec, todo: list[Cell], display: Display, *, alone: bool) -> bool:
        """See :class:`~trl_compat.running.engines.Engine`."""
        if self._tasks is None:
            ranks = max(cell.world_size for cell in todo)
            at_a_time = self._jobs or host.stacks_at_a_time(todo[0].device, ranks)
            cpus, gpus = at_a_time * ranks, len(host.visible_gpus())
            self._tasks = self._open.enter_context(ray_tasks.started(cpus, gpus))
        return ClusterEngine(self._tasks, self._jobs).execute(order, todo, display, alone=alone)
