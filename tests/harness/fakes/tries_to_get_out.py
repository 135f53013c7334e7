"""Tries the network, by address and by name, and to write where it should not."""

import os
import socket
from pathlib import Path


def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"


def scenario(rank):
    import torch

    package = Path(torch.__file__).parent
    outside = package.parents[4]
    rank.check("tried", True, "")
    rank.observe("address", attempt(lambda: socket.create_connection(("1.1.1.1", 443), 5)))
    rank.observe("name", attempt(lambda: socket.create_connection(("pypi.org", 443), 5)))
    rank.observe("stack", attempt(lambda: (package / "planted.py").write_text("")))
    rank.observe("beside", attempt(lambda: (outside / "planted").write_text("")))
    rank.observe("module", attempt(lambda: os.unlink(rank.spec.reproduction)))
    rank.observe("own", attempt(lambda: (rank.folder / "own").write_text("")))
