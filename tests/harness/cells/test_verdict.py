"""One pure function decides every outcome; each is reached here, and each way past it is closed."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.harness.observations import INIT, LOST_PEER, RAISED, SEEN, judge, observed, record
from trl_compat.advisories import Catalogue
from trl_compat.cells.observation import Observation, Stop
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict, agreed

NO_SPACE = {**INIT, "exception": "OSError", "message": "full", "errnos": [errno.ENOSPC]}


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (observed(record(), record()), Outcome.PASS),
        (observed(RAISED, record("raised", ended=2.0, error=INIT)), Outcome.REPRODUCED),
        (observed(record(), RAISED), Outcome.REPRODUCED),
        (observed(record("raised", error=INIT), RAISED), Outcome.MASKED),
        (observed(record("control-failed", error=SEEN), record()), Outcome.MASKED),
        (
            observed(record("raised", error={**SEEN, "exception": "KeyError"})),
            Outcome.OTHER_FAILURE,
        ),
        (
            observed(*[record("not-applicable", error={**SEEN, "message": "none"})] * 2),
            Outcome.NOT_APPLICABLE,
        ),
        (observed(record(), None, rank_exits={1: -9}, exit_status=1), Outcome.CRASH),
        (observed(record(), None), Outcome.CRASH),
        (observed(record(), record(), exit_status=1), Outcome.CRASH),
        (observed(RAISED, None, stopped=Stop.LIMIT), Outcome.HANG),
        (observed(record(), None, stopped=Stop.IDLE), Outcome.HANG),
        (observed(record(), None, stopped=Stop.MEMORY), Outcome.CRASH),
        (observed(RAISED, None, rank_exits={1: -9}, out_of_memory_kills=1), Outcome.CRASH),
        # the kernel killed somebody else's process
        (observed(RAISED, RAISED, out_of_memory_kills=1), Outcome.REPRODUCED),
        (observed(record(), record(), out_of_memory_kills=1), Outcome.PASS),
        (observed(record("raised", error={**SEEN, "exception": "MemoryError"})), Outcome.CRASH),
        (observed(record("raised", error=NO_SPACE), None), Outcome.HARNESS_ERROR),
        (observed(record(), None, problems=("unreadable",)), Outcome.HARNESS_ERROR),
        (observed(record("raised", error=LOST_PEER), None, rank_exits={1: -9}), Outcome.CRASH),
        (observed(record("raised", error=LOST_PEER), RAISED), Outcome.OTHER_FAILURE),
        (observed(record(), record(), stopped=Stop.LAUNCHER_STUCK), Outcome.PASS),
        (observed(record(checks=[]), record(checks=[])), Outcome.VACUOUS),
        (observed(not_started=(Outcome.UNAVAILABLE, "no network")), Outcome.UNAVAILABLE),
        (observed(not_started=(Outcome.UNRESOLVABLE, "conflict")), Outcome.UNRESOLVABLE),
    ],
)
def test_each_outcome(catalogue: Catalogue, seen: Observation, outcome: Outcome) -> None:
    assert judge(catalogue, seen).outcome is outcome


@pytest.mark.parametrize("control", [o for o in Outcome if o is not Outcome.PASS])
def test_no_failure_is_reproduced_unless_its_control_passes(
    catalogue: Catalogue, control: Outcome
) -> None:
    assert judge(catalogue, observed(RAISED, RAISED), control).outcome is Outcome.MASKED


def test_ranks_that_disagree_on_applicability_are_no_pass(catalogue: Catalogue) -> None:
    absent = record("not-applicable", error={**SEEN, "message": "none"})
    assert judge(catalogue, observed(record(), absent)).outcome is Outcome.OTHER_FAILURE


def test_a_cell_without_control_stands_for_itself(catalogue: Catalogue) -> None:
    assert judge(catalogue, observed(RAISED), None).outcome is Outcome.REPRODUCED


def test_a_known_mask_is_named(catalogue: Catalogue) -> None:
    verdict = judge(catalogue, observed(record("raised", error=INIT)))
    assert (verdict.masked_by, verdict.symptom) == ("early-stop", "init")


def test_a_dead_rank_is_said_with_its_signal(catalogue: Catalogue) -> None:
    seen = observed(record(), None, rank_exits={1: -9}, exit_status=1)
    assert judge(catalogue, seen).reason == "rank 1 was killed by signal 9 (SIGKILL)"


def test_who_was_ended_by_the_agent_is_not_to_blame(catalogue: Catalogue) -> None:
    seen = observed(None, None, rank_exits={0: -15, 1: -11}, exit_status=1)
    assert judge(catalogue, seen).reason == "rank 1 was killed by signal 11 (SIGSEGV)"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exception": "TypeError"}, "the exception is no "),
        ({"message": "another text"}, "the message does not match "),
        ({"where": "accelerate/accelerator.py:elsewhere"}, "not raised in "),
        ({"frames": []}, "not through "),
    ],
)
def test_type_message_and_place_are_all_needed_and_what_is_missing_is_said(
    catalogue: Catalogue, change: dict[str, Any], why: str
) -> None:
    seen = observed(record("raised", error={**SEEN, **change}))
    verdict = judge(catalogue, seen)
    assert verdict.outcome is Outcome.OTHER_FAILURE
    assert f"(unlike symptom 'text': {why}" in verdict.reason


def test_what_has_nothing_in_common_with_a_symptom_is_not_compared(catalogue: Catalogue) -> None:
    other = {**SEEN, "exception": "E", "message": "m", "where": "x.py:f", "frames": []}
    verdict = judge(catalogue, observed(record("raised", error=other)))
    assert verdict.reason == "E: m"


def test_a_new_text_at_the_known_place_is_said_to_be_one(catalogue: Catalogue) -> None:
    seen = observed(record("raised", error={**SEEN, "message": "a text of a later release"}))
    verdict = judge(catalogue, seen)
    assert verdict.resembles == "text"
    assert verdict.reason.startswith("a new message at the place of symptom 'text'")


def test_the_known_text_from_another_place_resembles_nothing(catalogue: Catalogue) -> None:
    seen = observed(record("raised", error={**SEEN, "where": "x.py:f", "frames": []}))
    assert judge(catalogue, seen).resembles is None


def test_runs_that_agree_are_one_verdict_and_others_are_unstable() -> None:
    good, bad = Verdict(outcome=Outcome.PASS), Verdict(outcome=Outcome.REPRODUCED, symptom="text")
    other = bad.model_copy(update={"symptom": "empty"})
    assert agreed([good, good]) == good
    assert agreed([good, bad, good]).reason == "3 runs differ: 2 × pass, 1 × reproduced (text)"
    assert agreed([bad, other]).outcome is Outcome.UNSTABLE
    hung = Verdict(outcome=Outcome.HANG, reason="rank 1 diverged first")
    assert agreed([hung, good, hung]).reason == (
        "3 runs differ: 2 × hang, 1 × pass; hang: rank 1 diverged first"
    )


def test_the_first_rank_to_fail_gives_the_signature(catalogue: Catalogue) -> None:
    late = record("raised", ended=9.0, error={**SEEN, "exception": "RuntimeError"})
    verdict = judge(catalogue, observed(late, RAISED))
    assert verdict.error is not None
    assert verdict.error["exception"] == "AttributeError"
