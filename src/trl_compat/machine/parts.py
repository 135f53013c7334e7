"""The parts of the isolation of cells, each with a sentence for machines that lack it."""

from __future__ import annotations

import enum
from collections.abc import Collection


class Part(enum.StrEnum):
    """One thing that is contained, with a sentence for where it is not."""

    otherwise: str

    def __new__(cls, value: str, otherwise: str) -> Part:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.otherwise = otherwise
        return member

    NETWORK = "network", "cells can reach the network; only Python code is blocked"
    PROCESSES = (
        "processes",
        "cells see the machine's other processes, and a process that hides may outlive its cell",
    )
    READING = "reading", "cells can read all files that the user can read"
    WRITING = "writing", "cells can write, remove and change all files that the user can"
    MODES = "modes", "cells can change modes, owners and times of the user's files"
    SOCKETS = "sockets", "cells can connect to unix sockets of the machine, such as Docker's"
    CELLS = "cells", "a cell can write to what later cells of the same stack read"


def missing(parts: Collection[str]) -> list[str]:
    """A sentence for each thing that is not contained."""
    return [part.otherwise for part in Part if part not in parts]
