"""Fails in ranks that are forked from a parent with the imports done, and only there."""

import sys


def scenario(rank):
    forked = "trl_compat.runtime.preload" in sys.modules
    rank.check("launched", not forked, "forked")
