"""The outcomes that a cell can have, each with its sentence for people."""

from __future__ import annotations

import enum


class Outcome(enum.StrEnum):
    """The outcome of a cell; ``sentence`` explains it, ``mark`` is its sign in tables."""

    sentence: str
    mark: str

    def __new__(cls, value: str, mark: str, sentence: str) -> Outcome:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.mark = mark
        member.sentence = sentence
        return member

    PASS = "pass", "✅", "Ran to the end and every post-condition holds."
    REPRODUCED = "reproduced", "❌", "Fails exactly as the advisory records it."
    MASKED = (
        "masked",
        "⚠️",
        "An earlier, different failure stopped it before it could show this one.",
    )
    OTHER_FAILURE = "other-failure", "⚠️", "Fails in a way that no advisory records: a new failure."
    NOT_APPLICABLE = "not-applicable", "—", "This stack has no such trainer, option or package."
    UNRESOLVABLE = "unresolvable", "⚠️", "No such stack: its packages cannot be installed together."
    UNAVAILABLE = (
        "unavailable",
        "⚠️",
        "Not run: this machine cannot reach a source of this stack.",
    )
    HANG = "hang", "⚠️", "Did not end: it exceeded its time limit, or made no progress."
    CRASH = "crash", "⚠️", "A rank died without raising: a signal, out of memory, or an early exit."
    VACUOUS = "vacuous", "⚠️", "Ran to the end without asserting anything: proves nothing."
    UNSTABLE = "unstable", "⚠️", "Two runs of the same cell differ."
    HARNESS_ERROR = "harness-error", "⚠️", "The harness failed; this says nothing about the stack."

    @property
    def ran(self) -> bool:
        """Whether ranks were started and said something about the stack."""
        return self not in (Outcome.UNRESOLVABLE, Outcome.UNAVAILABLE, Outcome.HARNESS_ERROR)
