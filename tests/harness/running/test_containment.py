"""What a hostile cell can reach, change and leave behind, in a real stack: nothing.

The fakes are harmless to whoever runs them: what they try would change nothing if it succeeded.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness import traces
from tests.harness.conftest import ROOT
from tests.harness.ranks import FAKES, READABLE, living, observe, outcome
from trl_compat.cells.observation import Launch
from trl_compat.cells.outcome import Outcome
from trl_compat.machine import isolation
from trl_compat.machine.isolation import Containment
from trl_compat.machine.parts import Part, missing
from trl_compat.running.execution.runner import StackRunner
from trl_compat.runtime import confine
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build
from trl_compat.stacks.environments.build import Environment

pytestmark = pytest.mark.matrix
BOTH = pytest.mark.parametrize("launch", list(Launch))
room = pytest.mark.skipif(
    not isolation.containment().room, reason="no user namespaces on this machine"
)
whole = pytest.mark.skipif(
    missing(isolation.available()) != [], reason="this machine does not contain it all"
)


@pytest.fixture(scope="module")
def environment() -> Environment:
    table = matrix.load(ROOT / "matrix.yaml")
    return build.ensure("trl-1.16.0", table.stacks["trl-1.16.0"])


@pytest.fixture(scope="module", autouse=True)
def nothing_is_touched(environment: Environment) -> Iterator[None]:
    """Checkout and cache are the same, file by file, after the risky tests as before them."""
    folder = environment.python.parents[1]
    with StackRunner(environment, readable=READABLE) as first:
        observe(first, "passes")  # makes what is made once, the bytecode
    before = traces.snapshot(traces.guarded(folder))
    yield
    assert traces.changes(before, traces.snapshot(traces.guarded(folder))) == []


@pytest.fixture(scope="module")
def runner(environment: Environment) -> Iterator[StackRunner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_planted")
        with StackRunner(environment, readable=READABLE) as running:
            yield running


@pytest.fixture
def targets(tmp_path: Path, runner: StackRunner) -> Iterator[dict[str, Any]]:
    """What the hostile cell aims at, made for it."""
    name = f"trl-compat-test-{os.getpid()}"
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    sleeper = subprocess.Popen(["sleep", "300"], env={"HF_TOKEN": "hf_planted"})
    environment = runner.environment
    files = [
        environment.python.parents[1] / "lock.txt",
        next(environment.python.parents[1].glob("lib/python*/site-packages/torch/version.py")),
        next(environment.bytecode.rglob("version*.pyc")),
        FAKES / "tries_to_get_out.py",
        runner._bundle / "rank_main.py",
        ROOT / "tiny_models" / "tiny-qwen2" / "config.json",
    ]
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as by_name:
        by_path.bind(str(tmp_path / "socket"))
        by_name.bind("\0" + name)
        by_path.listen()
        by_name.listen()
        yield {
            "folder": str(tmp_path),
            "abstract": name,
            "shared": name,
            "harness": sleeper.pid,
            "files": [str(path) for path in files],
        }
    sleeper.kill()
    sleeper.wait()
    Path("/dev/shm", name).unlink(missing_ok=True)


def tried(runner: StackRunner, targets: dict[str, Any], launch: Launch) -> dict[str, Any]:
    seen = observe(runner, "tries_to_get_out", launch, conditions=targets)
    assert outcome(seen) is Outcome.PASS, seen.output
    both: list[dict[str, Any]] = [record.observations for record in seen.ranks.values()]
    assert {str(observed) for observed in both} == {str(both[0])}
    return both[0]


@whole
@BOTH
def test_a_cell_reaches_nothing_of_the_machine(
    runner: StackRunner, targets: dict[str, Any], launch: Launch
) -> None:
    found = tried(runner, targets, launch)
    assert found.pop("own") == "done"
    assert found.pop("shared") == "done"  # in a shared memory of its own
    assert not Path("/dev/shm", targets["shared"]).exists()
    assert found.pop("secrets-in-environments") == 0
    assert [name for name, what in found.items() if what == "done"] == []


def test_where_nothing_is_contained_python_refuses_the_network(
    environment: Environment, targets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "containment", Containment)
    with StackRunner(environment, readable=READABLE) as unprotected:
        found = tried(unprotected, targets, Launch.PRELOADED)
    assert (found["address"], found["name"]) == ("OSError", "OSError")
    assert found["read"] == "done"  # so the fake really tries, and nothing else is claimed
    assert len(missing(isolation.available())) == len(Part)


@pytest.mark.parametrize(
    "how",
    [
        Containment(network=True, room=True, landlock=False),
        Containment(network=True, room=False, landlock=True),
        Containment(network=False, room=False, landlock=True),
        Containment(),
    ],
    ids=lambda how: "-".join(sorted(how.parts)) or "nothing",
)
def test_cells_run_on_machines_that_contain_less(
    environment: Environment, how: Containment, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (how.network and not isolation.containment().network) or (
        how.landlock and not confine.landlock_version()
    ):
        pytest.skip("this machine does not contain even that")
    monkeypatch.setattr(isolation, "containment", lambda: how)
    with StackRunner(environment, readable=READABLE) as another:
        for launch in Launch:
            seen = observe(another, "passes", launch)
            assert (outcome(seen), seen.launch) == (Outcome.PASS, launch), seen.output
        assert observe(another, "leaves_a_child").leftovers == 2


@room
@BOTH
def test_no_cell_finds_what_another_left(runner: StackRunner, launch: Launch) -> None:
    for _ in range(2):
        seen = observe(runner, "leaves_traces", launch)
        assert outcome(seen) is Outcome.PASS
        assert [record.observations["found"] for record in seen.ranks.values()] == [[], []]


@whole
@BOTH
def test_no_cell_can_write_to_an_earlier_one(
    runner: StackRunner, targets: dict[str, Any], launch: Launch
) -> None:
    observe(runner, "passes")
    earlier = [p for p in runner._work.rglob("*") if p.is_file()]
    assert earlier
    found = tried(runner, {**targets, "files": [str(path) for path in earlier]}, launch)
    assert [k for k, what in found.items() if k.startswith("file-") and what == "done"] == []


def sleepers(seconds: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if seconds in (p.info["cmdline"] or ())]


@room
@BOTH
def test_what_hides_does_not_outlive_its_cell_and_is_counted(
    runner: StackRunner, launch: Launch
) -> None:
    seconds = f"98765.{time.monotonic_ns()}"
    seen = observe(runner, "hides_a_child", launch, conditions={"seconds": seconds})
    assert (outcome(seen), seen.leftovers) == (Outcome.PASS, 2)
    assert sleepers(seconds) == []
    assert outcome(observe(runner, "passes")) is Outcome.PASS  # the stack goes on


@room
def test_what_forks_faster_than_it_is_killed_ends_with_its_stack(runner: StackRunner) -> None:
    observe(runner, "passes")
    before = len(living(runner))
    assert observe(runner, "forks_faster_than_it_is_killed").leftovers
    assert len(living(runner)) <= before
    assert outcome(observe(runner, "passes")) is Outcome.PASS
    assert len(living(runner)) == before


@pytest.mark.parametrize("how", ["made", "changed", "gone"])
def test_the_comparison_of_checkout_and_cache_sees_every_change(how: str, tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    file.write_text("one")
    before = traces.snapshot([tmp_path])
    match how:
        case "made":
            (tmp_path / "folder" / "planted.py").touch()
        case "changed":
            file.write_text("two")
        case "gone":
            file.unlink()
    (line,) = traces.changes(before, traces.snapshot([tmp_path]))
    assert line.startswith(f"{how}: {tmp_path}")
