"""Prints 200 MB and ends well."""

import sys


def scenario(rank):
    line = "a line that nobody will ever read\n" * 30_000
    for _ in range(200):
        sys.stdout.write(line)
        sys.stdout.flush()
    print("the last words")
    rank.check("printed", True, "")
