"""resumed: a run that was stopped and resumed ends as one that was not.

An epoch has three steps.  The uninterrupted run takes five and writes checkpoints on its way; the
resumed run starts at one of them, ``from_step``, which lies in the first or in the second epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.runtime import measuring, sft, stand_ins, steps
from trl_compat.runtime.context import Rank, at_least

EPOCH, STEPS = 3, 5


def train(rank: Rank, name: str, resume: Path | None) -> tuple[steps.Steps, list[Any]]:
    """A whole run, from its start or from a checkpoint.

    Returns:
        The steps, and the token ids that this rank was given in each of the steps taken here.
    """
    trainer = sft.trainer(
        rank,
        EPOCH,
        max_steps=STEPS,
        learning_rate=1e-2,
        adam_epsilon=1e-3,
        optim="adamw_torch",
        lr_scheduler_type="linear",
        save_strategy="steps",
        save_steps=1,
        output_dir=str(rank.folder / name),
    )
    given: list[Any] = []
    training_step = trainer.training_step

    def noted(model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
        given.append(inputs["input_ids"].tolist())
        return training_step(model, inputs, *more, **options)

    trainer.training_step = noted
    return steps.take(rank, trainer, STEPS, optimizer=None, resume=resume), given


def rates(run: steps.Steps) -> list[float]:
    """The learning rates that a run logged, step by step."""
    return [log["learning_rate"] for log in run.logs if "learning_rate" in log]


def compared(whole: steps.Steps, resumed: steps.Steps, other: int) -> dict[str, Any]:
    """How the end of the resumed run stands to that of the uninterrupted one."""
    gap = measuring.distance(whole.after, resumed.after)
    expected, found = rates(whole), rates(resumed)
    same = [abs(a - b) < 1e-9 for a, b in zip(expected[::-1], found[::-1], strict=False)]
    return {
        "relative_error": measuring.rounded(gap / measuring.size(whole.change)),
        "other_batches": other,
        "other_rates": same.count(False) if same else 1,
    }


def scenario(rank: Rank) -> None:
    loads = rank.condition("strategy") != "ddp" or rank.spec.device != "cpu"
    if not loads and not at_least("torch", "2.15.0"):
        rank.not_applicable("torch loads no optimizer to the device 'cpu:0'", until="torch 2.13")
    if rank.condition("fsdp_version") == 1:
        stand_ins.fsdp1_state_on_cpu(rank)
        stand_ins.fsdp1_optimizer_state_on_cpu(rank)
    start = rank.condition("from_step")
    whole, seen = train(rank, "whole", None)
    resumed, again = train(rank, "resumed", rank.folder / "whole" / f"checkpoint-{start}")
    rank.precondition(
        "resumed-there", len(again) == STEPS - start, f"{len(again)} steps after step {start}"
    )
    moved = measuring.size(whole.change)
    rank.precondition("trained", moved > 1e-3, f"the run moved the weights by {moved:.2g}")
    others = sum(a != b for a, b in zip(seen[start:], again, strict=True))
    other = sum(measuring.everyones(rank, others))
    measuring.judged(rank, "resumed", lambda: compared(whole, resumed, other))
