"""Rank 1 skips one of two collectives and then waits in the next, as a branch on the rank does."""


def scenario(rank):
    import torch
    import torch.distributed as dist

    rank.check("started", True, "")
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    if rank.main:
        dist.broadcast(torch.ones(1), src=1)
    dist.barrier()
