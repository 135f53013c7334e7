"""Starts the ranks of a cell through torch's elastic agent, the engine behind ``torchrun``."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path
from typing import Any

from .spec import CellSpec


def run_rank(spec: CellSpec) -> None:
    """Entry of a forked rank.

    At the end it does what the interpreter does when a rank of ``torchrun`` ends, and a forked
    process leaves out: it waits for threads and runs exit handlers, with whatever goes wrong there.
    The agent then keeps it until every rank has ended, so it says that it has nothing left to do.
    """
    from .rank import run

    try:
        run(spec)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        Path(spec.folder, f"rank{os.environ.get('RANK', '0')}.left").touch()


def launch_forked(spec: CellSpec) -> None:
    """Runs the ranks of a cell, forked from this process by the elastic agent.

    The process must be a throw-away: the agent leaves its store and its threads behind.

    Raises:
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError: a rank failed.
    """
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _come_at_once()
    options: dict[str, Any] = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": spec.world_size,
        "run_id": f"cell-{os.getpid()}",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "start_method": "fork",
        "monitor_interval": 0.05,
        "max_restarts": 0,
    }
    elastic_launch(LaunchConfig(**options), run_rank)(spec)


def _come_at_once() -> None:
    """Leaves out the rendezvous' random wait of up to 0.3 s, which is there to spread many nodes.

    torch 2.2 to 2.15 have it under this name; where it is gone, there is nothing to leave out.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    wait = getattr(dynamic_rendezvous, "_delay", None)

    def wait_unless_random(seconds: Any) -> None:
        if wait is not None and not isinstance(seconds, tuple):
            wait(seconds)

    dynamic_rendezvous._delay = wait_unless_random


def torchrun_command(python: str, bundle: Path, spec_file: Path, world_size: int) -> list[str]:
    """The plain ``torchrun`` that runs the same cell in fresh processes."""
    return [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={world_size}",
        str(bundle / "rank_main.py"),
        str(spec_file),
    ]
