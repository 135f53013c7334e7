"""What Ray runs on a node: it starts the process that runs the cells, and hands on what that says.

Ray sends this module by value, so that it works, and can say what is wrong, on a node that has
another package or none.  Standard library only; nothing else of the package is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

MODULE = "trl_compat.running.engines.node"
# Ray interrupts a task between two of these, in seconds.
LOOK_EVERY = 0.5
TIME_TO_END = 20.0


def relay(files: Mapping[str, bytes], task: bytes, task_name: str) -> Iterator[str]:
    """Runs a batch in a process of its own; gives the lines that it says.

    The last may be one of ours: that the process has failed, with its last words.

    Args:
        files: of the parcel, the same for every batch; ``task`` is the batch's own.
        task_name: the name of the latter.
    """
    folder = Path(tempfile.mkdtemp(prefix="trl-compat-node-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        for name, content in {**files, task_name: task}.items():
            (folder / name).write_bytes(content)
        with (folder / "errors.log").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(os.environ),
                start_new_session=True,
            )
        log = (folder / "errors.log").open("rb")  # the process removes the folder at its end
        with log:
            yield from lines(process)
            status = process.wait()
            if status:
                said = log.read().decode("utf-8", "replace").strip().splitlines()
                why = said[-1][:500] if said else f"its process ended with {status}"
                yield json.dumps({"failed": why, "on": socket.gethostname()})
    finally:
        if process is not None:
            end(process)
        shutil.rmtree(folder, ignore_errors=True)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker of Ray without those that Ray has added."""
    added = ("PYTHONBREAKPOINT", "OMP_NUM_THREADS")
    return {n: v for n, v in environ.items() if not n.startswith("RAY_") and n not in added}


def lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The whole lines that a process says, until it ends."""
    assert process.stdout is not None
    source, unread = process.stdout.fileno(), b""
    while True:
        readable, _, _ = select.select([source], [], [], LOOK_EVERY)
        if not readable:
            continue
        chunk = os.read(source, 65536)
        if not chunk:
            return
        *whole, unread = (unread + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process: asks it to clean up, and kills it if it does not in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(TIME_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
