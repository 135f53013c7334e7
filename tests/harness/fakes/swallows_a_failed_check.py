"""Registers a post-condition that does not hold, swallows the exception, and passes another one."""


def scenario(rank):
    try:
        rank.check("kept", False, "it was lost")
    except BaseException:
        pass
    rank.check("went-on", True, "")
