"""An environment in place, with the interface of those that the harness builds."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trl_compat.stacks.environments.damage import Depth, sentence
from trl_compat.stacks.environments.locks import Lock
from trl_compat.stacks.in_place import listing
from trl_compat.stacks.in_place.record import InPlace


@dataclass(frozen=True)
class EnvironmentInPlace:
    """An environment in place; for what it offers see :mod:`trl_compat.stacks.providing`."""

    record: InPlace
    mend: str = "run the same command again"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.record.python

    @property
    def bytecode(self) -> Path:
        """A folder of ours for its compiled modules."""
        return self.record.bytecode

    @property
    def lock(self) -> Lock:
        """What is in it; there is no lock, and the digest is that of its files."""
        return Lock("", self.record.sha256, self.record.packages)

    @property
    def sites(self) -> tuple[Path, ...]:
        """The folders that packages are in."""
        return self.record.sites

    @property
    def readable(self) -> tuple[Path, ...]:
        """What cells read of it beside the folders of its interpreter."""
        return self.record.readable

    def genuine(self, site: Path, hashes: dict[str, str]) -> dict[str, str]:
        """Without the files that somebody has edited: bytecode of the released ones is not theirs.

        Those are compiled when they are imported, each time.
        """
        files, place = _listed(self.record.listing), site.resolve()
        return {
            path: told
            for path, told in hashes.items()
            if (file := files.get(f"{place}{os.sep}{path}")) and _as_recorded(file.sha256) == told
        }

    def wrong(self, depth: Depth) -> str:
        """What changed in it since the command began, in words; empty if nothing did."""
        if depth is Depth.VERSIONS:
            found = list(_added_or_removed(self.record))
        else:
            found = changes(self.record, contents=depth is Depth.CONTENTS)
        return sentence(serious) if (serious := without_bytecode(found)) else ""


def _added_or_removed(record: InPlace) -> Iterator[str]:
    """What was installed or removed: little to look at, so that it can be asked after each cell."""
    before = _listed(record.listing)
    for site in (path.resolve() for path in record.sites):
        there = {entry.name for entry in os.scandir(site)} if site.is_dir() else set()
        was = listing.top(before, site)
        # An empty folder is in no listing, and a folder of bytecode is nobody's.
        added = (n for n in there - was if n != listing.COMPILED and not _empty(site / n))
        yield from (f"{site / name} was added" for name in sorted(added))
        yield from (f"{site / name} was removed" for name in sorted(was - there))


def _as_recorded(sha256: str) -> str:
    """A digest as a RECORD writes it."""
    return f"sha256={base64.urlsafe_b64encode(bytes.fromhex(sha256)).rstrip(b'=').decode()}"


def _empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def changes(record: InPlace, *, contents: bool) -> list[str]:
    """Every file that was added, removed or changed since the command began."""
    before = _listed(record.listing)
    after = listing.of(record.folders, contents=contents)
    return listing.differences(before, after)


def without_bytecode(found: list[str]) -> list[str]:
    """The changes that a cell could notice; another program of the user may compile modules."""
    return [change for change in found if not listing.compiled(change)]


@functools.cache
def _listed(path: Path) -> listing.Listing:
    return listing.read(path)
