"""Two runs of a cell are compared by what they say of the stack, not by who was quicker."""

from __future__ import annotations

from typing import Any

from tests.harness.observations import INIT, RAISED, observed, record
from trl_compat.cells.fingerprint import differences, fingerprint


def full(**more: Any) -> dict[str, Any]:
    return record(observations={}, **more)


def failed(**more: Any) -> dict[str, Any]:
    return {**RAISED, "observations": {}, **more}


def test_a_rank_that_was_ended_because_another_raised_makes_no_difference() -> None:
    both = fingerprint(observed(failed(), failed(ended=2.0)))
    alone = fingerprint(observed(failed(), None, exit_status=1))
    assert differences(both, alone) == []


def test_another_error_is_a_difference() -> None:
    other = fingerprint(observed(failed(error=INIT), None))
    assert differences(other, fingerprint(observed(failed(), None))) != []


def test_which_of_two_ranks_raised_first_makes_no_difference() -> None:
    says_more = {**RAISED["error"], "message": "rank 1 holds nothing"}
    one = fingerprint(observed(failed(ended=1.0), failed(ended=2.0, error=says_more)))
    other = fingerprint(observed(failed(ended=2.0), failed(ended=1.0, error=says_more)))
    assert differences(one, other) == []


def test_another_error_that_only_one_run_met_first_is_a_difference() -> None:
    one = fingerprint(observed(failed(ended=2.0), failed(ended=1.0, error=INIT)))
    other = fingerprint(observed(failed(), None))
    assert differences(one, other) != []


def test_a_check_more_is_a_difference() -> None:
    assert differences(fingerprint(observed(full())), fingerprint(observed(full(checks=[])))) != []


def test_a_rank_that_died_is_a_difference() -> None:
    assert (
        differences(fingerprint(observed(full(), None)), fingerprint(observed(full(), full())))
        != []
    )
