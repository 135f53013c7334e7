"""A process that outlives a killed harness just long enough to clean up after it.

The kernel kills a cell's processes with their parents (PR_SET_PDEATHSIG), but not the processes
that a rank has forked itself.  The guardian runs in its own session and waits for the end of its
input, which comes when the harness closes it or dies in any way.  It then kills every process that
carries the run's mark and removes the run's scratch folder.

Run as ``python -m trl_compat.machine.watchdog MARK FOLDER``.
"""

from __future__ import annotations

import shutil
import signal
import sys

from trl_compat.machine import processes


def main(run_id: str, scratch: str) -> None:
    """Waits for the end of input, then leaves nothing of the run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    processes.end_marked(run_id)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
