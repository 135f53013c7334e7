"""Several nodes: what is refused, how agents are started, and how launches are judged."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import plain_environment, small_stack
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.rank_records import RankRecord
from trl_compat.checking import importing, network, node_agents, node_results
from trl_compat.checking.importing import Imports
from trl_compat.checking.network import Network
from trl_compat.cli import cli
from trl_compat.errors import BadInput
from trl_compat.machine import namespaces

HERE = Network(2, 1)
LOST = ("FileNotFoundError", "No such file or directory: '/x/checkpoint-2/trainer_state.json'")
GONE = ("RuntimeError", "Connection closed by peer")


def finished(node: int, **observations: object) -> RankRecord:
    check = {"name": "saved-weights", "holds": True}
    said = {"node": node, **observations}
    return RankRecord.model_validate(
        {
            "status": "finished",
            "ended": 9.0,
            "checks": [check],
            "stand_ins": [],
            "observations": said,
        }
    )


def raised(what: tuple[str, str], ended: float = 1.0) -> RankRecord:
    error = {"exception": what[0], "message": what[1], "where": "a:b"}
    return RankRecord.model_validate(
        {"status": "raised", "ended": ended, "checks": [], "stand_ins": [], "error": error}
    )


def judged(
    layout: str,
    phase: str,
    records: dict[int, RankRecord],
    *,
    seen: Network = HERE,
    deepspeed: str = "0.19.8",
) -> tuple[Outcome, bool]:
    result = node_results.judge(layout, phase, seen, records, "cpu-gloo × 2", 1.0, deepspeed)
    return result.outcome, result.agrees


BOTH = {0: finished(0), 1: finished(1)}


@pytest.mark.parametrize("phase", ["save", "resume"])
def test_what_comes_to_its_end_with_its_checks_passes(phase: str) -> None:
    assert judged("shared", phase, BOTH) == (Outcome.PASS, True)


def test_the_known_failure_is_expected_and_its_absence_is_not() -> None:
    records = {0: raised(GONE, 0.5), 1: raised(LOST)}  # whoever raised first
    assert judged("node-local", "resume", records) == (Outcome.REPRODUCED, True)
    assert judged("node-local", "resume", {1: raised(LOST)}) == (Outcome.REPRODUCED, True)
    assert judged("node-local", "resume", BOTH) == (Outcome.PASS, False)
    assert judged("shared", "resume", records) == (Outcome.OTHER_FAILURE, False)
    assert judged("node-local", "save", records) == (Outcome.OTHER_FAILURE, False)


@pytest.mark.parametrize(("deepspeed", "fails"), [("0.17.0", False), ("0.17.1", True)])
def test_a_failure_of_some_releases_is_expected_of_those(deepspeed: str, fails: bool) -> None:
    error = ("ValueError", "[deepspeed] failed to resume from checkpoint /x")
    records = {0: raised(GONE), 1: raised(error)}
    found = judged("node-local-each", "resume", records, deepspeed=deepspeed)
    assert found == ((Outcome.REPRODUCED, True) if fails else (Outcome.OTHER_FAILURE, False))
    passed = judged("node-local-each", "resume", BOTH, deepspeed=deepspeed)
    assert passed == (Outcome.PASS, not fails)


def test_the_first_of_several_machines_sees_only_that_the_others_are_gone() -> None:
    first, second = (Network(2, 1, ("192.0.2.1", 29500), node) for node in (0, 1))
    for records in ({0: raised(GONE)}, {}):
        found = judged("node-local", "resume", records, seen=first)
        assert found == (Outcome.REPRODUCED, True)
    assert judged("shared", "save", {}, seen=first) == (Outcome.CRASH, False)
    assert judged("node-local", "resume", {1: raised(LOST)}, seen=second)[1]
    assert not judged("node-local", "resume", {1: raised(GONE)}, seen=second)[1]


def test_ranks_that_leave_nothing_or_assert_nothing_do_not_pass() -> None:
    assert judged("shared", "save", {0: finished(0)}) == (Outcome.CRASH, False)
    silent = finished(0).model_copy(update={"checks": ()})
    assert judged("shared", "save", {0: silent, 1: silent}) == (Outcome.VACUOUS, False)


def test_what_each_node_holds_is_told() -> None:
    records = {
        0: finished(0, checkpoint=["latest", "rank0"], final="whole, as trained"),
        1: finished(1, checkpoint=["rank1"], final="no weights"),
    }
    result = node_results.judge("node-local", "save", HERE, records, "e", 1.0, "0.19.8")
    told = "\n".join(node_results.lines(result))
    assert "node 1 has 1 of 3 files of the checkpoint, lacks latest, rank0" in told
    assert "node 1, the saved model: no weights" in told


def test_the_command_offers_every_layout() -> None:
    offered = importlib.import_module("trl_compat.cli.nodes").LAYOUTS
    assert tuple(node_results.LAYOUTS) == offered


def test_nothing_tried_is_no_agreement() -> None:
    assert not node_results.agree([])


def test_an_agent_is_the_elastic_agent_of_torch() -> None:
    found = node_agents.command(
        *(Path("/v/bin/python"), Path("/b/rank_main.py"), Path("/n/spec.json")),
        nodes=2,
        node=1,
        ranks=4,
        endpoint=("192.0.2.1", 29501),
        address="192.0.2.2",
        name="shared-save",
    )
    assert found[:3] == ("/v/bin/python", "-m", "torch.distributed.run")
    assert {"--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d"} <= set(found)
    assert "--rdzv-endpoint=192.0.2.1:29501" in found
    assert any(word.startswith("--rdzv-conf=is_host=false") for word in found)
    assert found[-2:] == ("/b/rank_main.py", "/n/spec.json")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nodes", "1"), "--nodes 1: 2 to 16 nodes are possible"),
        (("--ranks-per-node", "9"), "--ranks-per-node 9"),
        (("--node", "2", "--endpoint", "localhost"), "--node 2: with 2 nodes it is 0 to 1"),
        (("--node", "1"), "--node is for several machines"),
        (("--shared-folder", "."), "--shared-folder is for several machines"),
        (("--endpoint", "localhost:x"), "HOST or HOST:PORT"),
        (("--endpoint", ":29500"), "HOST or HOST:PORT"),
        (("--endpoint", "no-such-host.invalid"), "cannot be resolved"),
        (("--endpoint", "localhost", "--shared-folder", "full"), "an empty folder is expected"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with (
        pytest.raises(BadInput) as error,
        cli.make_context("trl-compat", ["nodes", *words]) as context,
    ):
        cli.invoke(context)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("lacks", ["deepspeed", "namespaces"])
def test_an_environment_or_a_machine_that_cannot_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importing, "imports", lambda *_: Imports({}))
    python = small_stack.make(tmp_path / "venv")
    if lacks == "deepspeed":
        small_stack.remove(tmp_path / "venv", "deepspeed")
    else:
        monkeypatch.setattr(namespaces, "missing", lambda: "not here")
    words = ["nodes", "--python", str(python), "--device", "cpu"]
    with (
        pytest.raises(BadInput) as error,
        cli.make_context("trl-compat", words) as context,
    ):
        cli.invoke(context)
    told = {"deepspeed": "DeepSpeed is not installed there", "namespaces": "not here; name the"}
    assert told[lacks] in str(error.value)


def test_this_machine_knows_its_own_address_and_interface() -> None:
    assert network.address_towards("127.0.0.1") == "127.0.0.1"
    assert network.interface_of("127.0.0.1").startswith("lo")
    with pytest.raises(BadInput, match="no network interface of this machine has"):
        network.interface_of("192.0.2.1")


@pytest.mark.matrix
def test_a_real_stack_saves_and_resumes_over_two_nodes(tmp_path: Path) -> None:
    if why := namespaces.missing():
        pytest.skip(why)
    python = plain_environment.make(tmp_path / "venv", "trl-1.16.0")
    command = [str(Path(sys.executable).with_name("trl-compat")), "nodes", "--nodes", "2"]
    command += ["--device", "cpu", "--python", str(python), "--reports", str(tmp_path / "out")]
    command += ["--layout", "shared", "--layout", "node-local"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out" / "nodes.json").read_text())
    launches = {(one["layout"], one["phase"]): one for one in document["launches"]}
    outcomes = {place: one["outcome"] for place, one in launches.items()}
    assert outcomes == {
        ("shared", "save"): "pass",
        ("shared", "resume"): "pass",
        ("node-local", "save"): "pass",
        ("node-local", "resume"): "reproduced",
    }
    checks = {"resumed-at-step", "resumed-weights", "uninterrupted-weights"}
    assert set(launches["shared", "resume"]["checks"]) == checks
    held = launches["node-local", "save"]["holds"]
    assert "trainer_state.json" in held["0"]
    assert "trainer_state.json" not in held["1"]
    assert launches["shared", "save"]["evidence"] == "cpu-gloo × 2 on 2 network namespaces"
    assert "nothing in the environment changed" in done.stdout
