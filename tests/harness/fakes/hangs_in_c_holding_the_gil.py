"""Rank 1 waits for itself in C code that holds the interpreter's lock; rank 0 waits for rank 1."""

import ctypes


def scenario(rank):
    import torch.distributed as dist

    rank.check("started", True, "")
    dist.init_process_group("gloo")
    dist.barrier()
    if rank.main:
        dist.barrier()
        return
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)
