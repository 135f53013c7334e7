"""Asserts one thing and ends."""


def scenario(rank):
    rank.check("something", rank.world_size >= 2, "alone")
