"""Sabotages of settings: the largest gradient norm is another, the weights are less precise."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("settings", within="measuring.judged", variant="sft-ddp-clipping", stack="newest")
def the_norm_is_another(rank: Any, reproduction: Any) -> None:
    def other(trainer: Any, *_: Any) -> None:
        trainer.args.max_grad_norm = 0.02

    upon(reproduction.sft, "trainer", other)


@breaks("settings", within="measuring.judged", variant="sft-ddp-dtype", stack="newest")
def the_weights_are_cast(rank: Any, reproduction: Any) -> None:
    import torch

    def cast(trainer: Any, *_: Any) -> None:
        trainer.model.to(torch.bfloat16)

    upon(reproduction.sft, "trainer", cast)
