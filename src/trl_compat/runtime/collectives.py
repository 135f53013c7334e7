"""What torch can report about the collectives of a rank that hangs, requested from outside.

A rank that waits inside a collective cannot answer in its main thread, so a sleeping thread does.
It does nothing until the harness writes to the rank's pipe.  A rank that hangs in C code that holds
the interpreter lock does not answer, which is informative, too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def answer_when_asked(
    folder: Path, rank: int, write: Callable[[Path, dict[str, Any]], None]
) -> None:
    """Starts the thread; the answer goes to ``rank<N>.collectives.json`` through ``write``."""
    pipe = folder / f"rank{rank}.ask"
    os.mkfifo(pipe)
    question = os.open(pipe, os.O_RDWR)  # so that opening does not wait for the other end

    def wait_to_be_asked() -> None:
        os.read(question, 1)
        write(folder / f"rank{rank}.collectives.json", {"groups": groups(), "last": last()})

    threading.Thread(target=wait_to_be_asked, daemon=True).start()


def groups() -> list[dict[str, Any]]:
    """For each process group its ranks and how many collectives this rank has started in it."""
    if "torch.distributed" not in sys.modules:
        return []
    from torch.distributed import distributed_c10d as c10d

    told = []
    for group in list(c10d._world.pg_map):
        with contextlib.suppress(Exception):  # not every backend counts
            told.append(
                {
                    "ranks": sorted(c10d._world.pg_group_ranks[group]),
                    "started": int(group._get_sequence_number_for_group()),
                }
            )
    return told


def last() -> dict[str, Any] | None:
    """The newest entry of torch's flight recorder; it knows gloo from torch 2.8 or so, and NCCL."""
    if "torch" not in sys.modules:
        return None
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_fr_trace", None)
    dump = dump or getattr(_distributed_c10d, "_dump_nccl_trace", None)
    if dump is None:
        return None
    try:
        entries = pickle.loads(dump()).get("entries", [])
    except Exception:  # a recorder that is off may refuse in any way
        return None
    if not entries:
        return None
    newest = max(entries, key=lambda entry: entry["record_id"])
    kept = ("profiling_name", "collective_seq_id", "input_sizes", "input_dtypes", "state")
    return {name: newest.get(name) for name in kept}
