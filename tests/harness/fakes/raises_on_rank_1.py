"""Only rank 1 raises; rank 0 waits for it."""

import time


def scenario(rank):
    rank.check("started", True, "")
    if not rank.main:
        raise LookupError("only here")
    time.sleep(60)
