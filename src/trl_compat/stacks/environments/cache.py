"""The harness's folder in the user's cache: locks, wheels and environments, safe for many runs."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from filelock import FileLock

from trl_compat.errors import BadInput, HarnessError
from trl_compat.files.writing import write_atomically


def root() -> Path:
    """``TRL_COMPAT_CACHE``, or ``trl-compat`` in the user's cache folder."""
    chosen = os.environ.get("TRL_COMPAT_CACHE")
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("trl-compat"))


def folder(name: str) -> Path:
    """A folder of the cache, made if need be.

    Raises:
        BadInput: it cannot be made.
    """
    path = root() / name
    with machine_errors():
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """A lock between processes for the making of one file or folder.

    Raises:
        BadInput: the cache cannot be written.
    """
    lock = FileLock(f"{path}.lock")
    with machine_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write(path: Path, text: str) -> None:
    """Writes a file so that a reader sees all of it or nothing.

    Raises:
        BadInput: the disk is full, or the cache cannot be written.
    """
    with machine_errors():
        write_atomically(path, text)


@contextlib.contextmanager
def machine_errors() -> Iterator[None]:
    """Says in one sentence what the machine refuses.

    Raises:
        BadInput: the user can mend it.
        HarnessError: it is something else.
    """
    try:
        yield
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                raise BadInput(
                    "the disk is full; free some space and run the same command again"
                ) from None
            case errno.EACCES | errno.EPERM | errno.EROFS | errno.ENOTDIR | errno.EEXIST:
                raise BadInput(
                    f"the cache cannot be written: {error.strerror}: {error.filename}; fix that, "
                    "or choose another folder with TRL_COMPAT_CACHE"
                ) from None
            case _:
                raise HarnessError(f"the cache: {error}; run the same command again") from None
