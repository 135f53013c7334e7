"""What keeps a cell to itself: no network but its own loopback, no writes but in its own folders.

Old releases with known holes run in cells, and what they would download would make a verdict
depend on the day.  Linux gives both guarantees without root where it allows user namespaces
(network) and has Landlock (files, from 5.13).  What the machine does not give is done without, and
said: :func:`available` is part of every report, and ranks then refuse in Python what Python can
refuse (see ``trl_compat.runtime.offline``).

Called between fork and exec of a cell's first process; everything below inherits it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import socket
import struct
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

NETWORK, FILES = "network", "files"

CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWNET = 0x04000000, 0x10000000, 0x40000000
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
# write and remove files, make files, folders, devices, sockets, fifos and links; by Landlock's ABI
WRITES = {1: 0b1_1111_1111_0010, 2: 1 << 13, 3: 1 << 14}
ALWAYS_WRITABLE = ("/dev", "/proc")


def enter(writable: Sequence[Path], parts: Collection[str] = (NETWORK, FILES)) -> set[str]:
    """Isolates this process and all that it will start; gives what was achieved.

    A part that fails half-way leaves a process that is no use (a network without loopback, say), so
    whoever goes on after it asks for what :func:`available` has shown to work as a whole.

    Args:
        parts: what to do.
        writable: the folders below which it may still write; devices (``/dev/shm`` among them) and
            ``/proc`` stay as they are.
    """
    if sys.platform != "linux":
        return set()
    done = set()
    if NETWORK in parts:
        with contextlib.suppress(OSError):
            _own_network()
            done.add(NETWORK)
    if FILES in parts:
        with contextlib.suppress(OSError):
            _write_only_below([*writable, *map(Path, ALWAYS_WRITABLE)])
            done.add(FILES)
    return done


@functools.cache
def available() -> frozenset[str]:
    """What :func:`enter` achieves on this machine, found by trying it in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(sorted(enter([]))).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return frozenset(said.split())


def _own_network() -> None:
    """A network namespace that has only loopback, and the host name ``localhost``.

    Ranks find each other by host name; that of the machine would mean an address out of reach.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        _call("unshare", CLONE_NEWNET | CLONE_NEWUTS)
    except OSError:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWUTS)
        _call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    socket.sethostname("localhost")
    with socket.socket() as any_socket:
        request = struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request.ljust(40, b"\0"))


def _write_only_below(folders: Sequence[Path]) -> None:
    abi = _syscall(CREATE_RULESET, None, 0, 1)
    access = sum(bits for since, bits in WRITES.items() if abi >= since)
    attributes = struct.pack("=Q", access)
    ruleset = _syscall(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for folder in folders:
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                _syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", access, place), 0)
            finally:
                os.close(place)
        _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _syscall(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _syscall(number: int, *arguments: object) -> int:
    return _call("syscall", number, *arguments)


def _call(function: str, *arguments: object) -> int:
    result: int = getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
