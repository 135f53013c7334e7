"""A process of a node that runs no cells: it says some lines, then waits for the end of its input.

Run as ``python -m tests.harness.fake_node FOLDER``; ``task.json`` there is the list of the lines.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from trl_compat.machine import processes

if __name__ == "__main__":
    processes.start_watchdog(f"fake-node-{os.getpid()}", Path(sys.argv[1]))
    for line in json.loads((Path(sys.argv[1]) / "task.json").read_bytes()):
        print(line, flush=True)
    while os.read(0, 4096):
        pass
