"""What was seen of one run of a cell, before anyone judges it."""

from __future__ import annotations

import enum
import errno
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trl_compat.cells import failures, hangs
from trl_compat.cells.failures import Failed
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.rank_records import Failure, RaisedError, RankRecord
from trl_compat.runtime.spec import UNRECORDED

MEASURED = "measured"  # the observation of a rank that holds the values of an invariant


class Launch(enum.StrEnum):
    """How the ranks were started: forked from a prepared parent, or as new processes."""

    PRELOADED = "preloaded"
    TORCHRUN = "torchrun"


class Stop(enum.StrEnum):
    """Why the harness ended a run that did not end by itself."""

    LIMIT = "limit"
    IDLE = "idle"
    MEMORY = "memory"
    LAUNCHER_STUCK = "launcher-stuck"


class Observation(BaseModel):
    """What was seen of one run of a cell, before anyone judges it.

    Attributes:
        ranks: the record of each rank (see ``trl_compat.runtime.rank``), by rank; a rank that left
            none is missing.
        failed: what each rank registered as false, also of ranks that left no record.
        exit_status: of the launcher; negative for a signal.
        rank_exits: exit status of each failed rank, as the elastic agent saw it.
        stopped: why the harness ended the run; None if it ended by itself.
        hanging: the state of every rank that was still running when a hang was ended.
        not_started: why the stack never got as far as running, with the outcome that this means.
        leftovers: processes that had to be killed when the cell was over.
        peak_memory: bytes that the cell's processes held together, memory that they share counted
            once; measured once a second.
        out_of_memory_kills: processes that the machine's kernel killed for memory meanwhile.
        problems: what of the evidence could not be read, a line each.
        shortage: what the disk had left meanwhile, if that was next to nothing.
        not_preloaded: why the ranks were started by ``torchrun`` though they were to be preloaded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    launch: Launch
    world_size: int
    started_at: str
    seconds: float
    ranks: dict[int, RankRecord] = Field(default_factory=dict)
    failed: dict[int, tuple[Failure, ...]] = Field(default_factory=dict)
    exit_status: int = 0
    rank_exits: dict[int, int] = Field(default_factory=dict)
    stopped: Stop | None = None
    hanging: dict[int, hangs.RankState] = Field(default_factory=dict)
    not_started: tuple[Outcome, str] | None = None
    leftovers: int = 0
    peak_memory: int = 0
    out_of_memory_kills: int = 0
    problems: tuple[str, ...] = ()
    shortage: str = ""
    not_preloaded: str = ""
    output: str = ""

    @model_validator(mode="before")
    @classmethod
    def _by_its_old_names(cls, data: Any) -> Any:
        """Reads records from before ``unsound`` and two values of ``stopped`` were renamed."""
        if not isinstance(data, dict) or "unsound" not in data:
            return data
        kept = {name: value for name, value in data.items() if name != "unsound"}
        renamed = {"idle": Stop.LAUNCHER_STUCK, "silence": Stop.IDLE}
        stopped = renamed.get(str(kept.get("stopped")), kept.get("stopped"))
        return {**kept, "not_started": data["unsound"], "stopped": stopped}

    @property
    def measured(self) -> dict[str, float | str]:
        """The values that the ranks measured together; empty where nothing is measured."""
        for _, record in sorted(self.ranks.items()):
            found = record.observations.get(MEASURED)
            if isinstance(found, dict):
                return {
                    str(name): value
                    for name, value in found.items()
                    if isinstance(value, int | float | str) and not isinstance(value, bool)
                }
        return {}

    @property
    def final(self) -> bool:
        """Whether it says something about the stack, so that it need not be made again."""
        sound = self.not_started is None and not self.problems
        return sound and not disk_to_blame(self) and not _maybe_the_disk(self)


def left_running(count: int) -> str:
    """What a cell left behind, in words; empty if nothing."""
    if not count:
        return ""
    if count == 1:
        return "a process that it started was still running at its end and was killed"
    return f"{count} processes that it started were still running at its end and were killed"


FULL = (errno.ENOSPC, errno.EDQUOT)
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|os error (?:28|122)\b")
# Libraries that say a system's error in words only raise these.
IN_WORDS = ("RuntimeError", "OSError", "SafetensorError", "DistStoreError", "DistBackendError")
ENDED_BY_US = (Stop.LIMIT, Stop.IDLE, Stop.MEMORY)


def went_wrong(observed: Observation) -> list[Failed]:
    """What went wrong on the ranks, in order of time."""
    return failures.in_order(observed.ranks, observed.failed)


def disk_to_blame(observed: Observation) -> str:
    """Why a run says nothing of its stack because a disk was full; empty if it does.

    What counts is the error number that a rank met and what the disk had left, not a text.
    """
    if _went_well(observed):
        return ""
    met = [str(rank) for rank, error in _errors(observed) if set(error.errnos) & set(FULL)]
    lost = [
        str(rank)
        for rank, status in observed.rank_exits.items()
        if status == UNRECORDED and rank not in observed.ranks
    ]
    if observed.shortage:
        why = observed.shortage
    elif met:
        why = f"rank {', '.join(dict.fromkeys(met))} had no disk space to write"
    elif lost:
        why = f"rank {', '.join(lost)} could not write its record"
    else:
        return ""
    return f"the disk is full ({why}); free some space and run it again"


def _maybe_the_disk(observed: Observation) -> bool:
    """Whether an error speaks of a full disk and nothing else does: judged, but not for ever."""
    errors = [error for _, error in _errors(observed)]
    return any(e.exception in IN_WORDS and NO_SPACE.search(e.message) for e in errors)


def _errors(observed: Observation) -> list[tuple[int, RaisedError]]:
    return [(failed.rank, failed.error) for failed in went_wrong(observed)]


def _went_well(observed: Observation) -> bool:
    all_there = set(observed.ranks) == set(range(observed.world_size))
    ended = observed.stopped not in ENDED_BY_US and observed.exit_status == 0
    return all_there and ended and not went_wrong(observed)
