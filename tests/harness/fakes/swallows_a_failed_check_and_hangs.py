"""Rank 0 swallows a post-condition that does not hold and waits for rank 1, which never comes."""

import contextlib
import time

import torch.distributed as dist


def scenario(rank):
    dist.init_process_group("gloo")
    if rank.main:
        with contextlib.suppress(AssertionError):
            rank.check("kept", False, "it was lost")
        dist.barrier()
    time.sleep(3600)
