"""Rank 1 leaves a link, and pipes that nobody writes to, where the harness reads files."""

import os


def scenario(rank):
    rank.check("started", True, "")
    if rank.main:
        return
    for name in ("rank1.json", "rank1.failed", "rank1.pid", "rank1.left", "launcher.log"):
        (rank.folder / name).unlink(missing_ok=True)
        os.mkfifo(rank.folder / name)
    (rank.folder / "told").write_text("what a link leads to")
    (rank.folder / "rank1.log").unlink()
    (rank.folder / "rank1.log").symlink_to(rank.folder / "told")
    os._exit(0)
