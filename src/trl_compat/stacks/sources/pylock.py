"""pylock.toml (PEP 751): the packages that its markers select for this Python and platform."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trl_compat.errors import BadInput
from trl_compat.stacks.sources.source import Pins, Source

if TYPE_CHECKING:
    from packaging.pylock import Package


def read(path: Path, data: dict[str, Any]) -> Source:
    """The packages of the lock that apply here.

    Where only an extra or a group brings a package, its version is the one that is there; nobody
    knows which of them are installed.

    Raises:
        BadInput: the file breaks the specification, or chooses a package twice.
    """
    try:
        from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError
    except ImportError:
        raise BadInput(f"{path}: reading it requires 'packaging' 26.0 or later") from None
    try:
        lock = Pylock.from_dict(data)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise BadInput(f"{path}: unreadable pylock.toml: {str(error)[:200]}") from None
    pins = Pins(str(path))
    pins.made_for(str(lock.requires_python or ""))
    by_default = frozenset(lock.default_groups or ())
    every = frozenset(lock.extras or ()), frozenset(lock.dependency_groups or ())
    left = [p for p in lock.packages if not _chosen(p, pins, frozenset(), by_default)]
    for package in left:
        if package.name in {*pins.versions, *pins.commits} or not _chosen(package, pins, *every):
            pins.not_here(package.name)
    return pins.source("pylock", path=path)


def _chosen(package: Package, pins: Pins, extras: frozenset[str], groups: frozenset[str]) -> bool:
    """Pins a package if its marker holds with these extras and groups; whether it does."""
    chosen = {"extras": extras, "dependency_groups": groups}
    holds = not package.marker or package.marker.evaluate(chosen, context="lock_file")
    if holds:
        _package(package, pins)
    return holds


def _package(package: Package, pins: Pins) -> None:
    if package.vcs is not None:
        pins.git(package.name, package.vcs.url or "", package.vcs.commit_id)
    elif package.directory is not None:
        pins.undecided(package.name, f"{package.name} comes from a folder whose commit is unknown")
    elif package.version is not None:
        pins.exact(package.name, str(package.version))
    elif package.archive is not None:
        pins.archive(package.name, package.archive.url or package.archive.path or "")
    else:
        pins.undecided(package.name, f"{package.name} has no version")
