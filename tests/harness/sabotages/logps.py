"""Sabotages of logps: an answer loses a token."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import before_the_loss, upon


@breaks("logps", within="measuring.judged", variant="dpo-ddp")
def the_last_token_of_an_answer_is_lost(rank: Any, reproduction: Any) -> None:
    def lose(inputs: Any) -> None:
        last = inputs["completion_mask"][-1]
        last[last.nonzero()[-1]] = 0

    upon(reproduction.dpo, "trainer", lambda trainer, *_: before_the_loss(trainer, lose))
