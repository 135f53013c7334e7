"""What a process on Linux can give up for itself and all that it starts: files and privileges.

Through the kernel's own interfaces (Landlock, ``prctl``, ``capset``), because no package may be
needed here: the keeper of a stack's processes calls this before it starts them, and the launcher of
a preloaded cell calls it again, so that one cell cannot write where another reads.  What was given
up never comes back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_CHILD_SUBREAPER = 1, 24, 28, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
# Root is nobody special, and stays so: SECBIT_NOROOT, NO_SETUID_FIXUP and their locks.
SECURE_BITS = 0b1111
CAPABILITY_VERSION_3 = 0x20080522
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture

# Landlock's rights on files.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK, REFER, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
READING = EXECUTE | READ_FILE | READ_DIR
WRITING = ((1 << 13) - 1) & ~READING  # write, remove and make, as Landlock's first version has them
LATER = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the others are for folders
# From Landlock's version 6: abstract unix sockets of, and signals to, processes outside.
SCOPES_SINCE, SCOPES = 6, 0b11


def landlock_version() -> int:
    """Version of Landlock in this kernel; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    with contextlib.suppress(OSError):
        return syscall(CREATE_RULESET, None, 0, 1)
    return 0


def restrict(
    *,
    writable: Iterable[Path],
    devices: Iterable[Path] = (),
    readable: Iterable[Path] | None = None,
) -> None:
    """Gives up access to files, and to processes outside, but for what is named.

    Args:
        writable: folders below which everything may be read, written, made and removed.
        devices: folders or files below which what is there may be read, written and controlled.
        readable: files and folders that may be read and executed; None leaves reading as it is.

    Raises:
        OSError: this kernel has no Landlock.
    """
    version = syscall(CREATE_RULESET, None, 0, 1)
    write = WRITING | sum(right for since, right in LATER.items() if version >= since)
    handled = write | (READING if readable is not None else 0)
    scopes = SCOPES if version >= SCOPES_SINCE else 0
    size = 8 if version < 4 else 16 if version < SCOPES_SINCE else 24  # what this version knows
    attributes = struct.pack("=QQQ", handled, 0, scopes)[:size]
    ruleset = syscall(CREATE_RULESET, attributes, len(attributes), 0)
    made_elsewhere = MAKE_CHAR | MAKE_BLOCK
    used = WRITE_FILE | TRUNCATE | IOCTL_DEV | READ_FILE | READ_DIR
    try:
        for rights, paths in (
            (READING, readable or ()),
            (used, devices),
            ((READING | write) & ~made_elsewhere, writable),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        forgo_new_privileges()
        syscall(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # what is not there needs no permission
    try:
        if not os.path.isdir(f"/proc/self/fd/{place}"):
            rights &= OF_FILES
        if rights:
            syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def forgo_new_privileges() -> None:
    """Makes set-user-id programs ordinary ones."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> None:
    """Gives up every capability, and that of root to get them back by starting a program."""
    with contextlib.suppress(OSError):  # only who has capabilities may, and needs to
        call("prctl", PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0)
    with contextlib.suppress(OSError):
        for capability in range(64):  # ends at the first that the kernel does not know
            call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
    with contextlib.suppress(OSError):
        call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    call("capset", header, bytes(24))
    forgo_new_privileges()


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies, in whatever way (Linux)."""
    if sys.platform == "linux":
        call("prctl", PR_SET_PDEATHSIG, 9, 0, 0, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of its orphaned descendants (Linux), so none is lost sight of.

    The elastic agent starts ranks in sessions of their own: a process group does not hold them.
    """
    if sys.platform == "linux":
        call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def syscall(number: int, *arguments: object) -> int:
    """A system call that the C library has no function for."""
    return call("syscall", number, *arguments)


def call(function: str, *arguments: object) -> int:
    """A function of the C library.

    Raises:
        OSError: it refuses.
    """
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = getattr(ctypes.CDLL(None, use_errno=True), function)(*words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
    return result
