"""Reading a hang: where every rank was, in which collective, and which rank diverged.

Pure: it reads the states that :mod:`trl_compat.running.execution.watch` collected before the
ranks were killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from trl_compat.cells.rank_records import Collectives

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)
LONGEST = 300
MARKERS = ("/site-packages/", "/dist-packages/", "/lib/python")
COLLECTIVES = re.compile(r"torch/distributed/distributed_c10d\.py$")
# Frames between a caller and the collective that it called.
WRAPPERS = re.compile(
    r"torch/distributed/|deepspeed/(?:comm|utils/(?:timer|nvtx|comms_logging))|contextlib\.py$"
)


class RankState(BaseModel):
    """One rank when the cell was stopped.

    Attributes:
        place: ``file:function`` of the innermost frame, or of the caller of the collective.
        waits_in: the collective that it had called and that had not returned, or None.
        started: collectives that it had started, summed over its process groups; None if torch
            does not know or the rank did not respond.
        last: the newest entry of torch's flight recorder, if it is enabled.
        stack: its Python stacks, innermost frame first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    place: str
    waits_in: str | None
    started: int | None
    last: dict[str, Any] | None = None
    stack: str


def states(
    stacks: Mapping[int, str], collectives: Mapping[int, Collectives]
) -> dict[int, RankState]:
    """The state of every rank that was asked."""
    return {rank: _state(stack, collectives.get(rank)) for rank, stack in stacks.items()}


def _state(stack: str, answer: Collectives | None) -> RankState:
    frames = list(_frames(_main_thread(stack)))
    called = next((n for n, (file, _) in enumerate(frames) if COLLECTIVES.search(file)), None)
    if called is not None:
        # The outermost of adjoining frames there: barrier and not what it calls in its turn.
        while called + 1 < len(frames) and COLLECTIVES.search(frames[called + 1][0]):
            called += 1
        outside = (frame for frame in frames[called + 1 :] if not WRAPPERS.search(frame[0]))
        waits_in, place = frames[called][1], next(outside, frames[called])
    else:
        waits_in, place = None, frames[0] if frames else ("unknown", "unknown")
    groups = answer.groups if answer else ()
    return RankState(
        place=":".join(place)[:LONGEST],
        waits_in=waits_in and waits_in[:LONGEST],
        started=sum(group.started for group in groups) if groups else None,
        last=answer.last if answer else None,
        stack=stack,
    )


def _main_thread(stack: str) -> str:
    """The thread that runs the scenario: faulthandler puts the main thread last."""
    return re.split(r"^(?:Current thread|Thread) 0x.*$", stack, flags=re.M)[-1]


def _frames(stack: str) -> Iterator[tuple[str, str]]:
    for match in FRAME.finditer(stack):
        path = match["file"]
        for marker in MARKERS:
            path = path.rsplit(marker, 1)[-1]
        yield ("/".join(path.split("/")[-3:]) if path.startswith("/") else path), match["function"]


def diverged_first(ranks: Mapping[int, RankState], gone: Mapping[int, str]) -> int | None:
    """The rank that left the common way first, or None if that cannot be told.

    Args:
        ranks: the ranks that were still running.
        gone: how ranks ended that were not, by rank.

    A rank that is gone while others wait has left them; else the one that has started the fewest
    collectives; else the only one that is not in the collective that the others wait in.
    """
    if gone:
        return min(gone) if len(gone) == 1 else None
    counts = {rank: state.started for rank, state in ranks.items() if state.started is not None}
    if len(counts) == len(ranks) and len(set(counts.values())) > 1:
        fewest = min(counts.values())
        behind = [rank for rank, count in counts.items() if count == fewest]
        return behind[0] if len(behind) == 1 else None
    calls = {rank: (state.waits_in, state.place) for rank, state in ranks.items()}
    outside = [rank for rank, (collective, _) in calls.items() if collective is None]
    if len(outside) == 1 and len(ranks) > 1:
        return outside[0]
    odd = [rank for rank, call in calls.items() if list(calls.values()).count(call) == 1]
    return odd[0] if len(odd) == 1 and len(ranks) > 2 else None


def explain(ranks: Mapping[int, RankState], gone: Mapping[int, str]) -> str:
    """One sentence for people: what each rank was waiting for, and who diverged."""
    parts = [f"rank {rank} {how}" for rank, how in sorted(gone.items())]
    for rank, state in sorted(ranks.items()):
        if not state.stack:
            parts.append(f"rank {rank} did not respond")
            continue
        doing = f"waits in {state.waits_in} called by" if state.waits_in else "is in"
        count = f", {state.started} collectives started" if state.started is not None else ""
        parts.append(f"rank {rank} {doing} {state.place}{count}")
    culprit = diverged_first(ranks, gone)
    if culprit is not None:
        parts.append(f"rank {culprit} diverged first")
    elif len(ranks) > 1 and not gone:
        same = len({(s.waits_in, s.place) for s in ranks.values()}) == 1
        parts.append("all ranks are at the same place" if same else "the ranks diverged")
    return "; ".join(parts)
