"""What went wrong on the ranks of a cell, in order of time.

An exception that ended a scenario is one such event.  So is every failed check and precondition,
even if the exception was swallowed: the register decides.  This module is pure; the verdict is
reached in :mod:`trl_compat.cells.verdict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trl_compat.cells.rank_records import Failure, RaisedError, RankRecord, Registered

# What the others raise when a rank is gone: its consequence, not the cause.
LOST_PEER = re.compile(
    r"Connection (?:closed by|reset by) peer|Broken pipe|closed the connection|"
    r"ncclRemoteError|NCCL communicator was aborted|Application timeout caused pair closure"
)


@dataclass(frozen=True)
class Failed:
    """One thing that went wrong.

    Attributes:
        at: when, in seconds of the machine's clock.
        control: it makes the verdict worthless: a precondition did not hold.
        registered: it is a check or precondition that is known to be false.
    """

    at: float
    rank: int
    error: RaisedError
    control: bool
    registered: bool


def in_order(
    ranks: Mapping[int, RankRecord], registered: Mapping[int, Sequence[Failure]]
) -> list[Failed]:
    """Everything that went wrong, what came first first.

    Args:
        ranks: the record of each rank that left one.
        registered: what each rank registered as false, also of ranks that left no record.
    """
    found: list[Failed] = []
    for rank in sorted({*ranks, *registered}):
        found += _of_rank(rank, ranks.get(rank), registered.get(rank, ()))
    return sorted(found, key=lambda failed: failed.at)


def _of_rank(
    rank: int, record: RankRecord | None, registered: Sequence[Failure]
) -> Iterator[Failed]:
    raised = record.error if record is not None and record.failed else None
    for failure in registered:
        # What nobody swallowed is recorded once more, with all of its traceback.
        same = raised is not None and _same(failure.error, raised)
        error = raised if same and raised is not None else failure.error
        yield Failed(failure.at, rank, error, failure.kind == "precondition", registered=True)
    if record is None:
        return
    written = {(failure.kind, failure.name) for failure in registered}
    for kind, register in (("check", record.checks), ("precondition", record.preconditions)):
        for entry in register:
            if not entry.holds and (kind, entry.name) not in written:
                error = _error_of(kind, entry)
                error = raised if raised is not None and _same(error, raised) else error
                control = kind == "precondition"
                yield Failed(record.ended, rank, error, control, registered=True)
    if raised is not None:
        control = record.status == "control-failed"
        yield Failed(record.ended, rank, raised, control, registered=False)


def _same(one: RaisedError, other: RaisedError) -> bool:
    return (one.exception, one.message) == (other.exception, other.message)


def _error_of(kind: str, entry: Registered) -> RaisedError:
    """What was raised for an entry of which there is no more than the register."""
    if kind == "check":
        return RaisedError(
            exception="PostConditionFailed", message=entry.message, where=f"check:{entry.name}"
        )
    return RaisedError(
        exception="ControlFailed",
        message=f"{entry.name}: {entry.message}",
        where="runtime/context.py:precondition",
    )


def decisive(failed: Sequence[Failed], *, a_rank_is_missing: bool) -> Failed | None:
    """The one that says what the cell is: the first, unless it only says that a rank is gone.

    Then it is what was registered as false for a reason of its own, if anything was.
    """
    if not failed or not (a_rank_is_missing and _says_that_a_rank_is_gone(failed[0])):
        return failed[0] if failed else None
    return next((f for f in failed if f.registered and not _says_that_a_rank_is_gone(f)), None)


def _says_that_a_rank_is_gone(failed: Failed) -> bool:
    return bool(LOST_PEER.search(failed.error.message))
