"""Rank 1 leaves with status 0 and without a word."""

import os


def scenario(rank):
    rank.check("started", True, "")
    if not rank.main:
        os._exit(0)
