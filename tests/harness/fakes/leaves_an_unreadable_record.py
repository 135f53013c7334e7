"""Rank 1 leaves half a record, and a log that is no text."""

import os


def scenario(rank):
    rank.check("started", True, "")
    if rank.main:
        return
    os.write(1, bytes(range(256)) * 100)
    (rank.folder / "rank1.json").write_text('{"status": "fini')
    os._exit(0)
