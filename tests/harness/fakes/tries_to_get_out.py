"""Tries to reach what is not a cell's business; harmless wherever it succeeds.

Files are opened for writing and not written to, modes are set to what they are, signals are number
0.  Its conditions name what the test has made for it: ``folder`` with a secret, a socket and a file
in it, ``abstract``, the name of a socket, ``harness``, a process, ``shared``, a name in shared
memory, and ``files`` that nobody but the harness may write.
"""

import ctypes
import os
import socket
from pathlib import Path


def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"


def connect(address):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(address)


def system(function, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), function)


def environments_with(text):
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += text in (process / "environ").read_bytes()
        except OSError:
            continue
    return found


def scenario(rank):
    folder = Path(rank.condition("folder"))
    secret, harness = folder / "secret", rank.condition("harness")
    rank.check("tried", True, "")
    rank.observe("address", attempt(lambda: socket.create_connection(("1.1.1.1", 443), 5)))
    rank.observe("name", attempt(lambda: socket.create_connection(("pypi.org", 443), 5)))
    tries = {
        "read": secret.read_bytes,
        "list": lambda: os.listdir(folder),
        "write": lambda: secret.open("r+b").close(),
        "make": lambda: (folder / f"made-{rank.rank}").touch(),
        "mode": lambda: secret.chmod(0o600),
        "owner": lambda: os.chown(secret, os.getuid(), os.getgid()),
        "times": lambda: os.utime(secret),
        "socket": lambda: connect(str(folder / "socket")),
        "abstract": lambda: connect("\0" + rank.condition("abstract")),
        "environment": lambda: Path(f"/proc/{harness}/environ").read_bytes(),
        "memory": lambda: Path(f"/proc/{harness}/mem").open("rb").close(),
        "signal": lambda: os.kill(harness, 0),
        "core-pattern": lambda: Path("/proc/sys/kernel/core_pattern").open("r+").close(),
        "namespace": lambda: system("unshare", 0x10000000),
        "root": lambda: system("chroot", b"/proc"),
        "user": lambda: os.setuid(os.getuid() + 1),
    }
    for name, action in tries.items():
        rank.observe(name, attempt(action))
    for number, path in enumerate(rank.condition("files")):
        rank.observe(f"file-{number}", attempt(lambda path=path: open(path, "r+b").close()))
    rank.observe("shared", attempt(lambda: Path("/dev/shm", rank.condition("shared")).touch()))
    rank.observe("secrets-in-environments", environments_with(b"hf_planted"))
    rank.observe("own", attempt((rank.folder / f"own-{rank.rank}").touch))
