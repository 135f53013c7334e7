"""Whether the disk that cells write to is full: measured, not inferred from messages.

A rank on a full disk may report it, raise a library's own exception, die of a signal, or exit
silently.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

# Less than any checkpoint of a tiny model needs; what fails here may have failed for want of room.
LEAST_BYTES, LEAST_FILES = 16 * 10**6, 16
PROBE = 2**16


def shortage(folder: Path) -> str:
    """What the file system of a folder has left, as a clause, if that is next to nothing."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return ""
    # A file system that keeps no count of these says that it has none at all.
    if found.f_blocks and found.f_bavail * found.f_frsize < LEAST_BYTES:
        return (
            f"{found.f_bavail * found.f_frsize / 10**6:.1f} MB free in the folder where cells write"
        )
    if found.f_files and found.f_favail < LEAST_FILES:
        return f"{found.f_favail} free inodes in the folder where cells write"
    return ""


def refusal(folder: Path) -> str:
    """What a write into a folder ends with, as a clause, if that is for want of room: quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            probe.write(os.urandom(PROBE))
            os.fsync(probe.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{os.strerror(error.errno)} in the folder where cells write"
    return ""
