"""The typed result of a cell, and the one pure function that decides it from the observation."""

from __future__ import annotations

import enum
import errno
import re
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trl_compat.advisories import Advisory
from trl_compat.cells import failures, hangs
from trl_compat.cells.failures import Failed
from trl_compat.cells.rank_records import Failure, RaisedError, RankRecord
from trl_compat.runtime.spec import UNRECORDED


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
    NOT_APPLICABLE = "not-applicable", "—", "This release has no such trainer or option."
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


class Launch(enum.StrEnum):
    """How the ranks were started: forked from a prepared parent, or as new processes."""

    PRELOADED = "preloaded"
    TORCHRUN = "torchrun"


class Stop(enum.StrEnum):
    """Why the harness ended a run that did not end by itself."""

    LIMIT = "limit"
    IDLE = "idle"
    MEMORY = "memory"
    LAUNCHER_STUCK = "launcher-stuck"


class Observation(BaseModel):
    """What was seen of one run of a cell, before anyone judges it.

    Attributes:
        ranks: the record of each rank (see ``trl_compat.runtime.rank``), by rank; a rank that left
            none is missing.
        failed: what each rank registered as false, also of ranks that left no record.
        exit_status: of the launcher; negative for a signal.
        rank_exits: exit status of each failed rank, as the elastic agent saw it.
        stopped: why the harness ended the run; None if it ended by itself.
        hanging: the state of every rank that was still running when a hang was ended.
        not_started: why the stack never got as far as running, with the outcome that this means.
        leftovers: processes that had to be killed when the cell was over.
        peak_memory: bytes that the cell's processes held together, memory that they share counted
            once; measured once a second.
        out_of_memory_kills: processes that the machine's kernel killed for memory meanwhile.
        problems: what of the evidence could not be read, a line each.
        shortage: what the disk had left meanwhile, if that was next to nothing.
        not_preloaded: why the ranks were started by ``torchrun`` though they were to be preloaded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    launch: Launch
    world_size: int
    started_at: str
    seconds: float
    ranks: dict[int, RankRecord] = Field(default_factory=dict)
    failed: dict[int, tuple[Failure, ...]] = Field(default_factory=dict)
    exit_status: int = 0
    rank_exits: dict[int, int] = Field(default_factory=dict)
    stopped: Stop | None = None
    hanging: dict[int, hangs.RankState] = Field(default_factory=dict)
    not_started: tuple[Outcome, str] | None = None
    leftovers: int = 0
    peak_memory: int = 0
    out_of_memory_kills: int = 0
    problems: tuple[str, ...] = ()
    shortage: str = ""
    not_preloaded: str = ""
    output: str = ""

    @model_validator(mode="before")
    @classmethod
    def _by_its_old_names(cls, data: Any) -> Any:
        """Reads records from before ``unsound`` and two values of ``stopped`` were renamed."""
        if not isinstance(data, dict) or "unsound" not in data:
            return data
        kept = {name: value for name, value in data.items() if name != "unsound"}
        renamed = {"idle": Stop.LAUNCHER_STUCK, "silence": Stop.IDLE}
        stopped = renamed.get(str(kept.get("stopped")), kept.get("stopped"))
        return {**kept, "not_started": data["unsound"], "stopped": stopped}

    @property
    def final(self) -> bool:
        """Whether it says something about the stack, so that it need not be made again."""
        sound = self.not_started is None and not self.problems
        return sound and not disk_to_blame(self) and not _maybe_the_disk(self)


def left_running(count: int) -> str:
    """What a cell left behind, in words; empty if nothing."""
    if not count:
        return ""
    if count == 1:
        return "a process that it started was still running at its end and was killed"
    return f"{count} processes that it started were still running at its end and were killed"


class Verdict(BaseModel):
    """An outcome with its reasons.

    Attributes:
        symptom: name of the advisory's symptom that was seen.
        masked_by: id of the advisory that describes what stopped the scenario, if one does.
        resembles: name of the advisory's symptom at whose place something else was raised: the same
            cause with a new text, perhaps.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    outcome: Outcome
    reason: str = ""
    symptom: str | None = None
    masked_by: str | None = None
    resembles: str | None = None
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
    if observed.not_started is not None:
        outcome, reason = observed.not_started
        return Verdict(outcome=outcome, reason=reason)
    if observed.problems:
        return Verdict(outcome=Outcome.HARNESS_ERROR, reason="; ".join(observed.problems))
    if reason := disk_to_blame(observed):
        return Verdict(outcome=Outcome.HARNESS_ERROR, reason=reason)
    failed = _failed(observed)
    missing = sorted(set(range(observed.world_size)) - set(observed.ranks))
    decisive = failures.decisive(failed, a_rank_is_missing=bool(missing))
    # A scenario that swallowed what it registered as false may well hang afterwards.
    known_to_be_false = decisive is not None and any(f.registered for f in failed)
    if observed.stopped in ENDED_BY_US and not known_to_be_false:
        return _ended_by_us(observed)
    if _killed_for_memory(observed):
        return Verdict(outcome=Outcome.CRASH, reason=_memory(observed))
    if decisive is not None:
        verdict = _judge_error(decisive, advisory, masks, control)
        if observed.stopped not in ENDED_BY_US:
            return verdict
        then = f"then {_ended_by_us(observed).reason}"
        return verdict.model_copy(update={"reason": f"{verdict.reason}; {then}".lstrip("; ")})
    records = observed.ranks.values()
    if records and all(record.status == "not-applicable" for record in records):
        error = observed.ranks[min(observed.ranks)].error
        reason = _short(error.message, LONGEST_REASON) if error else ""
        return Verdict(outcome=Outcome.NOT_APPLICABLE, reason=reason)
    if any(record.status == "not-applicable" for record in records):
        return Verdict(
            outcome=Outcome.OTHER_FAILURE,
            reason="the ranks disagree on whether the failure applies to this release",
        )
    if missing:
        return Verdict(outcome=Outcome.CRASH, reason=_deaths(observed, missing))
    if observed.exit_status:
        died = sorted(observed.rank_exits)
        how = _deaths(observed, died) if died else f"the launcher ended {observed.exit_status}"
        return Verdict(
            outcome=Outcome.CRASH, reason=f"in teardown, after every scenario had finished: {how}"
        )
    if not any(record.checks for record in records):
        return Verdict(outcome=Outcome.VACUOUS, reason="no rank registered an assertion")
    return Verdict(outcome=Outcome.PASS)


