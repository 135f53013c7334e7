"""Swallows a post-condition that does not hold, and then finds nothing to test."""


def scenario(rank):
    try:
        rank.check("kept", False, "it was lost")
    except AssertionError:
        rank.not_applicable("there is no such trainer")
