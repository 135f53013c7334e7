"""Sabotages of zero3-gloo-unwaited-allgather."""

from __future__ import annotations

from typing import Any

from trl_compat.runtime import strategies

from .declaration import breaks
from .spoiling import change_one_number, upon


@breaks("sharded", within="load_under_zero3", variant="waited")
def loaded_under_zero2(rank: Any, reproduction: Any) -> None:
    config = strategies.deepspeed_config
    strategies.deepspeed_config = lambda stage: config(2)


@breaks("gathered-equals-file", within="scenario", variant="waited")
def one_number_changed_after_loading(rank: Any, reproduction: Any) -> None:
    def change(model: Any, *_: Any) -> None:
        change_one_number(max(model.parameters(), key=lambda parameter: parameter.ds_numel))

    upon(reproduction, "load_under_zero3", change)
