"""Reading what a run left in its folder: the ranks' records, their exit statuses, what was printed.

Ranks are not trusted: a record may be cut short, a log may hold anything.  What cannot be read is
said, and never costs another cell its run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

EXIT_LINE = re.compile(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.S)
RECORD_LIMIT = 32 * 10**6
# What every reader of a record relies on.
NEEDED = {"status": str, "checks": list, "stand_ins": list, "observations": dict, "ended": float}


def records(folder: Path, world_size: int) -> tuple[dict[int, dict[str, Any]], tuple[str, ...]]:
    """The record of each rank that left one, and a line for each that cannot be read."""
    found: dict[int, dict[str, Any]] = {}
    problems = []
    for rank in range(world_size):
        path = folder / f"rank{rank}.json"
        if not path.exists():
            continue
        try:
            found[rank] = _record(path)
        except (OSError, ValueError) as error:
            problems.append(f"the record of rank {rank} cannot be read ({error})")
    return found, tuple(problems)


def _record(path: Path) -> dict[str, Any]:
    if path.stat().st_size > RECORD_LIMIT:
        raise ValueError(f"it has {path.stat().st_size} bytes")
    record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    for name, kind in NEEDED.items():
        if not isinstance(record.get(name), kind):
            raise ValueError(f"it has no {name}")
    if record["status"] not in ("finished", "not-applicable") and "error" not in record:
        raise ValueError("it has no error")
    return record


def rank_exits(folder: Path) -> dict[int, int]:
    """Exit status of the ranks that failed, as the elastic agent's own summary gives them."""
    text = _tail(folder / "launcher.log", 1_000_000)
    return {int(m[1]): int(m[2]) for m in EXIT_LINE.finditer(text)}


def output(folder: Path, world_size: int, limit: int = 12_000) -> str:
    """What the ranks and the launcher printed, the end of it where it is long."""
    parts = []
    for name in [*(f"rank{rank}" for rank in range(world_size)), "launcher"]:
        path = folder / f"{name}.log"
        if path.exists():
            text = _tail(path, 4 * limit)
            if len(text) > limit:
                text = "[...]\n" + text[-limit:]
            parts.append(f"===== {name} =====\n{text.rstrip()}\n")
    return "\n".join(parts)


def _tail(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read(size).decode("utf-8", "replace")
    except OSError as error:
        return f"[{path.name} cannot be read: {error.strerror}]" if path.exists() else ""
