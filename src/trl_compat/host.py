"""The machine that cells run on, as reports describe it, without its name."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from trl_compat.execution import isolation, processes

# Bytes to leave for a stack on CPU ranks (its parent holds less than 1 GB, a cell of two plain
# ranks some 1.5 GB), and for a rank on a GPU, whose driver holds its own.
STACK_MEMORY, GPU_RANK_MEMORY = 3 * 2**30, 4 * 2**30


class Host(BaseModel):
    """Operating system, processor, memory, GPUs, and how far the kernel isolates cells.

    Attributes:
        isolation: the active parts of the isolation, see :class:`trl_compat.execution.parts.Part`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    os: str
    cpu: str
    memory: str
    gpus: list[str] = []
    driver: str | None = None
    isolation: list[str] = []


def describe() -> Host:
    """This machine."""
    memory = psutil.virtual_memory().total / 2**30
    names, driver = _nvidia()
    return Host(
        os=f"{platform.system()} {platform.machine()}",
        cpu=f"{_cpu_name()}, {os.cpu_count()} cores",
        memory=f"{memory:.0f} GiB",
        gpus=names,
        driver=driver,
        isolation=sorted(isolation.available()),
    )


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name]
    return [str(number) for number in range(len(_nvidia()[0]))]


def stacks_at_a_time(device: str, ranks: int) -> int:
    """As many stacks as the machine has cores, room in memory, and sets of GPUs for a cell's ranks.

    Args:
        device: ``cpu`` or ``cuda``.
        ranks: of the largest cell.
    """
    with_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if with_affinity else os.cpu_count() or 1
    needed = GPU_RANK_MEMORY * ranks if device == "cuda" else STACK_MEMORY
    places = [cores, psutil.virtual_memory().available // needed]
    if device == "cuda":
        places.append(len(visible_gpus()) // ranks)
    return max(1, min(places))


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match[1].strip() if match else platform.processor() or "unknown"


def _nvidia() -> tuple[list[str], str | None]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = processes.run(query)
    except OSError:
        return [], None
    rows = [row.split(", ") for row in done.stdout.splitlines() if done.returncode == 0]
    return [row[0] for row in rows], rows[0][1] if rows and len(rows[0]) > 1 else None
