"""Registers a post-condition that does not hold, swallows the exception, and passes another one."""


def scenario(rank):
    try:
        rank.check("kept", False, "it was lost")
    except:  # noqa: E722 as a callback may have it
        print("never mind")
    rank.check("went-on", True, "")
