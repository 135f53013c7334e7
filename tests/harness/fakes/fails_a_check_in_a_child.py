"""A child of rank 1, as a data loader has them, registers what does not hold and dies of it."""

import os


def scenario(rank):
    rank.check("started", True, "")
    if rank.main:
        return
    child = os.fork()
    if child == 0:
        try:
            rank.check("kept", False, "it was lost")
        finally:
            os._exit(1)
    os.waitpid(child, 0)
