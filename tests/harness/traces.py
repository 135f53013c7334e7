"""What tests could leave behind: every file of the checkout and of an environment, compared."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tests.harness.conftest import ROOT

# Of the tools that run the tests; what they keep there is their own.
CACHES = {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__"}
TOOLS = {".git", ".venv", ".nox", *CACHES}
Snapshot = dict[str, tuple[int, int, int]]


def snapshot(folders: Iterable[Path]) -> Snapshot:
    """Mode, size and time of every file and folder below some folders, by path."""
    found = {}
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = [name for name in names if name not in TOOLS]
            for name in (*names, *files):
                info = os.lstat(os.path.join(place, name))
                # A folder's time changes with what is in it, which is seen by itself.
                time = 0 if name in names else info.st_mtime_ns
                size = 0 if name in names else info.st_size
                found[os.path.join(place, name)] = (info.st_mode, size, time)
    return found


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """What was made, removed or changed, a line each."""
    return [
        f"{'gone' if path not in after else 'changed' if path in before else 'made'}: {path}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def guarded(environment: Path) -> list[Path]:
    """What no test may touch: the checkout and an environment of the cache."""
    return [ROOT, environment]
