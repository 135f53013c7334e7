"""Sabotages of step: an optimizer that is not the one that was asked for."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("step", within="measuring.judged", variant="sft-ddp", stack="newest")
def the_betas_are_others(rank: Any, reproduction: Any) -> None:
    def others(trainer: Any, *_: Any) -> None:
        trainer.args.adam_beta1 = 0.5

    upon(reproduction.sft, "trainer", others)
