"""Raises an error that only speaks of a full disk."""


def scenario(rank):
    rank.check("started", True, "")
    raise ValueError("the manual says: 'OSError: [Errno 28] No space left on device'")
