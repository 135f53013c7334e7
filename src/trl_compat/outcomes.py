"""The typed result of a cell, and the one pure function that decides it from what was observed."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trl_compat.advisories import Advisory


class Outcome(enum.StrEnum):
    """What became of a cell; ``sentence`` says it to people, ``folded`` is the mark in tables."""

    sentence: str
    folded: str

    def __new__(cls, value: str, folded: str, sentence: str) -> Outcome:  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.folded = folded
        member.sentence = sentence
        return member

    PASS = "pass", "✅", "Ran to the end and every post-condition holds."
    REPRODUCED = "reproduced", "❌", "Fails exactly as the advisory records it."
    MASKED = "masked", "⚠️", "An earlier, different failure stopped it before the place of interest."
    OTHER_FAILURE = "other-failure", "⚠️", "Fails in a way that no advisory records: a discovery."
    NOT_APPLICABLE = "not-applicable", "—", "This release has no such trainer or option."
    UNRESOLVABLE = "unresolvable", "⚠️", "No such stack: its packages cannot be installed together."
    UNAVAILABLE = (
        "unavailable",
        "⚠️",
        "Not run: a source of this stack is out of this machine's reach.",
    )
    HANG = "hang", "⚠️", "Did not end within its time limit."
    CRASH = "crash", "⚠️", "A rank died without raising: a signal, out of memory, or an early exit."
    VACUOUS = "vacuous", "⚠️", "Ran to the end without asserting anything: proves nothing."
    UNSTABLE = "unstable", "⚠️", "Two runs of the same cell differ."
    HARNESS_ERROR = "harness-error", "⚠️", "The harness failed; this says nothing about the stack."

    @property
    def ran(self) -> bool:
        """Whether ranks were started and said something about the stack."""
        return self not in (Outcome.UNRESOLVABLE, Outcome.UNAVAILABLE, Outcome.HARNESS_ERROR)


class Launch(enum.StrEnum):
    """How the ranks were started: forked from a parent with the imports done, or afresh."""

    PRELOADED = "preloaded"
    TORCHRUN = "torchrun"


class Observation(BaseModel):
    """What was seen of one run of a cell, before anyone judges it.

    Attributes:
        ranks: the record of each rank (see ``trl_compat.runtime.rank``), by rank; a rank that left
            none is missing.
        exit_status: of the launcher; negative for a signal.
        rank_exits: exit status of each failed rank, as the elastic agent saw it.
        timed_out: whether the time limit ended the run.
        unsound: why the stack never got as far as running, with the outcome that this means.
        leftovers: processes that had to be killed when the cell was over.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    launch: Launch
    world_size: int
    started_at: str
    seconds: float
    ranks: dict[int, dict[str, Any]] = Field(default_factory=dict)
    exit_status: int = 0
    rank_exits: dict[int, int] = Field(default_factory=dict)
    timed_out: bool = False
    unsound: tuple[Outcome, str] | None = None
    leftovers: int = 0
    output: str = ""


class Verdict(BaseModel):
    """An outcome with its reasons.

    Attributes:
        symptom: name of the advisory's symptom that was seen.
        masked_by: id of the advisory that describes what stopped the scenario, if one does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    outcome: Outcome
    reason: str = ""
    symptom: str | None = None
    masked_by: str | None = None
    error: dict[str, Any] | None = None


def decide(
    observed: Observation,
    advisory: Advisory,
    masks: Sequence[Advisory],
    control: Outcome | None = None,
) -> Verdict:
    """The verdict on one run.

    Args:
        observed: the run.
        advisory: of the cell's failure.
        masks: advisories of failures that may stop the scenario early.
        control: outcome of the control of this cell, ``unavailable`` if it has no record; None
            where there is no control (or the cell is the control).
    """
    if observed.unsound is not None:
        outcome, reason = observed.unsound
        return Verdict(outcome=outcome, reason=reason)
    if observed.timed_out:
        return Verdict(outcome=Outcome.HANG, reason=_last_words(observed))
    failed = _first_failed(observed)
    if failed is not None:
        return _judge_error(failed, advisory, masks, control)
    records = observed.ranks.values()
    if records and all(record["status"] == "not-applicable" for record in records):
        error = observed.ranks[min(observed.ranks)]["error"]
        return Verdict(outcome=Outcome.NOT_APPLICABLE, reason=error["message"])
    if any(record["status"] == "not-applicable" for record in records):
        return Verdict(
            outcome=Outcome.OTHER_FAILURE,
            reason="the ranks disagree on whether this release has what is tested",
        )
    missing = sorted(set(range(observed.world_size)) - set(observed.ranks))
    if missing:
        return Verdict(outcome=Outcome.CRASH, reason=_deaths(observed, missing))
    if observed.exit_status:
        return Verdict(
            outcome=Outcome.CRASH,
            reason=f"every rank finished, then the launcher ended with {observed.exit_status}",
        )
    if not any(record["checks"] for record in records):
        return Verdict(outcome=Outcome.VACUOUS, reason="no rank registered an assertion")
    return Verdict(outcome=Outcome.PASS)


def _first_failed(observed: Observation) -> dict[str, Any] | None:
    failed = [r for r in observed.ranks.values() if r["status"] in ("raised", "control-failed")]
    return min(failed, key=lambda record: float(record["ended"])) if failed else None


def _judge_error(
    record: Mapping[str, Any],
    advisory: Advisory,
    masks: Sequence[Advisory],
    control: Outcome | None,
) -> Verdict:
    error = dict(record["error"])
    symptom = advisory.symptom_of(error)
    if record["status"] == "raised" and symptom is not None:
        if control not in (None, Outcome.PASS):
            return Verdict(
                outcome=Outcome.MASKED,
                reason=f"shows symptom '{symptom}', but its control is {control}",
                symptom=symptom,
                error=error,
            )
        return Verdict(outcome=Outcome.REPRODUCED, symptom=symptom, error=error)
    for mask in masks:
        if mask.id != advisory.id and (seen := mask.symptom_of(error)):
            return Verdict(
                outcome=Outcome.MASKED,
                reason=f"{mask.title}",
                symptom=seen,
                masked_by=mask.id,
                error=error,
            )
    if record["status"] == "control-failed":
        return Verdict(
            outcome=Outcome.MASKED, reason=f"precondition failed: {error['message']}", error=error
        )
    return Verdict(
        outcome=Outcome.OTHER_FAILURE,
        reason=f"{error['exception']}: {_short(error['message'])}",
        error=error,
    )


def _deaths(observed: Observation, missing: Sequence[int]) -> str:
    said = []
    for rank in missing:
        status = observed.rank_exits.get(rank)
        match status:
            case None | 0:
                said.append(f"rank {rank} left without a record")
            case _ if status < 0:
                said.append(f"rank {rank} was killed by signal {-status}")
            case _:
                said.append(f"rank {rank} exited with {status} without raising")
    return "; ".join(said)


def _last_words(observed: Observation) -> str:
    silent = sorted(set(range(observed.world_size)) - set(observed.ranks))
    return f"no end within the limit; still running: rank {', '.join(map(str, silent))}"


def _short(message: str, limit: int = 200) -> str:
    line = " ".join(message.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
