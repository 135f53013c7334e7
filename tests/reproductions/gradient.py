"""gradient: the gradient that the optimizer gets is that of the loss in closed form.

One optimizer step.  SFT's loss is the mean over all tokens of the step, with rows of one length.
DPO's is formula 7 of its paper, with a reference model that differs from the policy, so that both
come into the gradient of the first step.  The reward trainer's is that of Bradley and Terry, KTO's
that of its paper, with the KL estimate of each micro-batch; those of GRPO, Online DPO and PPO are
computed from completions and rewards that are given.
"""

from __future__ import annotations

from trl_compat.runtime import dpo, measuring, sft, steps
from trl_compat.runtime.context import Rank
from trl_compat.runtime.losses import grpo, kto, online_dpo, ppo_loss, reward


def sft_step(rank: Rank) -> None:
    """One step of the SFT trainer."""
    step = steps.take(rank, sft.trainer(rank))
    batches = measuring.everyones(rank, step.batches)
    sft.assert_rows(rank, batches)
    measuring.judged(
        rank,
        "gradient",
        lambda: measuring.comparison(step.change, sft.parts(rank, batches)),
    )


def dpo_step(rank: Rank) -> None:
    """One step of the DPO trainer."""
    reference = dpo.other_model(rank)
    step = steps.take(rank, dpo.trainer(rank, reference))
    batches = measuring.everyones(rank, step.batches)
    dpo.assert_rows(rank, batches)
    measuring.judged(
        rank,
        "gradient",
        lambda: measuring.comparison(step.change, dpo.parts(rank, batches, reference)),
    )


OTHERS = {"Reward": reward, "KTO": kto, "GRPO": grpo, "Online DPO": online_dpo, "PPO": ppo_loss}


def scenario(rank: Rank) -> None:
    if (trainer := rank.condition("trainer")) in OTHERS:
        OTHERS[trainer].measured(rank, "gradient")
    else:
        {"SFT": sft_step, "DPO": dpo_step}[trainer](rank)
