"""Leaves a process that hides: it changes its session, its parent and its whole environment."""

import os


def scenario(rank):
    rank.check("asserted", True, "")
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3):
        os.close(number)
    os.execve("/bin/sleep", ["sleep", rank.condition("seconds")], {})
