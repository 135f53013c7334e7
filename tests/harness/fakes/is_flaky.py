"""Fails the first time that a folder sees it, and never again."""

import os


def scenario(rank):
    memory = rank.folder.parent / f"flaky-{rank.rank}"
    rank.check("second-time", memory.exists() or memory.write_text("seen") == 0, "the first time")
    os.unlink(memory)
