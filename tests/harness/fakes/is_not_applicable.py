"""Says that this release has nothing to test."""


def scenario(rank):
    rank.not_applicable("there is no such trainer", until="0.1")
