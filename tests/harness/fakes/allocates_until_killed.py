"""Rank 0 takes memory and never gives it back."""

import time


def scenario(rank):
    rank.check("started", True, "")
    held = []
    while rank.main:
        held.append(bytearray(b"x" * 50_000_000))
        time.sleep(0.02)
