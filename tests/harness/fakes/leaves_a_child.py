"""Forks a child into a session of its own and ends; the child would live for an hour."""

import os
import time


def scenario(rank):
    rank.check("started", True, "")
    if os.fork() == 0:
        os.setsid()
        time.sleep(3600)
        os._exit(0)
