"""Forks a child that forks another, each in a session of its own, and waits with them for ever."""

import os
import time


def scenario(rank):
    rank.check("started", True, "")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
    (rank.folder / f"there-{os.getpid()}").touch()
    time.sleep(3600)
