"""What goes to a cluster, what comes back and what is sent once more; the cluster is a fake."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import LOCK, OLD, outcomes
from trl_compat import advisories, results
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cli.device import choose_device
from trl_compat.cli.matrix import conduct, open_engine
from trl_compat.errors import EXIT_HARNESS, EXIT_INTERRUPTED, BadInput
from trl_compat.files import project
from trl_compat.machine import host
from trl_compat.machine.host import STACK_MEMORY
from trl_compat.running import matrix_run
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.engines import dispatch, parcel, ray_engine, ray_tasks
from trl_compat.running.engines.batches import (
    MOST_LOSSES,
    Node,
    Request,
)
from trl_compat.running.engines.dispatch import ClusterEngine, Lost, Over
from trl_compat.running.execution.watch import Limits
from trl_compat.running.store import CellRecord
from trl_compat.stacks import matrix as tables
from trl_compat.stacks.environments import Unavailable, interpreters, locks

LARGE, SMALL = Node(8, 0, 2**36), Node(2, 0, 2**34)


class Cluster:
    """A faked cluster; what a task says is what ``node`` makes of it."""

    def __init__(self, node: Callable[[parcel.Task], Iterator[Any]], *nodes: Node) -> None:
        self._node, self._nodes = node, list(nodes) or [SMALL]
        self.sent: list[parcel.Task] = []
        self.asked: list[Request] = []
        self.at_once, self.cancelled = 0, 0
        self._streams: dict[Hashable, Iterator[Any]] = {}

    def nodes(self) -> list[Node]:
        return self._nodes

    def prepare(self, files: dict[str, bytes]) -> None:
        assert set(files) == {parcel.FILES, parcel.ORDER}
        self.run = json.loads(files[parcel.ORDER])["run"]

    def start(self, task: bytes, wanted: Request) -> Hashable:
        self.sent.append(parcel.Task.model_validate_json(task))
        self.asked.append(wanted)
        self._streams[len(self.sent)] = self._node(self.sent[-1])
        return len(self.sent)

    def next(self, running: Collection[Hashable], limit: float) -> Any:
        self.at_once = max(self.at_once, len(running))
        first = next(iter(running))
        said = next(self._streams[first], Over())
        if isinstance(said, dict):
            said = json.dumps(said)
        return None if said is None else (first, said)

    def cancel(self, task: Hashable) -> None:
        self.cancelled += 1
        self._streams[task] = iter(())


def seen(one: Cell) -> Observation:
    broken = one.expectation.outcome is Outcome.REPRODUCED
    return observed(RAISED, RAISED) if broken else observed(record(), record())


class Runs:
    """Runs of the command on a faked cluster, in a project of two cells."""

    def __init__(self, where: project.Project) -> None:
        self.where = where

    def key(self, one: Cell) -> str:
        table = tables.load(self.where.matrix_file)
        order = RunSpec(
            root=self.where.root,
            matrix_file=self.where.matrix_file,
            reports=self.where.reports,
            state=self.where.state,
            models={"tiny-qwen2": "digest"},
            matrix=table,
            catalogue=advisories.load(self.where.advisories, self.where.reproductions),
            cells=[one],
            limits=Limits(),
        )
        return Campaign(order).key(one, "lock")

    def kept(self, one: Cell, run: str = "") -> dict[str, Any]:
        found = CellRecord(
            key=self.key(one),
            cell_id=one.id,
            surroundings=LOCK,
            observations=(seen(one),),
            run=run,
        )
        return {"record": found.model_dump(mode="json")}

    def well(self, task: parcel.Task) -> Iterator[Any]:
        for one in task.cells:
            yield {"begins": one.id}
            yield self.kept(one)

    def on(self, cluster: Cluster, jobs: int | None = None) -> int:
        engine: Any = ClusterEngine(cluster, jobs)
        return conduct(self.where, OLD, matrix_run.Options(jobs=1), engine)


@pytest.fixture
def runs(where: project.Project, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(dispatch, "_lock_of", lambda stack: "the text of a lock")
    return Runs(where)


def test_a_run_on_a_cluster_reports_like_one_here(runs: Runs) -> None:
    cluster = Cluster(runs.well)
    assert runs.on(cluster) == 0
    assert outcomes(runs.where) == {"ddp": Outcome.PASS, "zero3": Outcome.REPRODUCED}
    assert [task.lock for task in cluster.sent] == ["the text of a lock"]
    assert cluster.asked == [Request(cpus=2, gpus=0, memory=STACK_MEMORY)]


def test_what_a_lost_batch_has_returned_stays_and_the_rest_goes_elsewhere(runs: Runs) -> None:
    def dies_once(task: parcel.Task) -> Iterator[Any]:
        if len(cluster.sent) > 1:
            yield from runs.well(task)
            return
        yield {"begins": task.cells[0].id}
        yield runs.kept(task.cells[0])
        yield {"begins": task.cells[1].id}
        yield Lost("their node was lost")

    cluster = Cluster(dies_once)
    assert runs.on(cluster) == 0
    assert outcomes(runs.where) == {"ddp": Outcome.PASS, "zero3": Outcome.REPRODUCED}
    first, second = cluster.sent
    assert [one.variant for one in first.cells] == ["ddp", "zero3"]
    assert [one.variant for one in second.cells] == ["zero3"]
    # Its control is not run again, and judges it there all the same.
    assert [known.cell_id for known in second.records] == [first.cells[0].id]


@pytest.mark.parametrize(
    "end", [Lost("their worker died"), {"failed": "Segmentation fault", "on": "b7"}]
)
def test_a_cell_that_takes_its_node_with_it_every_time_is_a_harness_error(
    runs: Runs, end: Any
) -> None:
    def dies_in_zero3(task: parcel.Task) -> Iterator[Any]:
        for one in task.cells:
            yield {"begins": one.id}
            if one.variant == "zero3":
                yield end
                return
            yield runs.kept(one)

    cluster = Cluster(dies_in_zero3)
    assert runs.on(cluster) == EXIT_HARNESS
    assert outcomes(runs.where) == {"ddp": Outcome.PASS, "zero3": Outcome.HARNESS_ERROR}
    assert len(cluster.sent) == MOST_LOSSES
    found = results.read(runs.where.reports / "results.json")
    assert found is not None
    (lost,) = [one for one in found.cells if one.variant == "zero3"]
    assert "its node or worker was lost 3 times while it ran" in lost.reason


def test_a_verdict_that_surprises_is_not_retried_but_confirmed_alone(runs: Runs) -> None:
    def surprises(task: parcel.Task) -> Iterator[Any]:
        for one in task.cells:
            yield {"begins": one.id}
            told = runs.kept(one)
            if one.variant == "zero3":
                told["record"]["observations"] = [
                    observed(record(), record()).model_dump(mode="json")
                ]
            if task.records and task.records[-1].cell_id == one.id:  # it is to be confirmed
                told["record"] = task.records[-1].model_dump(mode="json")
                told["record"]["confirmation"] = told["record"]["observations"][0]
            yield told

    cluster = Cluster(surprises)
    assert runs.on(cluster) == 1
    assert [[one.variant for one in task.cells] for task in cluster.sent] == [
        ["ddp", "zero3"],
        ["zero3"],
    ]
    assert outcomes(runs.where)["zero3"] is Outcome.PASS


def test_an_interrupt_cancels_and_keeps_what_has_arrived(runs: Runs) -> None:
    def interrupted(task: parcel.Task) -> Iterator[Any]:
        yield {"begins": task.cells[0].id}
        yield runs.kept(task.cells[0])
        raise KeyboardInterrupt

    cluster = Cluster(interrupted)
    assert runs.on(cluster) == EXIT_INTERRUPTED
    assert cluster.cancelled == 1
    assert outcomes(runs.where) == {"ddp": Outcome.PASS}


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"bad_input": "the disk is full", "on": "b7"}, "node b7 .* run cells: the disk is full"),
        (
            {"failed": "ModuleNotFoundError: No module named 'trl_compat'", "on": "b7"},
            "trl-compat is not installed for the Python of its Ray",
        ),
    ],
)
def test_what_is_wrong_with_a_node_ends_the_run_and_keeps_the_rest(
    runs: Runs, said: dict[str, str], sentence: str
) -> None:
    def wrong(task: parcel.Task) -> Iterator[Any]:
        yield runs.kept(task.cells[0])
        yield said

    cluster = Cluster(wrong)
    with pytest.raises(BadInput, match=sentence):
        runs.on(cluster)
    assert cluster.cancelled == 1
    assert (runs.where.state / "cells").is_dir()


def test_a_waiting_batch_asks_for_less_when_the_largest_node_is_gone(runs: Runs) -> None:
    def waits_once(task: parcel.Task) -> Iterator[Any]:
        if len(cluster.sent) == 1:
            cluster.nodes()[:] = [Node(1, 0, 2**30)]
            yield None
        else:
            yield from runs.well(task)

    cluster = Cluster(waits_once, LARGE)
    assert runs.on(cluster) == 0
    assert [asked.cpus for asked in cluster.asked] == [2, 1]
    assert cluster.cancelled == 1


def test_a_stack_that_cannot_be_resolved_is_sent_nowhere(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(stack: object) -> str:
        raise Unavailable("the index does not answer")

    monkeypatch.setattr(dispatch, "_lock_of", refuses)
    cluster = Cluster(runs.well)
    runs.on(cluster)
    assert cluster.sent == []
    assert set(outcomes(runs.where).values()) == {Outcome.UNAVAILABLE}


def test_a_record_names_the_machine_that_made_it(runs: Runs) -> None:
    other = host.describe().model_copy(update={"cpu": "Another, 64 cores"})

    def elsewhere(task: parcel.Task) -> Iterator[Any]:
        yield {"host": other.model_dump(mode="json")}
        for one in task.cells:
            yield runs.kept(one, cluster.run)

    cluster = Cluster(elsewhere)
    assert runs.on(cluster) == 0
    found = results.read(runs.where.reports / "results.json")
    assert found is not None
    made_by = [found.run_of(one) for one in found.cells]
    assert {run.host.cpu for run in made_by if run} == {"Another, 64 cores"}
    assert all(run and run.ended_at for run in made_by)


def test_gpus_are_those_of_the_largest_node() -> None:
    assert choose_device("auto", 2, of_a_node=4) == "cuda"
    assert choose_device("auto", 2, of_a_node=1) == "cpu"
    with pytest.raises(BadInput, match="4 ranks need 4 GPUs, the largest node has 2"):
        choose_device("cuda", 4, of_a_node=2)


def test_an_address_without_ray_is_refused() -> None:
    with pytest.raises(BadInput, match="add --engine ray"):
        open_engine("pytest", "10.0.0.1:6379", None)


def test_ray_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_tasks, "installed", lambda: False)
    with pytest.raises(BadInput, match=r"needs Ray, which is not installed; .*\[matrix,ray\]"):
        ray_engine.RayEngine()


@pytest.mark.parametrize("address", ["rubbish", "ray://10.0.0.1:10001", ":6379", "host:port"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(BadInput, match="not an address such as"):
        ray_tasks.check_answers(address)


def test_an_address_that_does_not_answer_is_said(unused_tcp_port: int) -> None:
    with pytest.raises(BadInput, match=r"no Ray cluster answers \(Connection refused\)"):
        ray_tasks.check_answers(f"127.0.0.1:{unused_tcp_port}")


@pytest.fixture
def unused_tcp_port() -> Iterator[int]:
    """A port that is taken and on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_given_lock_may_name_a_commit_in_full(
    where: project.Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    stack = tables.load(where.matrix_file).stacks["tree"]
    commit = "724acb971" + "0" * 31
    hashed = " \\\n    --hash=sha256:" + "0" * 64 + "\n"
    pins = [
        f"{name}=={getattr(stack, name)}{hashed}"
        for name in ("torch", "transformers", "deepspeed", "accelerate", "peft")
    ]
    path = tmp_path / "lock.txt"
    url = f"git+https://github.com/huggingface/trl@{commit}"
    path.write_text("".join([*pins, f"trl @ {url}\n"]))
    given = stack.model_copy(update={"lock": path})
    assert locks.resolve(given, interpreters.own()).packages["trl"] == url
    path.write_text("".join([*pins, f"trl @ {url.replace('724', '725')}\n"]))
    with pytest.raises(BadInput, match="its stack git"):
        locks.resolve(given, interpreters.own())
