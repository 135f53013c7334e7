"""Says what an earlier cell left for it, and leaves the same: files in its home, shared memory."""

import os
import tempfile
from pathlib import Path


def scenario(rank):
    rank.check("looked", True, "")
    places = (
        Path.home(),
        Path("/dev/shm"),
        Path(tempfile.gettempdir()),
        Path(os.environ["TMPDIR"]),
    )
    rank.observe("found", sorted({str(path) for place in places for path in place.glob("trace-*")}))
    if rank.world_size > 1:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()  # every rank has looked
    for place in places:
        (place / f"trace-{rank.rank}").touch()
