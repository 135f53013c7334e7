"""poetry.lock, as written by Poetry 1.x and 2.x.

Poetry 2.1 records markers of packages; before, a package that is locked twice is ambiguous and is
rejected.  Optional packages (extras, groups) count: if they are installed, it is in this version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.errors import BadInput
from trl_compat.stacks.sources import markers
from trl_compat.stacks.sources.source import Pins, Source


def read(path: Path, data: dict[str, Any]) -> Source:
    """The packages of the lock that apply here.

    Raises:
        BadInput: an entry without name or version, a package locked twice for this platform.
    """
    pins = Pins(str(path))
    for entry in data["package"]:
        if not isinstance(entry.get("name"), str) or not isinstance(entry.get("version"), str):
            raise BadInput(f"{path}: a package without name or version; lock again: poetry lock")
        if not _applies(entry.get("markers"), path):
            pins.not_here(entry["name"])
            continue
        source = entry.get("source", {})
        match source.get("type"):
            case "git":
                pins.git(entry["name"], source["url"], source.get("resolved_reference"))
            case "directory":
                why = f"{entry['name']} comes from the folder {source.get('url')}"
                pins.undecided(entry["name"], why)
            case _:
                pins.exact(entry["name"], entry["version"])
    return pins.source("poetry.lock", path=path)


def _applies(said: object, path: Path) -> bool:
    """Whether any group of the lock wants the package here."""
    if said is None:
        return True
    choices = said.values() if isinstance(said, dict) else [said]
    return any(markers.applies(str(text), str(path)) for text in choices)
