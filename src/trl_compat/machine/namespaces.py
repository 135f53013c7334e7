"""Several nodes on one machine: network namespaces that a bridge joins, each with an address.

For trying what runs over several machines where there is one.  The namespaces need no root if the
kernel allows user namespaces, and they end with the processes in them.  Nodes reach each other and
nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trl_compat.machine.keeper import CLONE_NEWNET, CLONE_NEWUSER
from trl_compat.runtime import confine

INTERFACE = "eth0"
# The exit status of a node whose work raised something.
BROKEN = 70
# Tries it in a process that can be thrown away.
TRIAL = "from trl_compat.machine import namespaces; namespaces.each(2, lambda node: 0)"


def address(node: int) -> str:
    """The address of a node; they are numbered from 0."""
    return f"10.77.0.{node + 1}"


def missing() -> str:
    """Why there can be no such nodes on this machine, in words; empty if there can."""
    if sys.platform != "linux":
        return "network namespaces exist on Linux only"
    if shutil.which("ip") is None:
        return "the program ip (package iproute2) is not installed"
    done = subprocess.run(
        [sys.executable, "-c", TRIAL], capture_output=True, text=True, check=False
    )
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return f"this kernel does not allow network namespaces: {last}" if done.returncode else ""


def each(count: int, work: Callable[[int], int], grace: float = 0.0) -> list[int]:
    """Does some work in each node, all at once; the exit status of each, negative for a signal.

    To be called in a process without threads, which is in a namespace of its own from then on.

    Args:
        count: of the nodes.
        work: what a node does; gives its exit status, and ``BROKEN`` if it raises.
        grace: seconds that the others still have when a node has failed; then they are killed.

    Raises:
        OSError: the kernel does not allow it.
        subprocess.CalledProcessError: the network cannot be made.
    """
    _enter_own_network()
    _ip("link", "add", "bridge", "type", "bridge")
    _ip("link", "set", "bridge", "up")
    nodes = [_Node(number, work) for number in range(count)]
    for node in nodes:
        node.connect()
    for node in nodes:
        node.begin()
    return _wait(nodes, grace)


class _Node:
    """A process in a network namespace of its own, which waits until it is connected."""

    def __init__(self, number: int, work: Callable[[int], int]) -> None:
        self.number = number
        there, is_there = os.pipe()
        may_begin, self._begin = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._begin)  # else it would wait for itself
            self._live(is_there, may_begin, work)
        os.close(is_there)
        os.close(may_begin)
        os.set_inheritable(self._begin, False)
        os.read(there, 1)
        os.close(there)

    def _live(self, is_there: int, may_begin: int, work: Callable[[int], int]) -> None:
        status = BROKEN
        try:
            confine.die_with_parent()
            confine.call("unshare", CLONE_NEWNET)
            os.write(is_there, b"x")
            if os.read(may_begin, 1):
                _ip("address", "add", f"{address(self.number)}/24", "dev", INTERFACE)
                for name in ("lo", INTERFACE):
                    _ip("link", "set", name, "up")
                status = work(self.number)
        except BaseException as error:
            print(f"node {self.number}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def connect(self) -> None:
        """Puts the node's interface into its namespace, and the other end on the bridge."""
        outside = f"node{self.number}"
        inside = ("peer", "name", INTERFACE, "netns", str(self.pid))
        _ip("link", "add", outside, "type", "veth", *inside)
        _ip("link", "set", outside, "master", "bridge", "up")

    def begin(self) -> None:
        """Lets it do its work."""
        os.write(self._begin, b"x")
        os.close(self._begin)


def _wait(nodes: list[_Node], grace: float) -> list[int]:
    status: dict[int, int] = {}
    deadline = None
    while len(status) < len(nodes):
        pid, found = os.waitpid(-1, 0 if deadline is None else os.WNOHANG)
        if pid:
            status[pid] = os.waitstatus_to_exitcode(found)
            if status[pid] and deadline is None:
                deadline = time.monotonic() + grace
        elif deadline is not None and time.monotonic() > deadline:
            for node in nodes:
                if node.pid not in status:
                    os.kill(node.pid, signal.SIGKILL)
            deadline = None
        else:
            time.sleep(0.1)
    return [status[node.pid] for node in nodes]


def _enter_own_network() -> None:
    """As the root of a user namespace where the kernel allows that, else as root."""
    uid, gid = os.getuid(), os.getgid()
    try:
        confine.call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    except OSError:
        confine.call("unshare", CLONE_NEWNET)
        return
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)
