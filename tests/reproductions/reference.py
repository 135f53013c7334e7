"""reference: DPO's reference model is the policy before the first step, and stays so.

Before anything is trained both models are the same: the loss is ln 2 and all rewards are 0.  Two
steps with a large learning rate follow; the weights of the reference model are compared with those
in the file before the first and after the last.
"""

from __future__ import annotations

import math
from pathlib import Path

from trl_compat.runtime import dpo, measuring, steps, weights
from trl_compat.runtime.context import Rank, at_least

STEPS = 2
REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/margins")


def distance(rank: Rank, found: measuring.Tensors) -> float:
    """The largest difference of any weight from that in the model's file."""
    file = weights.saved_state(Path(rank.spec.model_dir))
    if not set(found) <= set(file) or not found:
        return 1e9
    gaps = [(found[n].float() - file[n].float()).abs().max().item() for n in found]
    return float(f"{max(gaps):.1e}")


def scenario(rank: Rank) -> None:
    given = rank.condition("reference", "given") == "given"
    if not given and rank.condition("zero_stage") == 3 and not at_least("trl", "0.29.0"):
        rank.not_applicable("TRL copies no model that ZeRO-3 shards", since="0.29.0")
    trainer = dpo.trainer(rank, Path(rank.spec.model_dir) if given else None, STEPS)
    start = measuring.whole_model(trainer.ref_model)
    step = steps.take(rank, trainer, STEPS)
    end = measuring.whole_model(trainer.ref_model)
    moved = max(gap.abs().max().item() for gap in step.change.values())
    rank.precondition("moved", moved > 1e-4, f"the policy has moved by {moved:.1g} at most")
    dpo.assert_rows(rank, measuring.everyones(rank, step.batches))
    loss = dpo.logged(rank, step, "loss")
    reward = max(abs(dpo.logged(rank, step, name)) for name in REWARDS)
    measuring.judged(
        rank,
        "reference",
        lambda: {
            "loss_error": measuring.rounded(abs(loss - math.log(2))),
            "reward": measuring.rounded(reward),
            "start": distance(rank, start),
            "end": distance(rank, end),
        },
    )
