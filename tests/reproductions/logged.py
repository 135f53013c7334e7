"""logged: the loss, the gradient norm and the learning rate in the log are the true ones.

One step over several micro-batches; clipping is on, but far above the gradient's norm, because
trainers compute the norm only where they clip.
"""

from __future__ import annotations

from typing import Any

from trl_compat.runtime import measuring, sft, steps
from trl_compat.runtime.context import Rank

NEVER_CLIPS = 1e6


def error(logged: Any, right: float) -> float:
    """The relative error of a logged number; what was not logged is all wrong."""
    if logged is None:
        return 1.0
    return measuring.rounded(abs(float(logged) / right - 1))


def compared(rank: Rank, taken: steps.Steps, log: dict[str, Any], batches: Any) -> dict[str, Any]:
    """What stands in the log beside what should."""
    model = measuring.twin(rank)
    seen = [batch for of_rank in batches for batch in of_rank]
    total = sum(map(sft.labelled, seen))
    loss = sum(sft.losses(model, batch).sum() for batch in seen) / total
    norm = measuring.size(taken.change)  # of the gradient that the optimizer was given
    return {
        "loss": log.get("loss"),
        "right_loss": round(loss.item(), 4),
        "grad_norm": log.get("grad_norm"),
        "right_grad_norm": round(norm, 4),
        "loss_error": error(log.get("loss"), loss.item()),
        "grad_norm_error": error(log.get("grad_norm"), norm),
        "learning_rate_error": error(log.get("learning_rate"), 1.0),
    }


def scenario(rank: Rank) -> None:
    taken = steps.take(rank, sft.trainer(rank, max_grad_norm=NEVER_CLIPS))
    batches = measuring.everyones(rank, taken.batches)
    sft.assert_rows(rank, batches)
    logs = [log for log in taken.logs if "loss" in log]
    rank.precondition("one-log", len(logs) == 1 or not rank.main, f"logs: {taken.logs}")
    measuring.judged(rank, "logged", lambda: compared(rank, taken, logs[0], batches))
