"""Ray clusters of several nodes on this machine, whose files are all in one folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.conftest import ROOT
from trl_compat.running.engines import ray_tasks

needs_ray = pytest.mark.skipif(not ray_tasks.installed(), reason="needs the extra 'ray'")


def wait_for(what: Callable[[], Any], limit: float) -> Any:
    """What a question gives as soon as it is true of something; None if it never is."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    return None


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files of all processes of a test; sockets need a short name.

    pytest's own is made before.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[str]:
    """The living processes that know a folder: by their command, or by a variable of theirs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            known = [*process.cmdline(), *process.environ().values()]
            living = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
            if living and any(str(folder) in text for text in known):
                found.append(" ".join(process.cmdline())[:200])
    return found


@pytest.fixture
def cluster(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that runs nothing, and two nodes with two CPUs each."""
    for name, value in {**ray_tasks.QUIET, **ray_tasks.OF_OURS, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": ray_tasks.OBJECTS, "include_dashboard": False}
    head = {"num_cpus": 0, **small}
    made = Cluster()
    try:
        for node in (head, {"num_cpus": 2, **small}, {"num_cpus": 2, **small}):
            made.add_node(**node)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


def below(node: Any, word: str) -> list[psutil.Process]:
    """The processes of a node whose command has a word."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(raylet).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found += [process] * (word in process.cmdline())
    return found
