"""Rank 1 is killed, as the kernel does when memory runs out."""

import os
import signal
import time


def scenario(rank):
    rank.check("started", True, "")
    if not rank.main:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
