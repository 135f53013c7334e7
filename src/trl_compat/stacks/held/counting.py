"""Bytes on the disk, each file counted once: environments share theirs by hard links.

What counts is what a file takes, not its length.  Nothing is followed: a symbolic link counts as
itself.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Inode = tuple[int, int]
BLOCK = 512  # the unit of st_blocks on every system


@dataclass(frozen=True)
class Size:
    """The bytes of a folder.

    Attributes:
        own: free when it is removed: no other folder has these files.
        shared: files that something else has as well.
    """

    own: int = 0
    shared: int = 0

    @property
    def total(self) -> int:
        """Both."""
        return self.own + self.shared


@dataclass
class Ledger:
    """The bytes of several folders together.

    An environment has the files of another one by the ten thousand.  A folder whose own files are
    those of a folder that was measured before, by their inodes, is taken to have the same below
    it, and is not walked again.
    """

    total: int = 0
    _seen: set[Inode] = field(default_factory=set)
    _trees: dict[int, int] = field(default_factory=dict)

    def measure(self, path: Path) -> Size:
        """The size of a folder or file, which is added to the total as far as it is new."""
        found = _Measured(self._seen)
        if path.is_symlink() or not path.is_dir():
            for state in files(path):
                found.add(state)
        else:
            self._tree(str(path), path.stat().st_dev, found)
        self.total += found.new
        return Size(found.own, found.shared)

    def _tree(self, folder: str, device: int, found: _Measured) -> int:
        """Measures a folder; all of its bytes."""
        try:
            with os.scandir(folder) as opened:
                entries = list(opened)
        except OSError:
            return 0
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        plain = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
        names = frozenset(entry.name for entry in folders)
        key = hash((device, names, frozenset((entry.name, entry.inode()) for entry in plain)))
        if plain and (known := self._trees.get(key)) is not None:
            found.shared += known
            return known
        size = 0
        for entry in plain:
            with contextlib.suppress(OSError):
                size += found.add(entry.stat(follow_symlinks=False))
        for entry in folders:
            size += self._tree(entry.path, device, found)
        if plain:
            self._trees[key] = size
        return size


@dataclass
class _Measured:
    """The bytes of one folder while it is measured; ``new`` are those of files not seen before."""

    seen: set[Inode]
    own: int = 0
    shared: int = 0
    new: int = 0
    names: Counter[Inode] = field(default_factory=Counter)

    def add(self, state: os.stat_result) -> int:
        """Counts a file; its bytes."""
        inode, size = (state.st_dev, state.st_ino), state.st_blocks * BLOCK
        if inode not in self.seen:
            self.seen.add(inode)
            self.new += size
        if state.st_nlink == 1:
            self.own += size
            return size
        self.names[inode] += 1
        if self.names[inode] == 1:
            self.shared += size
        if self.names[inode] == state.st_nlink:  # every name of this file is in here
            self.own, self.shared = self.own + size, self.shared - size
        return size


@dataclass
class Links:
    """The files of folders that are to be removed together, and how many of their names that is."""

    names: Counter[Inode] = field(default_factory=Counter)
    freed: int = 0

    def add(self, paths: Iterable[Path]) -> int:
        """Adds folders; the bytes that become free with them and all that were added before."""
        before = self.freed
        for path in paths:
            for state in files(path):
                inode = (state.st_dev, state.st_ino)
                self.names[inode] += 1
                if self.names[inode] == state.st_nlink:
                    self.freed += state.st_blocks * BLOCK
        return self.freed - before

    def hold_the_rest_of(self, path: Path) -> bool:
        """Whether nobody else has a file of a folder: it is only there and in what was added."""
        return all(s.st_nlink == 1 + self.names[s.st_dev, s.st_ino] for s in files(path))


def files(path: Path) -> Iterator[os.stat_result]:
    """The state of every file of a folder, or of a file; what cannot be read is left out."""
    if path.is_symlink() or not path.is_dir():
        try:
            yield path.lstat()
        except OSError:
            return
        return
    folders = [str(path)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False)
        except OSError:
            continue
