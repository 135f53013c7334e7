"""Reference against candidate: the one pure function that decides what an upgrade does to a cell.

A candidate is judged against the stack that it would replace, never alone: it blocks only if the
reference passes, and a cell that never passed is no regression.  Severity does not matter here: a
silently wrong result and a late crash weigh as much as a crash at the start.  If a result is
missing or masked, the answer is "cannot tell", which blocks only if the reference passes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import assert_never

from trl_compat.cells.outcome import Outcome
from trl_compat.cells.verdict import Verdict

UNSAID = "it is not specified whether you use it"


class ChangeVerdict(enum.StrEnum):
    """The ladder, best first; ``mark`` and ``action`` say to people what it means for them."""

    mark: str
    action: str

    def __new__(cls, value: str, mark: str, action: str) -> ChangeVerdict:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.mark = mark
        member.action = action
        return member

    OK = "ok", "✅", "nothing to do"
    FIXED = "fixed by the upgrade", "✅", "upgrade; you can remove a workaround"
    STILL_FAILING = "still failing", "❌", "not new, does not block"
    CANNOT_TELL = "cannot tell", "⚠️", "see the reason, and run what is named"
    REGRESSION = "regression", "⛔", "do not upgrade without a fix"

    @property
    def height(self) -> int:
        """Place on the ladder; the worst of several is the highest."""
        return list(ChangeVerdict).index(self)


class State(enum.Enum):
    """What a cell's outcome says about a stack, as far as an upgrade goes."""

    WORKS = enum.auto()
    FAILS = enum.auto()
    ABSENT = enum.auto()
    UNKNOWN = enum.auto()


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reason in words, and whether it stops the upgrade."""

    verdict: ChangeVerdict
    why: str
    blocks: bool = False

    @property
    def weight(self) -> tuple[bool, int]:
        """Sort key: what blocks outweighs what does not, then the ladder."""
        return self.blocks, self.verdict.height


def state_of(verdict: Verdict | None) -> State:
    """The state that a verdict shows; None is a cell that was not run."""
    if verdict is None:
        return State.UNKNOWN
    match verdict.outcome:
        case Outcome.PASS:
            return State.WORKS
        case Outcome.NOT_APPLICABLE:
            return State.ABSENT
        case (
            Outcome.REPRODUCED
            | Outcome.MASKED
            | Outcome.OTHER_FAILURE
            | Outcome.HANG
            | Outcome.CRASH
        ):
            # Masked is a failure, too: whatever stops the scenario early stops the user early.
            return State.FAILS
        case (
            Outcome.UNRESOLVABLE
            | Outcome.UNAVAILABLE
            | Outcome.VACUOUS
            | Outcome.UNSTABLE
            | Outcome.HARNESS_ERROR
        ):
            return State.UNKNOWN
        case _:
            assert_never(verdict.outcome)


def compare(
    reference: Verdict | None, candidate: Verdict | None, *, needed: bool = False, gone: str = ""
) -> Judgement:
    """What the upgrade does to one cell.

    Args:
        reference: the unfixed cell in the stack that one has; None if it was not run.
        candidate: the same cell in the stack that one wants.
        needed: the user says that the cell's trainer or strategy is in use.
        gone: what the candidate has no longer, where its release lacks the whole trainer or
            function, not only what can fail in it.
    """
    was, becomes = state_of(reference), state_of(candidate)
    before, after = words(reference), words(candidate)
    both = f"the reference {before}, the candidate {after}" if before != after else f"each {before}"
    match was, becomes:
        case State.WORKS, State.WORKS:
            return Judgement(ChangeVerdict.OK, "both pass")
        case State.WORKS, State.FAILS:
            return Judgement(ChangeVerdict.REGRESSION, both, blocks=True)
        case State.WORKS, State.UNKNOWN:
            return Judgement(ChangeVerdict.CANNOT_TELL, both, blocks=True)
        case State.WORKS, State.ABSENT:
            return _lost(after, needed, gone)
        case State.FAILS, State.WORKS:
            return Judgement(ChangeVerdict.FIXED, both)
        case State.FAILS, State.FAILS:
            return Judgement(ChangeVerdict.STILL_FAILING, both)
        case State.FAILS, State.ABSENT:
            return Judgement(ChangeVerdict.OK, f"{both}: no regression")
        case State.ABSENT, State.FAILS:
            return Judgement(
                ChangeVerdict.STILL_FAILING, f"{both}: it never passed, so it is no regression"
            )
        case State.ABSENT, State.WORKS:
            return Judgement(ChangeVerdict.OK, both)
        case State.ABSENT, State.ABSENT:
            return Judgement(ChangeVerdict.OK, "not applicable to either")
        case State.UNKNOWN, State.WORKS:
            return Judgement(ChangeVerdict.OK, both)
        case (State.FAILS | State.ABSENT | State.UNKNOWN, State.UNKNOWN) | (
            State.UNKNOWN,
            State.FAILS | State.ABSENT,
        ):
            # Not known to have worked, so there is nothing to defend; but not green either.
            return Judgement(ChangeVerdict.CANNOT_TELL, both)
        case _:
            raise AssertionError((was, becomes))  # the states are enumerated above


def _lost(after: str, needed: bool, gone: str) -> Judgement:
    """The reference passes and the candidate has nothing there to run."""
    if not gone:
        return Judgement(ChangeVerdict.OK, f"the reference passes, the candidate {after}")
    if needed:
        why = f"it works on the reference, and the candidate no longer has the {gone}"
        return Judgement(ChangeVerdict.REGRESSION, why, blocks=True)
    why = f"the candidate no longer has the {gone}; {UNSAID}"
    return Judgement(ChangeVerdict.CANNOT_TELL, why)


def words(verdict: Verdict | None) -> str:
    """What a stack does in a cell, as the rest of a sentence that names the stack."""
    if verdict is None:
        return "was not run"
    reason = f" ({verdict.reason})" if verdict.reason else ""
    match verdict.outcome:
        case Outcome.PASS:
            return "passes"
        case Outcome.REPRODUCED:
            return f"fails as recorded ({verdict.symptom})" if verdict.symptom else "fails"
        case Outcome.MASKED if verdict.masked_by:
            return f"is masked by {verdict.masked_by}"
        case Outcome.MASKED:
            return f"is masked{reason}"
        case Outcome.OTHER_FAILURE:
            return f"fails in a way that no advisory records{reason}"
        case Outcome.NOT_APPLICABLE:
            return f"is not applicable{reason}"
        case Outcome.HANG:
            return f"hangs{reason}"
        case Outcome.CRASH:
            return f"dies{reason}"
        case Outcome.VACUOUS:
            return f"made no assertion{reason}"
        case Outcome.UNSTABLE:
            return f"is unstable{reason}"
        case Outcome.UNAVAILABLE:
            return f"was not run: a source cannot be reached{reason}"
        case Outcome.UNRESOLVABLE:
            return f"cannot be installed{reason}"
        case Outcome.HARNESS_ERROR:
            return f"was not run: the harness failed{reason}"
        case _:
            assert_never(verdict.outcome)
