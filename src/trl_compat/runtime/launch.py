"""Starts the ranks of a cell through torch's elastic agent, the engine behind ``torchrun``."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any

from .spec import CellSpec


def run_rank(spec: CellSpec) -> None:
    """Entry of a forked rank.

    Its exit handlers run at the end as those of a rank of ``torchrun`` do; a forked process skips
    them, and with them what goes wrong there.
    """
    from .rank import run

    try:
        run(spec)
    finally:
        atexit._run_exitfuncs()


def launch_forked(spec: CellSpec) -> None:
    """Runs the ranks of a cell, forked from this process by the elastic agent.

    The process must be a throw-away: the agent leaves its store and its threads behind.

    Raises:
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError: a rank failed.
    """
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

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
