"""What the device of a cell means to its ranks, and what it is called in results."""

from __future__ import annotations

from trl_compat.machine.gpus import CPU, CUDA, SHARED

BACKENDS = {CPU: "gloo", CUDA: "nccl", SHARED: "gloo on a shared GPU"}


def options(device: str) -> list[str]:
    """The options of a command that choose it."""
    return ["--device", CUDA, "--share-gpu"] if device == SHARED else ["--device", device]


def of_ranks(device: str) -> str:
    """The device as ranks and advisories know it."""
    return CUDA if device == SHARED else device


def evidence(device: str, ranks: int) -> str:
    """``cuda-nccl × 2``; how far an outcome was proven by ranks that ran."""
    if device == SHARED:
        return f"cuda-gloo × {ranks}, shared GPU"
    return f"{device}-{BACKENDS[device]} × {ranks}"


def of_backend(backend: str) -> str | None:
    """The device that advisories know, of a cell in the results.

    None for a GPU that is shared: what is said of GPUs, or of gloo, need not hold there.
    """
    known = {BACKENDS[CPU]: CPU, BACKENDS[CUDA]: CUDA}
    return known.get(backend)
