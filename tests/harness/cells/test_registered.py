"""What a scenario registers as false decides, whoever swallows the exception."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.harness.observations import INIT, LOST_PEER, RAISED, SEEN, judge, observed, record
from trl_compat.advisories import Catalogue
from trl_compat.cells.observation import Observation, Stop
from trl_compat.cells.outcome import Outcome
from trl_compat.running.execution import rank_files
from trl_compat.runtime import context, signature
from trl_compat.runtime import rank as ranks
from trl_compat.runtime.spec import CellSpec

LOST = {
    "exception": "PostConditionFailed",
    "message": "2 of 3 tensors empty",
    "where": "check:saved",
}
NO_ENGINE = {
    "exception": "ControlFailed",
    "message": "engine: there is none",
    "where": "runtime/context.py:precondition",
}


def check(at: float = 1.0, **error: Any) -> dict[str, Any]:
    return {"kind": "check", "name": "saved", "at": at, "error": {**LOST, **error}}


def precondition(at: float = 1.0) -> dict[str, Any]:
    return {"kind": "precondition", "name": "engine", "at": at, "error": NO_ENGINE}


def swallowed(*failures: dict[str, Any], rank: int = 0) -> dict[str, Any]:
    return {"failed": {rank: failures}}


def test_a_swallowed_check_is_the_symptom_that_an_unswallowed_one_is(catalogue: Catalogue) -> None:
    loud = judge(catalogue, observed(record("raised", error=LOST), record()))
    quiet = judge(catalogue, observed(record(), record(), **swallowed(check())))
    assert (loud.outcome, loud.symptom) == (Outcome.REPRODUCED, "empty")
    assert quiet == loud


def test_what_is_only_in_the_record_decides_all_the_same(catalogue: Catalogue) -> None:
    entry = {"name": "saved", "holds": False, "message": "2 of 3 tensors empty"}
    seen = observed(record(checks=[entry]), record())
    assert judge(catalogue, seen).symptom == "empty"
    told = {"name": "engine", "holds": False, "message": "there is none"}
    assert judge(catalogue, observed(record(preconditions=[told]))).outcome is Outcome.MASKED


def test_a_swallowed_precondition_makes_the_verdict_worthless(catalogue: Catalogue) -> None:
    loud = judge(catalogue, observed(record("control-failed", error=NO_ENGINE), record()))
    quiet = judge(catalogue, observed(record(), record(), **swallowed(precondition())))
    assert quiet == loud
    assert quiet.reason == "precondition failed: engine: there is none"


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        # the first thing that goes wrong decides, on whatever rank
        (observed(record(), RAISED, **swallowed(check(0.5))), "empty"),
        (observed(record(), RAISED, **swallowed(check(1.5))), "text"),
        (observed(record("raised", error=SEEN), record(), **swallowed(check(0.5))), "empty"),
        (observed(RAISED, record(), **swallowed(precondition(1.5))), "text"),
        (observed(RAISED, record(), **swallowed(precondition(0.5))), None),
        (observed(record(), record(), **swallowed(precondition(0.5), check(0.6))), None),
        (observed(record(), record(), **swallowed(check(0.5), precondition(0.6))), "empty"),
    ],
)
def test_the_first_thing_that_goes_wrong_decides(
    catalogue: Catalogue, seen: Observation, outcome: str | None
) -> None:
    assert judge(catalogue, seen).symptom == outcome


ABSENT = record("not-applicable", error={**SEEN, "message": "none"})


@pytest.mark.parametrize(
    "how",
    [
        observed(ABSENT, ABSENT, **swallowed(check())),
        observed(record(checks=[]), record(checks=[]), **swallowed(check())),
        observed(None, record(), **swallowed(check()), rank_exits={0: -11}, exit_status=1),
        observed(None, None, **swallowed(check()), stopped=Stop.LIMIT),
        observed(record(), None, **swallowed(check()), stopped=Stop.IDLE),
        observed(None, record(), **swallowed(check()), stopped=Stop.MEMORY),
        observed(record(), record(), **swallowed(check()), exit_status=1),
    ],
    ids=["not-applicable", "vacuous", "crash", "limit", "silence", "memory", "teardown"],
)
def test_whatever_comes_after_a_false_check_it_stays_false(
    catalogue: Catalogue, how: Observation
) -> None:
    assert judge(catalogue, how).symptom == "empty"


def test_a_hang_after_a_false_check_is_said(catalogue: Catalogue) -> None:
    how = observed(record(), None, **swallowed(check()), stopped=Stop.LIMIT)
    assert judge(catalogue, how).reason.startswith(
        "then it exceeded its time limit: rank 0 had finished"
    )


def test_a_check_that_only_tells_of_a_rank_that_is_gone_is_no_cause(catalogue: Catalogue) -> None:
    told = check(message=LOST_PEER["message"])
    gone: dict[str, Any] = {"rank_exits": {1: -11}, "exit_status": 1}
    assert judge(catalogue, observed(record(), None, **swallowed(told), **gone)).outcome is (
        Outcome.CRASH
    )
    hung = observed(record(), None, **swallowed(told), stopped=Stop.LIMIT)
    assert judge(catalogue, hung).outcome is Outcome.HANG
    both = observed(record(), None, **swallowed(told, check(2.0)), **gone)
    assert judge(catalogue, both).symptom == "empty"


def test_a_kill_for_memory_may_be_what_made_it_false(catalogue: Catalogue) -> None:
    killed: dict[str, Any] = {"rank_exits": {1: -9}, "out_of_memory_kills": 1}
    seen = observed(record(), None, **swallowed(check()), **killed)
    assert judge(catalogue, seen).outcome is Outcome.CRASH


def test_a_mask_is_known_by_a_swallowed_precondition_too(catalogue: Catalogue) -> None:
    masked = {"kind": "precondition", "name": "x", "at": 1.0, "error": INIT}
    seen = observed(record(), record(), failed={1: (masked,)})
    assert judge(catalogue, seen).masked_by == "early-stop"


# How the runtime registers.


@pytest.fixture
def rank(tmp_path: Path) -> context.Rank:
    spec = CellSpec(
        cell="c",
        reproduction="",
        variant="v",
        conditions={},
        model="",
        model_dir="",
        world_size=1,
        device="cpu",
        folder=str(tmp_path),
    )
    made = context.Rank(spec)
    made.on_failure = ranks.journal(tmp_path / "rank0.failed")
    return made


def quietly(rank: context.Rank) -> None:
    with contextlib.suppress(BaseException):
        rank.check("saved", False, "2 of 3 tensors empty")


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_failed_check_is_on_disk_before_anybody_can_swallow_it(
    rank: context.Rank, in_thread: bool
) -> None:
    if in_thread:
        thread = threading.Thread(target=quietly, args=(rank,))
        thread.start()
        thread.join()
    else:
        quietly(rank)
    found, problems = rank_files.failed(rank.folder, 1)
    assert problems == ()
    (failure,) = found[0]
    assert (failure.kind, failure.name) == ("check", "saved")
    assert {**failure.error.model_dump(include=set(LOST))} == LOST
    assert [frame.function for frame in failure.error.frames][-2:] == ["quietly", "check"]
    assert "quietly" in failure.error.traceback


def test_the_way_to_a_swallowed_check_is_that_of_an_unswallowed_one(rank: context.Rank) -> None:
    try:
        rank.precondition("engine", False, "there is none")
    except context.ControlFailed as error:
        loud = signature.describe(error)
    found, _ = rank_files.failed(rank.folder, 1)
    quiet = json.loads(found[0][0].error.model_dump_json())
    parts = ("exception", "message", "where")
    assert {part: quiet[part] for part in parts} == {part: loud[part] for part in parts}
    assert {part: loud[part] for part in parts} == NO_ENGINE
    assert [f["function"] for f in quiet["frames"]][-2:] == [f["function"] for f in loud["frames"]]


def test_checks_and_preconditions_are_recorded_with_their_value(rank: context.Rank) -> None:
    rank.precondition("engine", [1], "there is none")
    rank.check("saved", 5, "it is lost")
    quietly(rank)
    assert rank.preconditions == [{"name": "engine", "holds": True, "message": "there is none"}]
    assert [(entry["name"], entry["holds"]) for entry in rank.checks] == [
        ("saved", True),
        ("saved", False),
    ]
    assert rank.observations == {}


class Undecided:
    """As a tensor of several elements."""

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


def test_a_check_of_which_nobody_can_tell_whether_it_holds_does_not(rank: context.Rank) -> None:
    with pytest.raises(context.PostConditionFailed, match="cannot be told: RuntimeError"):
        rank.check("saved", Undecided(), "it is lost")
    assert [entry["holds"] for entry in rank.checks] == [False]


def test_a_loop_of_checks_fills_neither_memory_nor_disk(rank: context.Rank) -> None:
    for _ in range(context.MOST_ENTRIES + 1000):
        rank.check("saved", True, "")
    for _ in range(1000):
        quietly(rank)
    assert len(rank.checks) == context.MOST_ENTRIES + 100
    assert not rank.checks[-1]["holds"]
    assert len(rank_files.failed(rank.folder, 1)[0][0]) == ranks.MOST_FAILURES


def test_a_full_disk_does_not_keep_a_check_from_failing(rank: context.Rank) -> None:
    rank.on_failure = ranks.journal(rank.folder / "nowhere" / "rank0.failed")
    quietly(rank)
    assert [entry["holds"] for entry in rank.checks] == [False]
