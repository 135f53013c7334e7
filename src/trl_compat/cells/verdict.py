"""The one pure function that decides the outcome of a cell from what was observed of it."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from trl_compat.advisories import Advisory
from trl_compat.cells import failures, hangs
from trl_compat.cells.failures import Failed
from trl_compat.cells.observation import ENDED_BY_US, Observation, Stop, disk_to_blame, went_wrong
from trl_compat.cells.outcome import Outcome


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
    predicted: str | None = None,
) -> Verdict:
    """The verdict on one run.

    Args:
        observed: the run.
        advisory: of the cell's failure.
        masks: advisories of failures that may stop the scenario early.
        control: outcome of the control of this cell, ``unavailable`` if it has no record; None
            where there is no control (or the cell is the control).
        predicted: the symptom in whose ranges the stack is, for faults that leave the same numbers.
    """
    if observed.not_started is not None:
        outcome, reason = observed.not_started
        return Verdict(outcome=outcome, reason=reason)
    if observed.problems:
        return Verdict(outcome=Outcome.HARNESS_ERROR, reason="; ".join(observed.problems))
    if reason := disk_to_blame(observed):
        return Verdict(outcome=Outcome.HARNESS_ERROR, reason=reason)
    failed = went_wrong(observed)
    missing = sorted(set(range(observed.world_size)) - set(observed.ranks))
    decisive = failures.decisive(failed, a_rank_is_missing=bool(missing))
    # A scenario that swallowed what it registered as false may well hang afterwards.
    known_to_be_false = decisive is not None and any(f.registered for f in failed)
    if observed.stopped in ENDED_BY_US and not known_to_be_false:
        return _ended_by_us(observed)
    if _killed_for_memory(observed):
        return Verdict(outcome=Outcome.CRASH, reason=_memory(observed))
    if decisive is not None:
        verdict = _judge_error(decisive, advisory, masks, control, observed.measured, predicted)
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


def _judge_error(
    failed: Failed,
    advisory: Advisory,
    masks: Sequence[Advisory],
    control: Outcome | None,
    measured: Mapping[str, Any],
    predicted: str | None,
) -> Verdict:
    error = failed.error.model_dump(mode="json")
    if error["exception"] in ("MemoryError", "OutOfMemoryError") or NO_MEMORY.search(
        error["message"]
    ):
        reason = f"out of memory: {_short(error['message'])}"
        return Verdict(outcome=Outcome.CRASH, reason=reason, error=error)
    symptom = advisory.symptom_of(error, measured, predicted)
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
    if (near := advisory.nearly_shown_by(error, measured)) is not None:
        said += f" (unlike symptom '{near[0]}': {'; '.join(near[1])})"
    return Verdict(outcome=Outcome.OTHER_FAILURE, reason=said, resembles=resembled, error=error)


NO_MEMORY = re.compile(
    r"Cannot allocate memory|can't allocate memory|CUDA out of memory|"
    r"Unable to allocate [\d.]+ \wiB"
)


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
