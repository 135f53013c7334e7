"""Sabotages of resumed: a run that goes on elsewhere, and one that learns nothing."""

from __future__ import annotations

from typing import Any

from trl_compat.runtime.context import replace

from .declaration import breaks
from .spoiling import no_learning_rate, upon


@breaks("resumed", within="measuring.judged", variant="sft-ddp-first-epoch", stack="newest")
def the_rows_are_in_another_order(rank: Any, reproduction: Any) -> None:
    made: list[Any] = []

    def backwards(trainer: Any, *_: Any) -> None:
        made.append(trainer)
        rows = trainer.train_dataset
        if len(made) == 2:
            trainer.train_dataset = rows.select(range(len(rows))[::-1])

    upon(reproduction.sft, "trainer", backwards)


@breaks("resumed-there", within="scenario", variant="sft-ddp-first-epoch", stack="newest")
def it_starts_from_the_beginning(rank: Any, reproduction: Any) -> None:
    take = reproduction.steps.take

    def from_the_start(*args: Any, resume: Any = None, **options: Any) -> Any:
        return take(*args, **options)

    reproduction.steps.take = from_the_start


@breaks("trained", within="scenario", variant="sft-ddp-first-epoch", stack="newest")
def nothing_is_trained(rank: Any, reproduction: Any) -> None:
    no_learning_rate()


@breaks("resumed", within="measuring.judged", variant="sft-fsdp2-first-epoch", stack="newest")
def the_optimizer_is_not_read(rank: Any, reproduction: Any) -> None:
    import transformers.trainer as place

    replace(place, "load_fsdp_optimizer", lambda *_, **__: None)
