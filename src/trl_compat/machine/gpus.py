"""The GPUs of this machine, which of them have room, and which a command takes.

A command decides once, and says so by CUDA_VISIBLE_DEVICES: how much memory is free is another
number as soon as its own cells run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from trl_compat.errors import BadInput
from trl_compat.machine import commands

CPU, CUDA = "cpu", "cuda"
# Several ranks on one GPU, over gloo: NCCL refuses two ranks of a group on one GPU.
SHARED = "cuda-shared"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Bytes that a rank needs: the driver's own, and DeepSpeed's buffers of half a billion elements.
NEEDED = 4 * 2**30
FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.free")


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: as CUDA_VISIBLE_DEVICES names it; ``uuid`` is its other name.
        total, free: bytes of its memory; None if nothing tells.
    """

    name: str
    uuid: str = ""
    model: str = ""
    driver: str = ""
    total: int | None = None
    free: int | None = None

    def has_room(self, ranks: int) -> bool:
        """Whether so many ranks fit beside what fills it now."""
        return self.free is None or self.free >= ranks * NEEDED

    def sentence(self, ranks: int) -> str:
        """How full it is, in words."""
        assert self.free is not None
        of = f" of {self.total / 2**30:.0f}" if self.total is not None else ""
        each = f"{ranks} ranks need" if ranks > 1 else "a rank needs"
        return (
            f"GPU {self.name}{f' ({self.model})' if self.model else ''} has {self.free / 2**30:.1f}"
            f"{of} GiB free and {each} {ranks * NEEDED // 2**30}"
        )


def installed() -> list[Gpu]:
    """All that the driver of NVIDIA knows; nothing without one."""
    query = [f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = commands.run(["nvidia-smi", *query])
    except OSError:
        return []
    rows = [row.split(", ") for row in done.stdout.splitlines() if done.returncode == 0]
    return [
        Gpu(index, uuid, model, driver, _mebibytes(total), _mebibytes(free))
        for index, uuid, model, driver, total, free in (r for r in rows if len(r) == len(FIELDS))
    ]


def _mebibytes(text: str) -> int | None:
    return int(text) * 2**20 if text.strip().isdecimal() else None


def visible() -> list[Gpu]:
    """Those that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    found = installed()
    chosen = os.environ.get(VISIBLE)
    if chosen is None:
        return found
    return [_named(name.strip(), found) for name in chosen.split(",") if name.strip()]


def _named(name: str, found: Sequence[Gpu]) -> Gpu:
    """The GPU of a name; of one that the driver does not tell of, a part of a GPU, say, the name.

    The driver takes the beginning of a UUID for the whole.
    """
    for gpu in found:
        if name == gpu.name or (name.startswith("GPU-") and gpu.uuid.startswith(name)):
            return Gpu(name, gpu.uuid, gpu.model, gpu.driver, gpu.total, gpu.free)
    return Gpu(name)


def choose(
    wanted: str, ranks: int, found: Sequence[Gpu], *, share: bool = False, has: str
) -> tuple[str, tuple[str, ...]]:
    """The device of a command's cells, and the GPUs that it takes for them.

    Args:
        wanted: ``auto``, ``cpu`` or ``cuda``.
        ranks: of the largest cell.
        found: the GPUs that can be used.
        share: whether the ranks of a cell share one.
        has: says of whom they are, ``this machine has``.

    Raises:
        BadInput: too few GPUs for what is wanted, or somebody else fills them.
    """
    if wanted == CPU:
        if share:
            raise BadInput("--share-gpu: --device cpu uses no GPU; use --device cuda")
        return CPU, ()
    needed, on_each = (1, ranks) if share else (ranks, 1)
    roomy = [gpu for gpu in found if gpu.has_room(on_each)]
    if len(roomy) >= needed:
        return SHARED if share else CUDA, tuple(gpu.name for gpu in roomy)
    if len(found) >= needed:
        full = next(gpu for gpu in found if gpu not in roomy)
        raise BadInput(
            f"{full.sentence(on_each)}: something else uses it; wait for it, name other GPUs in "
            f"{VISIBLE}, or use --device cpu"
        )
    if share:
        raise BadInput(f"--share-gpu: a GPU is needed, and {has} none")
    if wanted == CUDA:
        instead = "; one can be shared: --share-gpu" if found else ""
        raise BadInput(
            f"--device cuda: {ranks} ranks need {ranks} GPUs, and {has} {len(found)}{instead}"
        )
    return CPU, ()


def take(names: Sequence[str]) -> None:
    """Leaves this process, and what it starts, these GPUs only."""
    os.environ[VISIBLE] = ",".join(names)


def sets(names: Sequence[str], device: str, ranks: int) -> list[tuple[str, ...]]:
    """GPUs shared out: for each cell that runs at the same time those that are its alone."""
    size = 1 if device == SHARED else max(1, ranks)
    return [tuple(names[n : n + size]) for n in range(0, len(names) - size + 1, size)]
