"""Both ranks raise, rank 1 first and something else."""

import time


def scenario(rank):
    if rank.main:
        time.sleep(1)
        raise ValueError("late")
    raise LookupError("first")
