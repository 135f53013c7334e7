"""Are the reports in a folder those that would be made now?  Then they are not made again.

A note beside the records says from what they were made and what each file held.  It is believed
only where all of that is still the same, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import trl_compat
from trl_compat.advisories import Catalogue
from trl_compat.files.writing import write_atomically

# What the head says of the last run; no report that is written by itself shows it.
LAST_RUN = ("generated_at", "command", "profile", "host", "harness_version")
RENDERERS = ("jinja2", "markupsafe", "packaging")


def holds(note: Path, folder: Path, catalogue: Catalogue) -> bool:
    """Whether a note says that the reports of a folder are up to date."""
    try:
        said = json.loads(note.read_bytes())
        return bool(
            said["from"] == _made_from(folder, catalogue)
            and said["files"] == _digests(folder, said["files"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write(note: Path, folder: Path, catalogue: Catalogue, files: Iterable[str]) -> None:
    """Notes that the reports of a folder were made just now; ``files`` are below it."""
    said = {"from": _made_from(folder, catalogue), "files": _digests(folder, files)}
    note.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps(said, indent=1) + "\n")


def _made_from(folder: Path, catalogue: Catalogue) -> str:
    """A digest of everything that a report is made from."""
    digest = hashlib.sha256(_program().encode())
    digest.update(repr(catalogue).encode())
    head: dict[str, Any] = json.loads((folder / "results.json").read_bytes())
    if head.get("runs") is not None:  # else the head is all that is known of the runs
        for name in LAST_RUN:
            head.pop(name, None)
    digest.update(json.dumps(head).encode())
    for path in sorted((folder / "results").glob("*.json")):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def _program() -> str:
    """A digest of this package and of what renders for it."""
    digest = hashlib.sha256(json.dumps([metadata.version(name) for name in RENDERERS]).encode())
    for path in _sources(Path(trl_compat.__file__).parent):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path


def _digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """The digest of each file; empty where there is none."""
    return {name: _digest(folder / name) for name in sorted(files)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
