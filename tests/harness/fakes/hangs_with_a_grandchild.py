"""Waits for ever with a child and a grandchild, each in a session of its own.

The grandchild also gives up its whole environment.
"""

import os
import time


def scenario(rank):
    rank.check("started", True, "")
    grandchild = False
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            grandchild = True
    (rank.folder / f"there-{os.getpid()}").touch()
    if grandchild:
        os.execve("/bin/sleep", ["sleep", "3600"], {})
    time.sleep(3600)
