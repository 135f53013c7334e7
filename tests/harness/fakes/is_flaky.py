"""Fails every other time in the same scratch folder."""


def scenario(rank):
    memory = rank.folder.parent / f"seen-{rank.rank}"
    seen = memory.exists()
    memory.unlink() if seen else memory.touch()
    rank.check("seen-before", seen, "never seen before")