def agreed(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on several runs of one cell: theirs if they are one, else ``unstable``."""
    seen = Counter((v.outcome, v.symptom, v.masked_by) for v in verdicts)
    if len(seen) == 1:
        return verdicts[0]
    told = (
        f"{count} × {outcome}{f' ({name})' if (name := masked_by or symptom) else ''}"
        for (outcome, symptom, masked_by), count in seen.most_common()
    )
    reason = f"{len(verdicts)} runs differ: {', '.join(told)}"
    why = {f"{v.outcome}: {v.reason}": None for v in verdicts if v.reason}  # each once, in order
    reason = "; ".join([reason, *why])
    return Verdict(outcome=Outcome.UNSTABLE, reason=reason, error=verdicts[0].error)


def _failed(observed: Observation) -> list[Failed]:
    return failures.in_order(observed.ranks, observed.failed)


def _judge_error(
    failed: Failed,
    advisory: Advisory,
    masks: Sequence[Advisory],
    control: Outcome | None,
) -> Verdict:
    error = failed.error.model_dump(mode="json")
    if error["exception"] in ("MemoryError", "OutOfMemoryError") or NO_MEMORY.search(
        error["message"]
    ):
        reason = f"out of memory: {_short(error['message'])}"
        return Verdict(outcome=Outcome.CRASH, reason=reason, error=error)
    symptom = advisory.symptom_of(error)
    if not failed.control and symptom is not None:
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
    if failed.control:
        why = _short(error["message"], LONGEST_REASON)
        return Verdict(outcome=Outcome.MASKED, reason=f"precondition failed: {why}", error=error)
    said = f"{error['exception']}: {_short(error['message'])}"
    resembled = advisory.resembled_by(error)
    if resembled is not None:
        said = f"a new message at the place of symptom '{resembled}', maybe the same cause: {said}"
    return Verdict(outcome=Outcome.OTHER_FAILURE, reason=said, resembles=resembled, error=error)


NO_MEMORY = re.compile(
    r"Cannot allocate memory|can't allocate memory|CUDA out of memory|"
    r"Unable to allocate [\d.]+ \wiB"
)
FULL = (errno.ENOSPC, errno.EDQUOT)
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|os error (?:28|122)\b")
# Libraries that say a system's error in words only raise these.
IN_WORDS = ("RuntimeError", "OSError", "SafetensorError", "DistStoreError", "DistBackendError")
ENDED_BY_US = (Stop.LIMIT, Stop.IDLE, Stop.MEMORY)


def disk_to_blame(observed: Observation) -> str:
    """Why a run says nothing of its stack because a disk was full; empty if it does.

    What counts is the error number that a rank met and what the disk had left, not a text.
    """
    if _went_well(observed):
        return ""
    met = [str(rank) for rank, error in _errors(observed) if set(error.errnos) & set(FULL)]
    lost = [
        str(rank)
        for rank, status in observed.rank_exits.items()
        if status == UNRECORDED and rank not in observed.ranks
    ]
    if observed.shortage:
        why = observed.shortage
    elif met:
        why = f"rank {', '.join(dict.fromkeys(met))} had no disk space to write"
    elif lost:
        why = f"rank {', '.join(lost)} could not write its record"
    else:
        return ""
    return f"the disk is full ({why}); free some space and run it again"


def _maybe_the_disk(observed: Observation) -> bool:
    """Whether an error speaks of a full disk and nothing else does: judged, but not for ever."""
    errors = [error for _, error in _errors(observed)]
    return any(e.exception in IN_WORDS and NO_SPACE.search(e.message) for e in errors)


def _errors(observed: Observation) -> list[tuple[int, RaisedError]]:
    return [(failed.rank, failed.error) for failed in _failed(observed)]


def _went_well(observed: Observation) -> bool:
    all_there = set(observed.ranks) == set(range(observed.world_size))
    ended = observed.stopped not in ENDED_BY_US and observed.exit_status == 0
    return all_there and ended and not _failed(observed)


def _killed_for_memory(observed: Observation) -> bool:
    """Whether the kernel, short of memory, killed a rank: it may have killed anybody meanwhile."""
    killed = -signal.SIGKILL in observed.rank_exits.values()
    return bool(observed.out_of_memory_kills) and killed


def _memory(observed: Observation) -> str:
    held = f"its processes used {observed.peak_memory / 10**9:.1f} GB in total"
    if observed.stopped is Stop.MEMORY:
        return f"out of memory: {held}, which exceeds the limit of a cell"
    ranks = [str(r) for r, status in observed.rank_exits.items() if status == -signal.SIGKILL]
    return f"out of memory: the kernel killed rank {', '.join(ranks)} ({held})"


def _deaths(observed: Observation, missing: Sequence[int]) -> str:
    said = []
    # The agent terminates the others when one is gone: they are no cause.
    causes = [r for r in missing if observed.rank_exits.get(r, 0) not in (0, -signal.SIGTERM)]
    for rank in causes or missing:
        status = observed.rank_exits.get(rank)
        match status:
            case None | 0:
                said.append(f"rank {rank} exited without a record")
            case _ if status < 0:
                said.append(f"rank {rank} was killed by signal {-status} ({_signal(-status)})")
            case _:
                said.append(f"rank {rank} exited with {status} without raising")
    return "; ".join(said)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of no name"


def _ended_by_us(observed: Observation) -> Verdict:
    if observed.stopped is Stop.MEMORY:
        return Verdict(outcome=Outcome.CRASH, reason=_memory(observed))
    return Verdict(outcome=Outcome.HANG, reason=_last_words(observed))


def _last_words(observed: Observation) -> str:
    why = "it made no progress" if observed.stopped is Stop.IDLE else "it exceeded its time limit"
    gone = {
        rank: f"had {'finished' if record.status == 'finished' else 'left: ' + record.status}"
        for rank, record in observed.ranks.items()
    }
    if len(gone) == observed.world_size:
        still = ", ".join(f"rank {rank}" for rank in sorted(observed.hanging)) or "the launcher"
        return f"in teardown, after every scenario had ended: {why}; still running: {still}"
    running = {rank: state for rank, state in observed.hanging.items() if rank not in gone}
    told = hangs.explain(running, gone)
    return f"{why}: {told}" if told else f"{why}; no rank could report its state"


LONGEST_REASON = 1_000


def _short(message: str, limit: int = 200) -> str:
    line = " ".join(message.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
