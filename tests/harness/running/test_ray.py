"""Real cells on a real Ray cluster of several nodes on this machine, one of which is killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.conftest import ROOT
from tests.harness.fake_project import CLI, command, make_project
from tests.harness.ray_bench import below, needs_ray, processes_of, wait_for
from tests.harness.ray_bench import cluster as cluster
from tests.harness.ray_bench import temporary as temporary
from tests.harness.written import cells_in
from trl_compat.errors import EXIT_INTERRUPTED, EXIT_USAGE

pytestmark = [pytest.mark.matrix, needs_ray]
NODE = "trl_compat.running.engines.node"


def stacks_on(node: Any) -> set[str]:
    """The stacks whose cells a node runs."""
    found = set()
    for process in below(node, NODE):
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            task = json.loads((Path(process.cmdline()[-1]) / "task.json").read_bytes())
            found |= {cell["stack"] for cell in task["cells"]}
    return found


def smoke(reports: Path, *more: str) -> list[str]:
    return [str(CLI), "matrix", "--profile", "smoke", "--reports", str(reports), *more]


def test_a_node_is_killed_and_every_cell_has_the_verdict_that_it_has_without_ray(
    cluster: Any, temporary: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    plain = subprocess.run(smoke(here), cwd=ROOT, capture_output=True, text=True, check=False)
    assert plain.returncode == 0, plain.stdout + plain.stderr
    running = subprocess.Popen(
        smoke(there, "--engine", "ray", "--address", cluster.address),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    kept = there / ".state" / "cells"
    begun = wait_for(lambda: list(kept.glob("trl-1.12.0__*.json")), 300)
    assert begun, running.communicate(timeout=60)[0]
    stamps = {path: path.stat().st_mtime_ns for path in begun}
    (busy,) = (node for node in cluster.worker_nodes if "trl-1.12.0" in stacks_on(node))
    cluster.remove_node(busy, allow_graceful=False)
    print(f"killed the node of trl-1.12.0 after {len(begun)} of its cells")
    said, _ = running.communicate(timeout=400)
    print(said)
    assert running.returncode == 0, said
    assert re.search(r"\d+ cells of trl-1.12.0 run elsewhere: their .* was lost", said)
    assert "raylet" not in said
    # What had been returned was not run again.
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    with_ray, without = cells_in(there), cells_in(here)
    same = ("outcome", "symptom", "masked_by", "agrees", "checks", "stand_ins", "evidence")
    assert {name: [cell[key] for key in same] for name, cell in with_ray.items()} == {
        name: [cell[key] for key in same] for name, cell in without.items()
    }
    print(f"{len(with_ray)} cells, the same verdicts as without Ray")
    cluster.shutdown()
    gone = wait_for(lambda: not processes_of(temporary), 30)
    assert gone, processes_of(temporary)
    assert not list(temporary.glob("trl-compat-*"))


def _hear_interrupts() -> None:
    # Whoever runs these tests in the background has a shell that makes them deaf to SIGINT.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_a_run_nothing_of_it_lives_on(
    how: signal.Signals, temporary: Path, tmp_path: Path
) -> None:
    root = make_project(tmp_path, ["hangs_with_a_grandchild"])
    running = subprocess.Popen(
        command(root, "--engine", "ray"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )
    try:
        in_cells = "trl-compat-*/work/*/there-*"
        there = wait_for(lambda: len(list(temporary.glob(in_cells))) == 6, 200)
        assert there, "the ranks never came up"
        # As a terminal does: to every process of the group.
        os.killpg(running.pid, how) if how is signal.SIGINT else running.send_signal(how)
        said, _ = running.communicate(timeout=90)
        assert running.returncode == (EXIT_INTERRUPTED if how is signal.SIGINT else -how), said
        gone = wait_for(lambda: not processes_of(temporary), 45)
        assert gone, processes_of(temporary)
        assert wait_for(lambda: not list(temporary.iterdir()), 15), list(temporary.iterdir())
    finally:
        running.kill()
    assert not list((root / ".trl-compat" / "cells").glob("*.json"))


def test_what_answers_and_is_no_cluster_is_one_sentence(tmp_path: Path) -> None:
    import http.server
    import threading

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    try:
        done = subprocess.run(
            smoke(tmp_path / "reports", "--engine", "ray", "--address", address),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == EXIT_USAGE
    assert done.stderr.count("\n") == 1
    assert "what answers there is no Ray cluster" in done.stderr
    assert not (tmp_path / "reports").exists()
