"""Two runs of a cell are compared by what they say of the stack, not by who was quicker."""

from __future__ import annotations

from typing import Any

from tests.harness.test_outcomes import INIT, RAISED, observed, record
from trl_compat.essence import differences, essence


def full(**more: Any) -> dict[str, Any]:
    return record(observations={}, **more)


def failed(**more: Any) -> dict[str, Any]:
    return {**RAISED, "observations": {}, **more}


def test_a_rank_that_was_ended_because_another_raised_makes_no_difference() -> None:
    both = essence(observed(failed(), failed(ended=2.0)))
    alone = essence(observed(failed(), None, exit_status=1))
    assert differences(both, alone) == []


def test_another_error_is_a_difference() -> None:
    other = essence(observed(failed(error=INIT), None))
    assert differences(other, essence(observed(failed(), None))) != []


def test_a_check_more_is_a_difference() -> None:
    assert differences(essence(observed(full())), essence(observed(full(checks=[])))) != []


def test_a_rank_that_died_is_a_difference() -> None:
    assert differences(essence(observed(full(), None)), essence(observed(full(), full()))) != []
