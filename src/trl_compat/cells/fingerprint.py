"""What a run of a cell says about its stack, without anything that changes from run to run.

Two runs of the same cell, in any order and however started, must have the same fingerprint.  This
is why ranks forked from a prepared parent are as good as plain ``torchrun``.
"""

from __future__ import annotations

import re
from typing import Any

from trl_compat.cells.observation import Observation
from trl_compat.cells.rank_records import RankRecord

FIRST, RAISED = "first", "raised"
# Addresses, process ids, ports, scratch folders: equal in no two runs.
FLEETING = re.compile(r"0x[0-9a-f]{6,}|\S*/trl-compat-\S+|\bpid[= ]\d+|:\d{4,5}\b")


def fingerprint(observed: Observation) -> dict[str, Any]:
    """The part of an observation that must be equal in every run of the same cell.

    When a rank has raised, the agent ends the others, some before and some after they have raised
    as well, and which is first is chance: then only what raised counts.
    """
    raised = {rank: record for rank, record in observed.ranks.items() if record.failed}
    if raised:
        first = min(raised, key=lambda rank: raised[rank].ended)
        return {FIRST: first, RAISED: {rank: _of_rank(raised[rank]) for rank in raised}}
    return {
        "stopped": observed.stopped and str(observed.stopped),
        "died": sorted(rank for rank in range(observed.world_size) if rank not in observed.ranks),
        "ranks": {rank: _of_rank(record) for rank, record in sorted(observed.ranks.items())},
    }


def _of_rank(record: RankRecord) -> dict[str, Any]:
    return {
        "status": record.status,
        "error": _error(record),
        "checks": [(check.name, check.holds) for check in record.checks],
        "preconditions": [(one.name, one.holds) for one in record.preconditions],
        "stand_ins": sorted(record.stand_ins),
        "observed": _lasting(str(sorted(record.observations.items()))),
    }


def _error(record: RankRecord) -> list[str] | None:
    error = record.error
    return [error.exception, _lasting(error.message), error.where] if error else None


def _lasting(text: str) -> str:
    return FLEETING.sub("<…>", text)


def differences(one: dict[str, Any], other: dict[str, Any], path: str = "") -> list[str]:
    """Where two essences differ, a line each; empty if they do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        if RAISED in one and RAISED in other:
            return _differences_of_failures(one, other)
        return [
            line
            for key in sorted({*one, *other}, key=str)
            for line in differences(one.get(key), other.get(key), f"{path}/{key}")  # type: ignore[arg-type]
        ]
    return [] if one == other else [f"{path}: {str(one)[:200]} / {str(other)[:200]}"]


def _differences_of_failures(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The ranks that raised in both runs must say the same; so must those that raised first."""
    a, b = one[RAISED], other[RAISED]
    both = a.keys() & b.keys()
    lines = [line for rank in sorted(both) for line in differences(a[rank], b[rank], f"/{rank}")]
    if not {one[FIRST], other[FIRST]} <= both:
        mine, theirs = a[one[FIRST]]["error"], b[other[FIRST]]["error"]
        lines += differences({"error": mine}, {"error": theirs}, f"/{FIRST}")
    return lines
