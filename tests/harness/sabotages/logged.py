"""Sabotages of logged: a log that says something else, and none at all."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("logged", within="measuring.judged", variant="sft-ddp", stack="newest")
def the_loss_is_logged_twice_as_large(rank: Any, reproduction: Any) -> None:
    def double(steps: Any, *_: Any) -> None:
        for log in steps.logs:
            if "loss" in log:
                log["loss"] = 2 * float(log["loss"])

    upon(reproduction.steps, "take", double)


@breaks("one-log", within="scenario", variant="sft-ddp", stack="newest")
def nothing_is_logged(rank: Any, reproduction: Any) -> None:
    upon(reproduction.steps, "take", lambda steps, *_: steps.logs.clear())
