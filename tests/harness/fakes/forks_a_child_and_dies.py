"""Rank 1 forks a child into a session of its own, which forks another, and kills itself."""

import os
import signal
import time


def scenario(rank):
    rank.check("started", True, "")
    if rank.main:
        return
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
        time.sleep(3600)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
