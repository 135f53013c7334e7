"""Rank 0 swallows a post-condition that does not hold; later rank 1 raises something else."""

import contextlib

import torch.distributed as dist


def scenario(rank):
    dist.init_process_group("gloo")
    if rank.main:
        with contextlib.suppress(AssertionError):
            rank.check("kept", False, "it was lost")
    dist.barrier()
    if not rank.main:
        raise LookupError("later")
