"""Sabotages of ranks: one rank counts more than the other."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("ranks", within="measuring.judged", variant="sft-ddp", stack="newest")
def a_rank_counts_half(rank: Any, reproduction: Any) -> None:
    def halve(trainer: Any, *_: Any) -> None:
        compute = trainer.compute_loss

        def unfair(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            loss = compute(model, inputs, *args, **options)
            return loss * 0.5 if rank.main else loss

        trainer.compute_loss = unfair

    upon(reproduction.sft, "trainer", halve)
