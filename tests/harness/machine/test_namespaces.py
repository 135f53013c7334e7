"""Nodes that are network namespaces of this machine reach each other, and end as they should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trl_compat.machine import namespaces

pytestmark = pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing() or "none")

# Every node serves one connection and makes one to the next; a node says what it was told.
GREET = """
import socket, sys
from trl_compat.machine import namespaces
count = int(sys.argv[1])
def work(node):
    server = socket.create_server(("0.0.0.0", 7000))
    there = None
    while there is None:
        try:
            there = socket.create_connection((namespaces.address((node + 1) % count), 7000), 5)
        except ConnectionRefusedError:
            pass
    there.sendall(str(node).encode())
    there.close()
    peer, (address, _) = server.accept()
    open(f"{sys.argv[2]}/{node}", "w").write(f"{peer.recv(9).decode()} {address}")
    return node
print(namespaces.each(count, work, 30))
"""


def run(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("count", [2, 4])
def test_nodes_reach_each_other_by_their_addresses(tmp_path: Path, count: int) -> None:
    done = run(GREET, str(count), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(range(count))
    told = {int(path.name): path.read_text() for path in tmp_path.iterdir()}
    before = {node: (node - 1) % count for node in range(count)}
    assert told == {n: f"{before[n]} {namespaces.address(before[n])}" for n in range(count)}


def test_there_is_no_way_out() -> None:
    text = (
        "import socket\n"
        "from trl_compat.machine import namespaces\n"
        "def work(node):\n"
        "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:\n"
        "        return any_socket.connect_ex(('192.0.2.1', 9)) and 3\n"
        "print(namespaces.each(2, work, 30))\n"
    )
    assert json.loads(run(text).stdout) == [3, 3]


def test_a_node_that_raises_is_told_and_the_others_come_to_their_end() -> None:
    text = (
        "from trl_compat.machine import namespaces\n"
        "def work(node):\n"
        "    return 1 // node and 0\n"
        "print(namespaces.each(2, work, 30))\n"
    )
    done = run(text)
    assert json.loads(done.stdout) == [namespaces.BROKEN, 0]
    assert "node 0: integer division or modulo by zero" in done.stderr


def test_who_waits_for_a_node_that_failed_is_ended() -> None:
    text = (
        "import signal\n"
        "from trl_compat.machine import namespaces\n"
        "def work(node):\n"
        "    return 1 if node else signal.pause() or 0\n"
        "print(namespaces.each(2, work, 0.1))\n"
    )
    assert json.loads(run(text).stdout) == [-9, 1]


def test_a_machine_without_the_program_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "the program ip (package iproute2) is not installed" in namespaces.missing()
