"""Rank 1 skips one of two collectives and then waits in the next, as a branch on the rank does.

The skipped one has a group of its own: in one group, gloo may take the message of the one
collective for that of the other, and raises instead of waiting.
"""


def scenario(rank):
    import torch
    import torch.distributed as dist

    rank.check("started", True, "")
    dist.init_process_group("gloo")
    other = dist.new_group(backend="gloo")
    if rank.main:
        dist.broadcast(torch.ones(1), src=1, group=other)
    dist.barrier()
