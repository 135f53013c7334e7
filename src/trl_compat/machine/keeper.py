"""The process between the harness and a stack: creates the stack's namespaces, and ends with it.

It is started as a script by the harness's own interpreter and uses only the standard library.  With
namespaces it consists of two processes: the outer one enters them and passes on the exit status,
the inner one is process 1 inside.  However either ends, the kernel kills everything inside: no
process can leave a process namespace by changing its session, parent or environment.

The inner one is not subject to the restrictions that it puts on the stack, so that no process of
the stack can signal or read it.  Its instructions are one JSON object (see :class:`Order`).
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[2]))
from trl_compat.runtime import confine

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH, MOUNT_SETATTR, AT_RECURSIVE = 2, 442, 0x8000
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
PR_SET_DUMPABLE = 4

DEVICES = ("null", "zero", "full", "random", "urandom")
GPU_DEVICES = ("dri", "kfd", "infiniband")  # beside those of NVIDIA, which are numbered
ALWAYS_READABLE = ("/proc", "/sys", "/etc/hosts", "/etc/passwd", "/etc/group")
# What the kernel lets its owner change from anywhere; read-only, as container runtimes have it.
KERNEL_SETTINGS = ("bus", "fs", "irq", "sys", "sysrq-trigger")
# More processes and threads than any cell needs, fewer than harm a machine.
PROCESSES = 16384
# A status that no program gives by itself: the room could not be made.
NO_ROOM = 113


@dataclass(frozen=True)
class Order:
    """What is to run, and what it may reach.

    Attributes:
        command: of the stack's first process; ``cwd`` is where it starts.
        parent: the process that must still be the parent.
        network: a network of its own, with loopback only.
        hostname: what the machine is called inside, where there are namespaces.
        room: process, mount and IPC namespaces of its own, and a root that holds nothing but what
            is named here.
        landlock: Landlock's rules for the same.
        readable: files and folders that it may read and execute.
        writable: folders that it may write to; ``fixed`` are folders below them that it may not.
        gpus: whether it may use the machine's GPUs.
        report: file descriptor to which ``{"left": N}`` goes: how many processes were still there
            when the command had ended.
    """

    command: list[str]
    cwd: str
    parent: int
    network: bool
    room: bool
    landlock: bool
    readable: list[str]
    writable: list[str]
    gpus: bool
    report: int | None = None
    hostname: str = "localhost"


def main(order: Order) -> NoReturn:
    """Makes the room, runs the command in it and leaves as it left."""
    confine.die_with_parent()
    if os.getppid() != order.parent:
        os._exit(NO_ROOM)  # it died before it could be asked for
    # Of 1 byte: no core file is written, and no program of the machine is started to take one.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    with contextlib.suppress(OSError):  # if memory runs out, before anything of the user's
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    if order.report is not None:
        os.set_inheritable(order.report, False)
    try:
        if order.network or order.room:
            enter_namespaces(order.network, order.room, order.hostname)
        if not order.room:
            start(order)
        inner = os.fork()
        if inner == 0:
            keep(order)
    except OSError as error:
        print(f"trl-compat: the cell's namespace cannot be created: {error}", file=sys.stderr)
        os._exit(NO_ROOM)
    for stream in (0, 1):
        os.close(stream)
    _, status = os.waitpid(inner, 0)
    leave_like(status)


def enter_namespaces(network: bool, room: bool, hostname: str) -> None:
    """Own namespaces, through a user namespace where the machine allows it, else as root."""
    flags = CLONE_NEWUTS | (CLONE_NEWNET if network else 0)
    if room:
        flags |= CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC
    uid, gid = os.getuid(), os.getgid()
    try:
        confine.call("unshare", CLONE_NEWUSER | flags)
    except OSError:
        confine.call("unshare", flags)
    else:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    socket.sethostname(hostname)
    if not network:
        return
    with socket.socket() as any_socket:
        request = struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request.ljust(40, b"\0"))


def keep(order: Order) -> NoReturn:
    """As process 1: makes the root, starts the command, buries the dead, and ends with it."""
    confine.die_with_parent()
    try:
        with contextlib.suppress(OSError):
            set_limit(resource.RLIMIT_NPROC, PROCESSES)
        make_root(order)
        child = os.fork()
        if child == 0:
            start(order)
    except OSError as error:
        print(f"trl-compat: the cell's namespace cannot be created: {error}", file=sys.stderr)
        os._exit(NO_ROOM)
    # Whoever is inside can neither read its memory nor trace it; signals from inside do not count.
    confine.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    confine.drop_capabilities()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for stream in (0, 1):
        os.close(stream)
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    if order.report is not None:
        left = sum(living(int(name)) for name in os.listdir("/proc") if name.isdigit())
        with contextlib.suppress(OSError):
            os.write(order.report, json.dumps({"left": left}).encode())
    leave_like(status, inner=True)


def living(pid: int) -> bool:
    """Whether a process other than this one runs."""
    if pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return text.rpartition(")")[2].split()[0] not in "ZX"
    return False


def leave_like(status: int, *, inner: bool = False) -> NoReturn:
    """Ends as another process ended: with its exit status, or by the signal that killed it.

    Process 1 cannot be killed by a signal of its own: it tells the outer one by its status.
    """
    code = os.waitstatus_to_exitcode(status)
    if inner:
        os._exit(code if code >= 0 else 128 - code)
    if code > 128:
        number = code - 128
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else NO_ROOM)


def start(order: Order) -> NoReturn:
    """Becomes the command, without any privilege and restricted to what is named.

    The last thing is to die with the parent: the kernel forgets that when privileges change.
    """
    paths = [Path(path) for path in order.readable]
    writable = [Path(path) for path in order.writable]
    if order.landlock:
        # Below /proc are the room's own processes; what is the machine's there is read-only.
        own = [Path("/proc")] if order.room else []
        confine.restrict(
            readable=[*paths, *map(Path, ALWAYS_READABLE)],
            devices=[*devices_below(Path("/dev"), order.gpus), *own],
            writable=[*writable, Path("/dev/shm")],
        )
    confine.drop_capabilities()
    confine.die_with_parent()
    os.chdir(order.cwd)
    os.execve(order.command[0], order.command, dict(os.environ))


def devices_below(dev: Path, gpus: bool) -> list[Path]:
    """The devices that every program needs, and the machine's GPUs."""
    found = glob.glob(f"{dev}/nvidia*") if gpus else []
    more = [dev / name for name in GPU_DEVICES if gpus]
    return [
        path
        for path in (*(dev / name for name in DEVICES), *map(Path, found), *more)
        if path.exists()
    ]


