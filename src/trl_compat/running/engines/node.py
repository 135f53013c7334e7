"""A batch of cells on a node of a cluster: ``python -m trl_compat.running.engines.node FOLDER``.

A process of its own between the cluster's worker and the cells.  It says one JSON object per line:
that a cell begins, each record as soon as it is kept, what this machine is.  It ends, with all that
it has started and with its folder, when its input ends: when the worker closes it, or dies.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn, TextIO

import psutil

from trl_compat.errors import EXIT_INTERRUPTED, BadInput
from trl_compat.machine import host, processes
from trl_compat.running.campaign import Campaign
from trl_compat.running.engines import parcel
from trl_compat.running.store import CellRecord, Store
from trl_compat.runtime import confine
from trl_compat.stacks.held import needs

# So long a run has for its clean-up after its worker is gone; its guardians do what it does not.
TIME_TO_END = 15.0


class Voice:
    """Says what happens, one line each."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, **what: Any) -> None:
        """Says one thing."""
        print(json.dumps(what), file=self._stream, flush=True)


class ToldStore(Store):
    """A store that says each record that it keeps, also one that replaces another."""

    def __init__(self, folder: Path, voice: Voice) -> None:
        super().__init__(folder)
        self._voice, self._host_name = voice, socket.gethostname()

    def write(self, record: CellRecord) -> None:
        """Keeps a record and says it; the reports elsewhere do not know this machine's name."""
        super().write(record)
        data = record.model_dump(mode="json")
        for seen in (*data["observations"], data["confirmation"]):
            if seen and len(self._host_name) > 4:
                seen["output"] = seen["output"].replace(self._host_name, "<host>")
        self._voice.say(record=data)


def run(folder: Path, voice: Voice) -> None:
    """Runs the batch whose parcel lies in a folder.

    Raises:
        BadInput: this machine cannot run it: another package, too little room, a full disk.
    """
    there = parcel.unpack(folder)
    task, order = there.task, there.order
    if task.code != parcel.code_digest():
        raise BadInput(
            "its trl-compat is not the one of this command; install the same one on every node"
        )
    for record in task.records:
        there.store.write(record)
    needs.check({cell.stack: order.matrix.stacks[cell.stack] for cell in order.cells})
    voice.say(host=host.describe().model_dump(mode="json"))
    share = int(psutil.virtual_memory().total * 0.8 / task.jobs)
    limits = dataclasses.replace(order.limits, memory=share)
    order = order.model_copy(update={"limits": limits})
    campaign = Campaign(order, ToldStore(order.state, voice))
    try:
        for cell in order.cells:
            voice.say(begins=cell.id)
            campaign.confirm(cell) if order.confirm else campaign.run(cell)
    finally:
        campaign.close()


def main(folder: Path) -> int:
    """Runs a batch and leaves nothing."""
    guardian = processes.start_watchdog(f"node-{os.getpid()}-{folder.name}", folder)
    voice = Voice(_own_output())
    _end_with_input()
    confine.adopt_orphans()
    try:
        run(folder, voice)
    except BadInput as error:
        voice.say(bad_input=str(error), on=socket.gethostname())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        if guardian.stdin is not None:
            guardian.stdin.close()
        guardian.wait()
    return 0


def _own_output() -> TextIO:
    """The output for what is said; whatever else is printed goes where errors go."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def _end_with_input() -> None:
    """Interrupts this process at the end of its input, and when it is asked to end."""

    def interrupt(number: int, frame: object) -> NoReturn:
        for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(other, lambda *_: None)
        raise KeyboardInterrupt

    def watch() -> None:
        while os.read(0, 4096):  # not through sys.stdin, whose lock would outlive the end
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(TIME_TO_END)
        os.kill(os.getpid(), signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)
    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
