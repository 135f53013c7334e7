"""Both ranks finish; rank 1 leaves a thread that never ends, so that its process never does."""

import threading


def scenario(rank):
    rank.check("worked", True, "")
    if not rank.main:
        threading.Thread(target=threading.Event().wait).start()
