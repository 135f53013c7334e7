"""Starts a rank that shares its GPU with the other ranks of its cell, in place of ``rank_main``.

Copied into the bundle of such cells, and run inside the cell.  NCCL refuses two ranks of a group on
one GPU, so the process groups use gloo; each rank calls itself the only one of its node, so that
whoever derives a device from the local rank gets the GPU that is there.  Both are stand-ins, and
so are those of CPU ranks that mend what gloo does otherwise than NCCL.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# Which of the stand-ins for CPU ranks are for gloo, and not for the CPU.
FOR_GLOO = (
    "wait-for-every-all-gather-1",
    "gathers-without-grad-1",
    "no-grad-for-inference-mode-1",
)
# Why the others are needed, for the reports.
REASONS = {
    "gloo-on-a-shared-gpu-1": (
        "Several ranks share one GPU, and NCCL refuses two ranks of a group on one GPU: every "
        "process group is made with gloo, whatever was asked for."
    ),
    "a-node-for-each-rank-1": (
        "Several ranks share one GPU: each calls itself local rank 0 of 1, as on nodes with one "
        "GPU each, so that the device that is derived from the local rank is there."
    ),
}


def share_gpu() -> None:
    """Prepares this process; to be called before torch makes a process group."""
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    import torch.distributed

    make = torch.distributed.init_process_group

    def make_with_gloo(*args: Any, **given: Any) -> Any:
        given.pop("device_id", None)  # binds the group to NCCL's communicator of a GPU
        given["backend"] = "gloo"
        for name, value in zip(("init_method", "timeout"), args[1:]):  # noqa: B905 (Python 3.9)
            given[name] = value
        return make(**given)

    torch.distributed.init_process_group = make_with_gloo
    # Where it was taken from, too: accelerate and DeepSpeed ask the package, torch the module.
    torch.distributed.distributed_c10d.init_process_group = make_with_gloo


def install(rank: Any) -> None:
    """Installs the stand-ins of a rank that shares its GPU."""
    from trl_compat.runtime import stand_ins

    for name in REASONS:
        rank.use_stand_in(name)
    for stand_in in stand_ins.AUTOMATIC:
        wanted = stand_in.name in FOR_GLOO
        if wanted and stand_in.name != rank.condition("without_stand_in") and stand_in.needed():
            stand_in.install()
            rank.use_stand_in(stand_in.name)


def main(spec_file: str) -> None:
    """What ``rank_main`` does, on a GPU that is shared."""
    from trl_compat.runtime import rank, stand_ins
    from trl_compat.runtime.spec import CellSpec

    share_gpu()
    stand_ins.install = install
    rank.run(CellSpec.read(Path(spec_file)))


if __name__ == "__main__":
    main(sys.argv[1])
