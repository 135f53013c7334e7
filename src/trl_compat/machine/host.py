"""This machine: what it is, and how many stacks and cells it has room for."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import psutil

from trl_compat.machine import gpus, isolation
from trl_compat.machine.description import Host

# Bytes to leave for a stack on CPU ranks (its parent holds less than 1 GB, a cell of two plain
# ranks some 1.5 GB), and for a rank on a GPU, whose driver holds its own.
STACK_MEMORY, GPU_RANK_MEMORY = 3 * 2**30, 4 * 2**30


def describe() -> Host:
    """This machine."""
    memory = psutil.virtual_memory().total / 2**30
    found = gpus.installed()
    return Host(
        os=f"{platform.system()} {platform.machine()}",
        cpu=f"{_cpu_name()}, {os.cpu_count()} cores",
        memory=f"{memory:.0f} GiB",
        gpus=[gpu.model for gpu in found],
        driver=found[0].driver if found else None,
        isolation=sorted(isolation.available()),
    )


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    return [gpu.name for gpu in gpus.visible()]


def stacks_at_a_time(device: str, ranks: int) -> int:
    """As many stacks as the machine has cores, room in memory, and sets of GPUs for a cell's ranks.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda-shared``.
        ranks: of the largest cell.
    """
    with_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if with_affinity else os.cpu_count() or 1
    needed = STACK_MEMORY if device == gpus.CPU else GPU_RANK_MEMORY * ranks
    places = [cores, psutil.virtual_memory().available // needed]
    if device != gpus.CPU:
        places.append(len(gpus.sets(visible_gpus(), device, ranks)))
    return max(1, min(places))


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match[1].strip() if match else platform.processor() or "unknown"
