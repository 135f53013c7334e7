"""pylock.toml (PEP 751): what its markers choose for this Python and platform, default groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packaging.pylock import Package, Pylock, PylockUnsupportedVersionError, PylockValidationError

from trl_compat.errors import BadInput
from trl_compat.sources.source import Pins, Source


def read(path: Path, data: dict[str, Any]) -> Source:
    """The packages of the lock that apply here.

    Raises:
        BadInput: the file breaks the specification, or chooses a package twice.
    """
    try:
        lock = Pylock.from_dict(data)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise BadInput(f"{path}: not a pylock.toml that can be read: {error}") from None
    pins = Pins(str(path))
    pins.made_for(str(lock.requires_python or ""))
    groups = frozenset(lock.default_groups or ())
    for package in lock.packages:
        chosen = {"extras": frozenset[str](), "dependency_groups": groups}
        if package.marker and not package.marker.evaluate(chosen, context="lock_file"):
            continue
        _package(package, pins)
    return pins.source("pylock", path=path)


def _package(package: Package, pins: Pins) -> None:
    if package.vcs is not None:
        pins.git(package.name, package.vcs.url or "", package.vcs.commit_id)
    elif package.directory is not None:
        pins.undecided(
            package.name, f"{package.name} comes from a folder, of which no commit is known"
        )
    elif package.version is not None:
        pins.exact(package.name, str(package.version))
    elif package.archive is not None:
        pins.archive(package.name, package.archive.url or package.archive.path or "")
    else:
        pins.undecided(package.name, f"{package.name} has no version")
