"""Reading the files that a run left: the ranks' records, their exit statuses, their output.

Ranks are not trusted: a record may be truncated, have the wrong shape, or not be a file, and a log
may contain anything.  What cannot be read is reported, and never affects another cell.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from trl_compat.cells.rank_records import Collectives, Failure, RankRecord
from trl_compat.machine import disk
from trl_compat.machine.untrusted import Folder

RANK_LINE = re.compile(r"\s*rank\s*:\s*(\d{1,4})\b")
EXIT_LINE = re.compile(r"\s*exitcode\s*:\s*(-?\d{1,4})\b")
# How an interpreter ends that met a full disk before a rank could say so.
FULL_DISK = re.compile(r"(?:\w+\.)*OSError: \[Errno (\d{1,4})\] ")
LONG_LINE = re.compile(r"([^\n]{2000})[^\n]+")
RECORD_LIMIT = 8 * 10**6
ANSWER_LIMIT = 10**6
LAUNCHER_LIMIT = 10**6


def records(folder: Path, world_size: int) -> tuple[dict[int, RankRecord], tuple[str, ...]]:
    """The record of each rank that left one, and a line for each that cannot be read."""
    found: dict[int, RankRecord] = {}
    problems: list[str] = []
    for rank, data in _each(folder, world_size, "json", problems):
        try:
            record = RankRecord.model_validate_json(data, strict=True)
            if record.rank not in (None, rank):
                raise ValueError(f"it belongs to rank {record.rank}")
            found[rank] = record
        except ValueError as error:
            problems.append(f"the record of rank {rank} cannot be read ({_said(error)})")
    return found, tuple(problems)


def failed(folder: Path, world_size: int) -> tuple[dict[int, tuple[Failure, ...]], tuple[str, ...]]:
    """What each rank wrote down as false at once, and a line for each that cannot be read."""
    found: dict[int, tuple[Failure, ...]] = {}
    problems: list[str] = []
    for rank, data in _each(folder, world_size, "failed", problems):
        # Behind the last line break there is nothing, or what a rank could not write to its end.
        lines = data.split(b"\n")[:-1]
        try:
            found[rank] = tuple(Failure.model_validate_json(line, strict=True) for line in lines)
        except ValueError as error:
            problems.append(f"the failed checks of rank {rank} cannot be read ({_said(error)})")
    return {rank: failures for rank, failures in found.items() if failures}, tuple(problems)


def _each(
    folder: Path, world_size: int, ending: str, problems: list[str]
) -> Iterator[tuple[int, bytes]]:
    """A file of each rank that left it; what is no such file is one of the problems."""
    with Folder(folder) as left:
        for rank in range(world_size):
            name = f"rank{rank}.{ending}"
            try:
                data = left.read(name, RECORD_LIMIT)
            except OSError as error:
                problems.append(f"{name} cannot be read ({error.strerror or error})")
                continue
            if data is not None:
                yield rank, data


def _said(error: ValueError) -> str:
    """The first thing that is wrong with a record, without what stands in it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(ascii(part).strip("'")[:40] for part in first["loc"])
    return f"{place}: {first['msg']}"[:200] if place else first["msg"][:200]


def collectives(left: Folder, name: str) -> Collectives | None:
    """What a rank answered that was asked about its collectives; None without a proper answer."""
    try:
        data = left.read(name, ANSWER_LIMIT)
        return Collectives.model_validate_json(data, strict=True) if data is not None else None
    except (OSError, ValueError):
        return None


def rank_exits(folder: Path) -> dict[int, int]:
    """Exit status of the ranks that failed, as the elastic agent's own summary gives them."""
    found: dict[int, int] = {}
    rank = None
    for line in _launcher(folder).splitlines():
        if match := RANK_LINE.match(line):
            rank = int(match[1])
        elif rank is not None and (match := EXIT_LINE.match(line)):
            found[rank] = int(match[1])
            rank = None
    return found


def shortage(folder: Path, *, went_well: bool) -> str:
    """Why there was no room to write for a run, as far as can be told when it is over.

    Args:
        went_well: every rank has come to its end; then nothing is tried.
    """
    scratch = folder.parent  # the harness's own
    if went_well:
        return disk.shortage(scratch)
    if said := disk.shortage(scratch) or disk.refusal(scratch):
        return said
    met = (FULL_DISK.match(line) for line in _launcher(folder).splitlines())
    full = any(m is not None and int(m[1]) in (errno.ENOSPC, errno.EDQUOT) for m in met)
    return "its launcher had no disk space to write" if full else ""


def _launcher(folder: Path) -> str:
    with Folder(folder) as left:
        return _tail(left, "launcher.log", LAUNCHER_LIMIT)


def output(folder: Path, world_size: int, limit: int = 12_000) -> str:
    """What the ranks and the launcher printed, the end of it where it is long."""
    parts = []
    with Folder(folder) as left:
        for name in [*(f"rank{rank}" for rank in range(world_size)), "launcher"]:
            text = LONG_LINE.sub(r"\1…", _tail(left, f"{name}.log", 4 * limit))
            if not text:
                continue
            if len(text) > limit:
                text = "[...]\n" + text[-limit:]
            parts.append(f"===== {name} =====\n{text.rstrip()}\n")
    return "\n".join(parts)


def last_words(path: Path) -> str:
    """The end of a log of the harness's own that cells could write to."""
    with Folder(path.parent) as left:
        return _tail(left, path.name, 10_000)


def _tail(left: Folder, name: str, size: int) -> str:
    try:
        return left.tail(name, size).decode("utf-8", "replace")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"[{name} cannot be read: {reason}]"
