"""Which GPUs the cells of a worker process have, and how many workers there can be."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trl_compat.cells.plan import Cell
from trl_compat.errors import BadInput, HarnessError
from trl_compat.machine import gpus
from trl_compat.machine.host import visible_gpus

WORKER = "PYTEST_XDIST_WORKER"


def workers(cells: Sequence[Cell], jobs: int) -> int:
    """How many of the workers that are wanted can run cells at the same time.

    Raises:
        BadInput: there are too few GPUs for the largest cell.
    """
    device, ranks = _largest(cells)
    if device == gpus.CPU:
        return jobs
    names = visible_gpus()
    if not (places := len(gpus.sets(names, device, ranks))):
        raise BadInput(
            f"cells of {ranks} ranks are selected, which need {ranks} GPUs, and {len(names)} can "
            "be used; select others with --world-size, or use --share-gpu or --device cpu"
        )
    return min(jobs, places)


def gpu_share(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The GPUs of this worker process: as many as its largest cell needs, and no other's.

    Raises:
        HarnessError: none is left for it; its cells would run on CPU ranks and say GPUs.
    """
    device, ranks = _largest(cells)
    if device == gpus.CPU:
        return ()
    worker = int(os.environ.get(WORKER, "gw0").removeprefix("gw"))
    places = gpus.sets(visible_gpus(), device, ranks)
    # A worker that died is replaced by one with a number of its own.
    if not places:
        raise HarnessError(f"no GPUs are left for cells of {ranks} ranks; were they taken away?")
    return places[worker % len(places)]


def _largest(cells: Sequence[Cell]) -> tuple[str, int]:
    """The device of the cells of a run, which have the same, and the ranks of the largest."""
    device = next((cell.device for cell in cells if cell.device != gpus.CPU), gpus.CPU)
    return device, max((cell.world_size for cell in cells), default=0)
