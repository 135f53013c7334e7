"""What uv's cache holds of builds of torch; reads only.

uv unpacks each wheel once into a folder of ``archive-v*`` and links environments to that.  An
entry ``wheels-v*/<index>/<name>/<version>-<tags>`` points to it.  Where uv keeps its cache in
another way, nothing is found here, and nothing is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks.environments import EnvironmentFailed
from trl_compat.stacks.environments.uv import uv
from trl_compat.stacks.held import torch_builds
from trl_compat.stacks.held.counting import Ledger, Size


@dataclass(frozen=True)
class CachedWheel:
    """An unpacked wheel of a build of torch.

    Attributes:
        archive: the folder with its files.
        entries: the files that point uv to it.
    """

    name: str
    version: str
    archive: Path
    entries: tuple[Path, ...]
    size: int

    @property
    def pin(self) -> str:
        """``name==version``."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class UvCache:
    """uv's cache: ``size.shared`` is what environments have as well."""

    folder: Path
    size: Size
    wheels: tuple[CachedWheel, ...]


def folder() -> Path | None:
    """Where uv keeps its cache, by uv's own word; None if it cannot be told."""
    try:
        return Path(uv(["cache", "dir"]).strip())
    except (BadInput, EnvironmentFailed, HarnessError, OSError):
        return None


def look(where: Path, ledger: Ledger) -> UvCache:
    """Measures uv's cache."""
    return UvCache(where, ledger.measure(where), tuple(wheels(where)))


def wheels(where: Path) -> Iterator[CachedWheel]:
    """The wheels of builds of torch."""
    for place in sorted([*where.glob("wheels-v*/pypi/*"), *where.glob("wheels-v*/*/*/*")]):
        name = str(canonicalize_name(place.name))
        if not torch_builds.part(name) or place.is_symlink() or not place.is_dir():
            continue
        for entry in sorted(place.iterdir()):
            archive = entry.resolve() if entry.is_symlink() else None
            if archive is None or not archive.is_dir() or not _inside(archive, where):
                continue
            entries = tuple(p for p in sorted(place.iterdir()) if _of(entry.name, p.name))
            size = Ledger().measure(archive).total
            yield CachedWheel(name, entry.name.partition("-")[0], archive, entries, size)


def _of(entry: str, name: str) -> bool:
    """Whether a file beside an entry belongs to it; the lock stays, which another uv may hold."""
    return name == entry or name in (f"{entry}{end}" for end in (".http", ".msgpack", ".rev"))


def _inside(archive: Path, where: Path) -> bool:
    return archive.parent.parent == where.resolve() and archive.parent.name.startswith("archive-v")
