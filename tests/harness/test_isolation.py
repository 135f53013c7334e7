"""A cell is isolated only in ways that were seen to work as a whole on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trl_compat.execution import isolation, processes

LOOPBACK = (
    "import socket\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "socket.create_connection(server.getsockname(), 5)\n"
)


def works_in_a_cell(folder: Path) -> bool:
    """Whether a process that is started as those of cells are can use loopback."""
    process: subprocess.Popen[str] = processes.spawn(
        [sys.executable, "-c", LOOPBACK],
        env={},
        cwd=folder,
        stderr=folder / "log",
        pipes=False,
        writable=[folder],
    )
    return process.wait(30) == 0


def half_a_network() -> None:
    """What a machine does that allows a namespace and nothing in it: no loopback, then an error."""
    isolation._call("unshare", isolation.CLONE_NEWNET)
    raise PermissionError


@pytest.fixture
def probed_again() -> Iterator[None]:
    isolation.available.cache_clear()
    yield
    isolation.available.cache_clear()


def test_loopback_works_in_a_cell(tmp_path: Path) -> None:
    assert works_in_a_cell(tmp_path)


@pytest.mark.skipif(isolation.NETWORK not in isolation.available(), reason="no namespaces here")
@pytest.mark.usefixtures("probed_again")
def test_a_network_that_cannot_be_finished_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_own_network", half_a_network)
    assert isolation.NETWORK not in isolation.available()
    assert works_in_a_cell(tmp_path)
