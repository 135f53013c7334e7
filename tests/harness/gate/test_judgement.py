"""Every pair of outcomes has its place on the ladder; only what worked can regress."""

from __future__ import annotations

import itertools

import pytest

from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict
from trl_compat.gate.judgement import ChangeVerdict, State, compare, state_of, words

FAILING = (
    Outcome.REPRODUCED,
    Outcome.MASKED,
    Outcome.OTHER_FAILURE,
    Outcome.HANG,
    Outcome.CRASH,
)
UNKNOWN = (
    Outcome.UNRESOLVABLE,
    Outcome.UNAVAILABLE,
    Outcome.VACUOUS,
    Outcome.UNSTABLE,
    Outcome.HARNESS_ERROR,
    None,
)
ALL = (*Outcome, None)
PAIRS = list(itertools.product(ALL, ALL))


def saw(outcome: Outcome | None, reason: str = "") -> Verdict | None:
    return None if outcome is None else Verdict(outcome=outcome, reason=reason)


def verdict(reference: Outcome | None, candidate: Outcome | None) -> tuple[ChangeVerdict, bool]:
    judged = compare(saw(reference), saw(candidate))
    return judged.verdict, judged.blocks


@pytest.mark.parametrize(("reference", "candidate"), PAIRS)
def test_every_pair_is_judged_and_says_why(
    reference: Outcome | None, candidate: Outcome | None
) -> None:
    judged = compare(saw(reference), saw(candidate))
    assert judged.why
    assert not judged.blocks or judged.verdict in (
        ChangeVerdict.REGRESSION,
        ChangeVerdict.CANNOT_TELL,
    )


@pytest.mark.parametrize(("reference", "candidate"), PAIRS)
def test_it_blocks_only_where_the_reference_passes(
    reference: Outcome | None, candidate: Outcome | None
) -> None:
    for needed, gone in itertools.product((True, False), ("", "PPO trainer")):
        judged = compare(saw(reference), saw(candidate), needed=needed, gone=gone)
        assert not judged.blocks or reference is Outcome.PASS


@pytest.mark.parametrize("reference", ALL)
def test_a_candidate_that_passes_never_blocks(reference: Outcome | None) -> None:
    expected = ChangeVerdict.FIXED if reference in FAILING else ChangeVerdict.OK
    assert verdict(reference, Outcome.PASS) == (expected, False)


@pytest.mark.parametrize("candidate", FAILING)
def test_whatever_stops_what_worked_is_a_regression(candidate: Outcome) -> None:
    assert verdict(Outcome.PASS, candidate) == (ChangeVerdict.REGRESSION, True)


@pytest.mark.parametrize(("reference", "candidate"), [*itertools.product(FAILING, FAILING)])
def test_what_failed_before_is_not_new(reference: Outcome, candidate: Outcome) -> None:
    assert verdict(reference, candidate) == (ChangeVerdict.STILL_FAILING, False)


@pytest.mark.parametrize("candidate", FAILING)
def test_what_has_never_passed_is_no_regression(candidate: Outcome) -> None:
    judged = compare(saw(Outcome.NOT_APPLICABLE), saw(candidate))
    assert (judged.verdict, judged.blocks) == (ChangeVerdict.STILL_FAILING, False)
    assert "never passed" in judged.why


@pytest.mark.parametrize("candidate", UNKNOWN)
def test_not_knowing_whether_what_worked_still_does_is_not_green(
    candidate: Outcome | None,
) -> None:
    assert verdict(Outcome.PASS, candidate) == (ChangeVerdict.CANNOT_TELL, True)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        *itertools.product(UNKNOWN, FAILING),
        *itertools.product((*FAILING, *UNKNOWN, Outcome.NOT_APPLICABLE), UNKNOWN),
        *((reference, Outcome.NOT_APPLICABLE) for reference in UNKNOWN),
    ],
)
def test_where_nothing_is_known_to_have_worked_not_knowing_does_not_block(
    reference: Outcome | None, candidate: Outcome | None
) -> None:
    assert verdict(reference, candidate) == (ChangeVerdict.CANNOT_TELL, False)


def test_a_candidate_in_which_nothing_can_fail_any_more_is_fine() -> None:
    assert verdict(Outcome.PASS, Outcome.NOT_APPLICABLE) == (ChangeVerdict.OK, False)
    assert verdict(Outcome.REPRODUCED, Outcome.NOT_APPLICABLE) == (ChangeVerdict.OK, False)
    assert verdict(Outcome.NOT_APPLICABLE, Outcome.NOT_APPLICABLE) == (ChangeVerdict.OK, False)


def test_a_trainer_that_is_gone_blocks_whoever_says_that_it_is_used() -> None:
    passed, absent = saw(Outcome.PASS), saw(Outcome.NOT_APPLICABLE)
    unsaid = compare(passed, absent, gone="PPO trainer")
    used = compare(passed, absent, gone="PPO trainer", needed=True)
    assert (unsaid.verdict, unsaid.blocks) == (ChangeVerdict.CANNOT_TELL, False)
    assert (used.verdict, used.blocks) == (ChangeVerdict.REGRESSION, True)
    assert "no longer has the PPO trainer" in used.why


def test_every_outcome_has_a_state_and_words() -> None:
    for outcome in ALL:
        assert isinstance(state_of(saw(outcome)), State)
        assert words(saw(outcome, "because"))


def test_a_masked_cell_names_what_stopped_it() -> None:
    masked = Verdict(outcome=Outcome.MASKED, masked_by="early-stop", reason="title")
    assert words(masked) == "is masked by early-stop"


def test_what_blocks_outweighs_what_does_not() -> None:
    blocking = compare(saw(Outcome.PASS), saw(Outcome.UNSTABLE))
    regression = compare(saw(Outcome.PASS), saw(Outcome.CRASH))
    harmless = compare(saw(Outcome.CRASH), saw(Outcome.UNSTABLE))
    assert harmless.weight < blocking.weight < regression.weight
