"""One pure function decides every outcome; each is reached here, and each way past it is closed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.test_advisories import SEEN
from trl_compat.advisories import Catalogue
from trl_compat.outcomes import Launch, Observation, Outcome, Verdict, decide

INIT: dict[str, Any] = {
    "exception": "ValueError",
    "message": "Please make sure to properly initialize your accelerator",
    "where": "accelerate/state.py:__getattr__",
    "frames": [],
}
CHECK = {"name": "saved", "holds": True, "message": ""}


def record(status: str = "finished", *, ended: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"status": status, "ended": ended, "checks": [CHECK], "stand_ins": [], **more}


def observed(*ranks: dict[str, Any] | None, **more: Any) -> Observation:
    given: dict[str, Any] = {
        "launch": Launch.PRELOADED,
        "world_size": len(ranks) or 2,
        "started_at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "ranks": {n: r for n, r in enumerate(ranks) if r is not None},
        **more,
    }
    return Observation(**given)


def judge(
    catalogue: Catalogue, seen: Observation, control: Outcome | None = Outcome.PASS
) -> Verdict:
    return decide(seen, catalogue["saving"], catalogue.masks, control)


RAISED = record("raised", error=SEEN)


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
        (observed(RAISED, None, timed_out=True), Outcome.HANG),
        (observed(record(checks=[]), record(checks=[])), Outcome.VACUOUS),
        (observed(unsound=(Outcome.UNAVAILABLE, "no network")), Outcome.UNAVAILABLE),
        (observed(unsound=(Outcome.UNRESOLVABLE, "conflict")), Outcome.UNRESOLVABLE),
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
    assert judge(catalogue, seen).reason == "rank 1 was killed by signal 9"


def test_the_first_rank_to_fail_gives_the_signature(catalogue: Catalogue) -> None:
    late = record("raised", ended=9.0, error={**SEEN, "exception": "RuntimeError"})
    verdict = judge(catalogue, observed(late, RAISED))
    assert verdict.error is not None
    assert verdict.error["exception"] == "AttributeError"


def test_every_outcome_has_a_sentence_and_a_mark() -> None:
    for outcome in Outcome:
        assert outcome.sentence.endswith(".")
        assert outcome.folded in ("✅", "❌", "⚠️", "—")
    assert [o for o in Outcome if o.folded == "✅"] == [Outcome.PASS]
