"""Reports what it can see of the machine: variables, modules, network."""

import os
import socket
import sys


def scenario(rank):
    rank.check("looked", True, "")
    rank.observe("variables", sorted(os.environ))
    rank.observe("values", " ".join(os.environ.values()))
    rank.observe("path", [p for p in sys.path if p])
    rank.observe(
        "harness",
        sorted({"pytest", "xdist", "click", "trl_compat.stacks.matrix"} & set(sys.modules)),
    )
    rank.observe("home", os.path.expanduser("~"))
    rank.observe("host", socket.gethostname())
