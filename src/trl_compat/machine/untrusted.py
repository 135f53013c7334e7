"""Files in a folder that a cell can write to, opened safely.

A rank may leave anything there: a link to a user's file, a FIFO without a writer, a device, a log
of any size; and it may change all this while the harness reads.  So the folder is held by a
descriptor and files are opened relative to it, without following links and without waiting.  The
opened file is then checked through its descriptor: it must be a regular file without further hard
links, and is read up to a limit.  Every reader of a cell's folder uses this module.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# What opening a link, a socket or a folder ends with.
NOT_FOLLOWED = (errno.ELOOP, errno.ENXIO, errno.EISDIR)


class NotAFile(OSError):
    """Something else than a regular file of the cell's own is in its place; the text says what."""


class Folder:
    """A folder of a cell.

    Its parent is the harness's; the folder itself must not be a link, and is not found again by its
    name: a cell that puts another into its place is read from where it began.

    Raises:
        OSError: there is no such folder, or it is a link.
    """

    def __init__(self, path: Path) -> None:
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path.name, flags, dir_fd=parent)
        finally:
            os.close(parent)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the descriptor back; may be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def read(self, name: str, limit: int) -> bytes | None:
        """A whole file; None if there is none.

        Raises:
            OSError: it is no file of the cell's own, longer than the limit, or cannot be read.
        """
        with self._opened(name, os.O_RDONLY) as file:
            if file is None:
                return None
            if (size := os.fstat(file).st_size) > limit:
                raise NotAFile(f"it has {size} bytes")
            data = _read(file, limit + 1, 0)
            if len(data) > limit:
                raise NotAFile(f"it has more than {limit} bytes")
            return data

    def tail(self, name: str, limit: int) -> bytes:
        """The end of a file; empty if there is none.

        Raises:
            OSError: as for :meth:`read`.
        """
        with self._opened(name, os.O_RDONLY) as file:
            if file is None:
                return b""
            return _read(file, limit, max(0, os.fstat(file).st_size - limit))

    def behind(self, name: str, start: int, limit: int) -> bytes:
        """What a file holds from a place on; from its beginning if it has become shorter.

        Raises:
            OSError: as for :meth:`read`.
        """
        with self._opened(name, os.O_RDONLY) as file:
            if file is None:
                return b""
            return _read(file, limit, start if start <= os.fstat(file).st_size else 0)

    def size(self, name: str) -> int | None:
        """The size of a file; None if there is no file of the cell's own by that name."""
        with contextlib.suppress(OSError):
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            return found.st_size if stat.S_ISREG(found.st_mode) else None
        return None

    def cut(self, name: str, longest: int, keep: int) -> int:
        """Cuts a file that is too long down to its end; gives the number of bytes dropped.

        Those who write to it open it for appending, so nobody writes over another.

        Raises:
            OSError: as for :meth:`read`.
        """
        if (self.size(name) or 0) <= longest:
            return 0
        with self._opened(name, os.O_RDWR | os.O_APPEND) as file:
            if file is None or (size := os.fstat(file).st_size) <= longest:
                return 0
            end = _read(file, keep, size - keep)
            os.ftruncate(file, 0)
            os.write(file, end)
            return size - len(end)

    def poke(self, name: str) -> None:
        """Writes a byte into a FIFO of the cell's own that somebody reads from.

        Raises:
            OSError: it is something else, or nobody does.
        """
        pipe = os.open(name, os.O_WRONLY | SAFELY, dir_fd=self._fd)
        try:
            found = os.fstat(pipe)
            if not stat.S_ISFIFO(found.st_mode) or found.st_nlink != 1:
                raise NotAFile("it is not a FIFO of this cell")
            os.write(pipe, b"?")
        finally:
            os.close(pipe)

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int | None]:
        try:
            file = os.open(name, flags | SAFELY, dir_fd=self._fd)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            if error.errno in NOT_FOLLOWED:
                raise NotAFile("it is not a regular file") from None
            raise
        try:
            _refuse_others(file)
            yield file
        finally:
            os.close(file)


def appended(path: Path) -> int:
    """Opens a log of the harness's own, in a folder that cells can write to; a descriptor.

    What a cell has put into its place is moved aside, so that it costs no other cell its run.
    """
    with contextlib.suppress(OSError):
        return _own(path, os.O_CREAT)
    path.rename(path.with_name(f"{path.name}.{time.time_ns()}"))
    return _own(path, os.O_CREAT | os.O_EXCL)


def _own(path: Path, flags: int) -> int:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | flags | SAFELY, 0o644)
    try:
        _refuse_others(file)
    except OSError:
        os.close(file)
        raise
    return file


def _refuse_others(file: int) -> None:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile("it is not a regular file")
    if found.st_nlink > 1:
        raise NotAFile("it is a file with other hard links")


def _read(file: int, size: int, start: int) -> bytes:
    """So many bytes of a file from a place on, fewer at its end."""
    parts = []
    while size > 0 and (part := os.pread(file, min(size, 1 << 20), start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)
