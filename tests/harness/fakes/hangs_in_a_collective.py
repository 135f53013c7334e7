"""Rank 0 waits in a barrier that rank 1 never enters; rank 1 sleeps."""

import time


def scenario(rank):
    import torch.distributed as dist

    rank.check("started", True, "")
    dist.init_process_group("gloo")
    if rank.main:
        dist.barrier()
    time.sleep(3600)
