"""Tasks of a real Ray cluster whose nodes run no cells: said, lost with a node, cancelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.ray_bench import below, needs_ray, processes_of, wait_for
from tests.harness.ray_bench import cluster as cluster
from tests.harness.ray_bench import temporary as temporary
from trl_compat.running.engines import ray_relay, ray_tasks
from trl_compat.running.engines.batches import Request
from trl_compat.running.engines.dispatch import Lost, Over

pytestmark = [pytest.mark.matrix, needs_ray]
FAKE = "tests.harness.fake_node"
WHOLE_NODE = Request(cpus=2, gpus=0, memory=0)


def test_what_a_task_has_said_arrives_a_lost_one_says_so_and_a_cancelled_one_leaves_nothing(
    cluster: Any,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ray_relay, "MODULE", FAKE)
    with ray_tasks.at(cluster.address) as tasks:
        assert sorted(node.cpus for node in tasks.nodes()) == [0, 2, 2]
        tasks.prepare({"order.json": b"", "files.zip": b""})
        said = ["one", "two", "the third of them"]
        running = [tasks.start(json.dumps(said).encode(), WHOLE_NODE) for _ in range(2)]
        heard: dict[Any, list[str]] = {task: [] for task in running}
        while any(len(lines) < len(said) for lines in heard.values()):
            if found := tasks.next(running, 60):
                task, what = found
                assert isinstance(what, str)
                heard[task].append(what)
        assert list(heard.values()) == [said, said]

        first, second = cluster.worker_nodes
        (there,) = below(first, FAKE)
        cluster.remove_node(first, allow_graceful=False)
        lost = wait_for(lambda: tasks.next(running, 5), 60)
        assert lost is not None
        assert isinstance(lost[1], Lost)
        assert "their node was lost" in lost[1].why or "their worker died" in lost[1].why
        assert wait_for(lambda: not there.is_running(), 30), "it outlived its node"

        (left,) = [task for task in running if task is not lost[0]]
        (there,) = below(second, FAKE)
        tasks.cancel(left)
        over = wait_for(lambda: tasks.next([left], 5), 60)
        assert over == (left, Over())
        assert wait_for(lambda: not there.is_running(), 30), "it outlived its task"
        assert psutil.pid_exists(second.all_processes["raylet"][0].process.pid)
    assert "raylet" not in "".join(capfd.readouterr())
    cluster.shutdown()
    assert wait_for(lambda: not processes_of(temporary), 30), processes_of(temporary)
    assert wait_for(lambda: not list(temporary.glob("trl-compat-node-*")), 15)
