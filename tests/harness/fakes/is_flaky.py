"""Fails every other time in the same stack: folders of earlier runs are still beside its own."""


def scenario(rank):
    runs = len(list(rank.folder.parent.glob("is-flaky-*")))
    rank.check("seen-before", runs % 2 == 0, "never seen before")
