"""Cells as tasks of a cluster: what is started, what comes back, what is started once more.

What a cluster is, is said by :class:`Tasks`; :mod:`.ray_tasks` is the real one.  Each record is on
disk here as soon as it arrives.  A batch whose node or worker is lost goes elsewhere with the cells
that have no record yet; a cell that is running at several losses is given up, with a harness error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from trl_compat import results
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.errors import BadInput
from trl_compat.machine.description import Host
from trl_compat.results import RunResult
from trl_compat.running import runs
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.display import Display
from trl_compat.running.engines import parcel
from trl_compat.running.engines.batches import (
    MOST_LOSSES,
    Losses,
    Node,
    Progress,
    Request,
    batches,
    control_of,
    request,
)
from trl_compat.running.execution.runner import not_started
from trl_compat.running.store import CellRecord
from trl_compat.stacks.environments import EnvironmentFailed, locks
from trl_compat.stacks.matrix import Stack

# In seconds: between two looks at the nodes, and for a task that is cancelled to say anything.
WAIT, LIMIT_OF_ENDING = 1.0, 30.0
NODE_UNFIT = "node {} of the Ray cluster cannot run cells"
KEPT = "the results so far are kept"


@dataclass(frozen=True)
class Lost:
    """A task came to no end of its own; why, as a part of a sentence."""

    why: str


@dataclass(frozen=True)
class Over:
    """A task has come to its end, or was cancelled."""


class Tasks(Protocol):
    """Tasks of a cluster."""

    def nodes(self) -> list[Node]:
        """The living nodes."""

    def prepare(self, files: dict[str, bytes]) -> None:
        """Takes what is the same for the tasks that are started from now on."""

    def start(self, task: bytes, wanted: Request) -> Hashable:
        """Starts a task; gives what it is called by."""

    def next(
        self, running: Collection[Hashable], limit: float
    ) -> tuple[Hashable, str | Lost | Over] | None:
        """What a task says next, whichever is first; None if none says anything in time."""

    def cancel(self, task: Hashable) -> None:
        """Ends a task, at once if it has not begun; what it has said can still be asked for."""


@dataclass
class _Sent:
    """A batch that is under way.

    Attributes:
        run: the id of the run whose host is the machine of the batch.
    """

    progress: Progress
    wanted: Request
    begun: bool = False
    run: str = ""


class ClusterEngine:
    """Runs cells as tasks of a cluster.

    Args:
        jobs: how many batches run at a time; None for as many as the cluster has room for.
    """

    def __init__(self, tasks: Tasks, jobs: int | None = None) -> None:
        self._tasks, self._jobs = tasks, jobs

    def execute(self, order: RunSpec, todo: list[Cell], display: Display, *, alone: bool) -> bool:
        """See :class:`~trl_compat.running.engines.Engine`."""
        run = Dispatch(order, todo, self._tasks, display, 1 if alone else self._jobs)
        try:
            run.to_the_end()
        except KeyboardInterrupt:
            run.end()
            return True
        except BaseException:
            run.end()
            raise
        run.keep_hosts()
        return False


class Dispatch:
    """One selection of cells on its way through a cluster."""

    def __init__(
        self, order: RunSpec, todo: list[Cell], tasks: Tasks, display: Display, jobs: int | None
    ) -> None:
        self.order, self.tasks, self.display, self.jobs = order, tasks, display, jobs
        self.campaign = Campaign(order)
        self._code = parcel.code_digest()
        self._losses = Losses()
        self._sent: dict[Hashable, _Sent] = {}
        self._hosts: dict[str, RunResult] = {}
        self._this = runs.read(order.state, order.run)
        files = parcel.files_of(order.project)
        text = parcel.order_text(order, todo)
        tasks.prepare({parcel.FILES: files, parcel.ORDER: text.encode()})
        places = request(todo, tasks.nodes()).places(tasks.nodes())
        # Confirmed cells are not shared out: they run one after the other anyway.
        self._waiting = batches(todo, 1 if order.confirm else places)
        self._pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1))
        self._locks: dict[str, Future[str]] = {
            name: self._pool.submit(_lock_of, order.matrix.stacks[name])
            for name in dict.fromkeys(cell.stack for batch in self._waiting for cell in batch)
        }

    def to_the_end(self) -> None:
        """Runs all cells.

        Raises:
            BadInput: a node says so, or no node is left that has what a batch needs.
        """
        try:
            while self._waiting or self._sent:
                self._start_what_is_ready()
                if not self._sent:
                    due = {self._locks[batch[0].stack] for batch in self._waiting}
                    wait(due, WAIT, FIRST_COMPLETED)
                    continue
                said = self.tasks.next(self._sent.keys(), WAIT)
                if said is None:
                    self._take_back_what_fits_nowhere()
                    continue
                task, what = said
                match what:
                    case str():
                        self._hear(self._sent[task], json.loads(what))
                    case Lost(why):
                        self._lose(self._sent.pop(task).progress, why)
                    case Over():
                        self._over(self._sent.pop(task).progress)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def end(self) -> None:
        """Cancels all tasks, and waits until each has ended; what they still say is kept."""
        self._waiting = []
        for task in self._sent:
            self.tasks.cancel(task)
        while self._sent and (said := self.tasks.next(self._sent.keys(), LIMIT_OF_ENDING)):
            task, what = said
            if isinstance(what, str):
                message = json.loads(what)
                if "record" in message or "host" in message:
                    self._hear(self._sent[task], message)
            else:
                del self._sent[task]
        self.keep_hosts()

    def keep_hosts(self) -> None:
        """Keeps the runs of the machines on which cells ran, as ended."""
        for run in self._hosts.values():
            runs.keep(self.order.state, run.model_copy(update={"ended_at": results.now()}))

    def _start_what_is_ready(self) -> None:
        """Starts the batches whose stacks are resolved, as many as may run at a time."""
        for batch in list(self._waiting):
            if self.jobs is not None and len(self._sent) >= self.jobs:
                return
            lock = self._locks[batch[0].stack]
            if not lock.done():
                continue
            self._waiting.remove(batch)
            try:
                self._start(batch, lock.result())
            except EnvironmentFailed as error:
                for cell in batch:
                    self.display.begins(cell.id)
                    self.campaign.not_started(cell, error)
                    self.display.ends(cell.id)

    def _start(self, batch: list[Cell], lock: str) -> None:
        nodes = self.tasks.nodes()
        wanted = request(batch, nodes)
        if not any(wanted.fits(node) for node in nodes):
            what = f"{wanted.gpus} GPUs" if wanted.gpus else "CPUs"
            raise BadInput(
                f"no node of the Ray cluster has {what}, which the cells of {batch[0].stack} "
                f"need; {KEPT}"
            )
        task = parcel.Task(
            code=self._code,
            cells=batch,
            lock=lock,
            records=self._known_of(batch),
            jobs=max(1, *(wanted.at_a_time(node) for node in nodes)),
        )
        handle = self.tasks.start(task.model_dump_json(by_alias=True).encode(), wanted)
        self._sent[handle] = _Sent(Progress(batch), wanted)

    def _known_of(self, batch: Sequence[Cell]) -> list[CellRecord]:
        """The records that the cells of a batch are judged by there."""
        controls = (control_of(cell, self.order.cells) for cell in batch)
        wanted = {c.id for c in controls if c} - {cell.id for cell in batch}
        if self.order.confirm:
            wanted |= {cell.id for cell in batch}
        found = (self.campaign.store.read(name) for name in sorted(wanted))
        return [record for record in found if record is not None]

    def _hear(self, sent: _Sent, message: dict[str, Any]) -> None:
        """Takes in what a batch says of itself."""
        sent.begun = True
        match message:
            case {"begins": str(name)}:
                sent.progress.begins(name)
                self.display.begins(name)
            case {"record": data}:
                self._keep(sent, CellRecord.model_validate(data))
            case {"host": data}:
                sent.run = self._run_on(Host.model_validate(data))
            case {"bad_input": why, "on": name}:
                raise BadInput(f"{NODE_UNFIT.format(name)}: {why}; {KEPT}")
            case {"failed": str(why), "on": name} if "No module named 'trl_compat" in why:
                raise BadInput(
                    f"{NODE_UNFIT.format(name)}: trl-compat is not installed for the Python of its "
                    f"Ray; install the same one on every node; {KEPT}"
                )
            case {"failed": why}:
                sent.progress.failed = why

    def _keep(self, sent: _Sent, record: CellRecord) -> None:
        if sent.run and record.run == self.order.run and not self.order.confirm:
            record = record.model_copy(update={"run": sent.run})
        self.campaign.store.write(record)
        if sent.progress.ended(record.cell_id):
            self.display.ends(record.cell_id)

    def _run_on(self, host: Host) -> str:
        """The id of the run on a machine: this run's, if it is the same machine as this one."""
        if self._this is None or host == self._this.host:
            return self.order.run
        key = host.model_dump_json()
        if key not in self._hosts:
            name = f"{self._this.id}-{'c' if self.order.confirm else 'n'}{len(self._hosts) + 1}"
            run = self._this.model_copy(update={"id": name, "host": host})
            runs.keep(self.order.state, run)
            self._hosts[key] = run
        return self._hosts[key].id

    def _over(self, progress: Progress) -> None:
        """A batch has ended; not all of its cells need have a record."""
        if progress.failed or progress.left:
            self._lose(progress, progress.failed or "its process ended without a word")

    def _lose(self, progress: Progress, why: str) -> None:
        """Runs what is left of a batch elsewhere."""
        again, given_up = self._losses.after(progress)
        if given_up is not None:
            why_not = f"its node or worker was lost {MOST_LOSSES} times while it ran ({why})"
            seen = not_started(
                Outcome.HARNESS_ERROR,
                f"{why_not}; run it again by its own command",
                world_size=given_up.world_size,
            )
            self.display.begins(given_up.id)
            self.campaign.store.write(CellRecord.of_nothing(seen, given_up, self.order.run))
            self.display.ends(given_up.id)
        if again:
            self.display.say(f"{len(again)} cells of {again[0].stack} run elsewhere: {why}")
            self._waiting.insert(0, again)

    def _take_back_what_fits_nowhere(self) -> None:
        """Asks for less, where nodes have gone that had what a waiting batch asks for."""
        nodes = self.tasks.nodes()
        for task, sent in list(self._sent.items()):
            if not sent.begun and not any(sent.wanted.fits(node) for node in nodes):
                self.tasks.cancel(task)
                del self._sent[task]
                self._waiting.insert(0, list(sent.progress.cells))


def _lock_of(stack: Stack) -> str:
    """The text of a stack's lock, resolved here so that every node gets the same."""
    return locks.resolve(stack, locks.interpreter_of(stack)).text