def set_limit(what: int, value: int) -> None:
    """Lowers a limit of resources; never raises one."""
    _, hard = resource.getrlimit(what)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (lowest, lowest))


def make_root(order: Order) -> None:
    """A root folder in memory with what is named and nothing else, in place of the machine's.

    The machine's root is moved aside first, so that whatever is mounted hides no source.
    """
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    # Any folder will do to begin on: what is mounted on it is seen in this namespace only.
    begin = Path(order.cwd)
    mount("root", begin, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k")
    for folder in (begin / "machine", begin / "root"):
        folder.mkdir()
    pivot_root(begin, begin / "machine")
    os.chdir("/")
    root = Root(Path("/machine"), Path("/root"))
    mount("root", root.new, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
    for path in sorted(map(Path, order.readable)):
        root.show(path, read_only=True)
    root.show(Path("/sys"), read_only=True)
    root.make_proc()
    root.make_dev(order.gpus)
    root.make_etc()
    for name in ("tmp", "var/tmp", "run"):
        (root.new / name).mkdir(parents=True, exist_ok=True)
    for path in map(Path, order.writable):
        root.show(path, read_only=False)
    os.chdir(root.new)
    # The new root over the old one at the same place, then the old one is taken from below it.
    pivot_root(Path("."), Path("."))
    confine.call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    set_attributes(Path("/"), MS_RDONLY)


class Root:
    """A root folder in the making.

    Args:
        machine: where the machine's own root is now.
        new: where the new one is made, an empty folder in memory.
    """

    def __init__(self, machine: Path, new: Path) -> None:
        self.machine, self.new = machine, new
        self._shown: list[Path] = []

    def show(self, path: Path, *, read_only: bool) -> None:
        """Makes a path of the machine visible under the same name, with the links on the way."""
        real = self._resolve(path)
        if real is None:
            return
        if read_only and any(real == other or other in real.parents for other in self._shown):
            return
        source, target = _below(self.machine, real), _below(self.new, real)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        mount(source, target, "", MS_BIND | MS_REC)
        attributes = MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0)
        set_attributes(target, attributes, recursive=True)
        self._shown.append(real)

    def _resolve(self, path: Path) -> Path | None:
        """The path without links, each of which is made in the new root, too; None if it is not."""
        current, parts = Path("/"), list(path.parts[1:])
        for _ in range(400):
            if not parts:
                return current
            name = parts.pop(0)
            current = current.parent if name == ".." else current / name
            source = _below(self.machine, current)
            if source.is_symlink():
                self._link(current, os.readlink(source))
                target = Path(os.readlink(source))
                current = Path("/") if target.is_absolute() else current.parent
                parts = [*(part for part in target.parts if part != "/"), *parts]
            elif not source.exists():
                return None
        return None  # links in a circle

    def _link(self, path: Path, target: str) -> None:
        link = _below(self.new, path)
        with contextlib.suppress(OSError):  # it is there, in a folder that is shown
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)

    def make_proc(self) -> None:
        """The processes of this room; the kernel's settings there are read-only."""
        proc = self.new / "proc"
        proc.mkdir()
        mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        with contextlib.suppress(OSError):  # whoever is inside needs no user namespaces
            (proc / "sys" / "user" / "max_user_namespaces").write_text("0", encoding="ascii")
        for name in KERNEL_SETTINGS:
            if (proc / name).exists():
                mount(proc / name, proc / name, "", MS_BIND | MS_REC)
                set_attributes(proc / name, MS_RDONLY, recursive=True)

    def make_dev(self, gpus: bool) -> None:
        """The devices, and shared memory of this room's own."""
        dev = self.new / "dev"
        dev.mkdir()
        for source in devices_below(self.machine / "dev", gpus):
            target = dev / source.name
            target.mkdir() if source.is_dir() else target.touch()
            mount(source, target, "", MS_BIND | MS_REC)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            (dev / name).symlink_to(f"/proc/self/fd/{number}")
        (dev / "fd").symlink_to("/proc/self/fd")
        shm = dev / "shm"
        shm.mkdir()
        mount("shm", shm, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=25%")

    def make_etc(self) -> None:
        """Names of the user and of this machine; the machine's own are nobody's business."""
        etc, uid, gid = self.new / "etc", os.getuid(), os.getgid()
        etc.mkdir(exist_ok=True)
        home = os.environ.get("HOME", "/")
        root = "root:x:0:0:root:/:/bin/sh\n" if uid else ""
        (etc / "passwd").write_text(f"{root}cell:x:{uid}:{gid}:cell:{home}:/bin/sh\n", "ascii")
        (etc / "group").write_text(f"cell:x:{gid}:\n", encoding="ascii")
        (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="ascii")


def _below(root: Path, path: Path) -> Path:
    return root.joinpath(*path.parts[1:])


def mount(source: str | Path, target: str | Path, kind: str, flags: int, options: str = "") -> None:
    """``mount(2)``."""
    words = [str(word).encode() for word in (source, target, kind)]
    try:
        confine.call("mount", *words, flags, options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from None


def set_attributes(target: Path, attributes: int, *, recursive: bool = False) -> None:
    """Adds attributes to a mount, and to all below it; takes none away."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    how = AT_RECURSIVE if recursive else 0
    confine.syscall(MOUNT_SETATTR, -100, str(target).encode(), how, wanted, len(wanted))


def pivot_root(new: Path, old: Path) -> None:
    """Makes one folder the root, and moves the root there was below another."""
    number = PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(38, f"pivot_root is not known on {platform.machine()}")
    confine.syscall(number, str(new).encode(), str(old).encode())


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
