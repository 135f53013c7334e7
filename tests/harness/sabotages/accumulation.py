"""Sabotages of accumulation: steps that lose something, and cells that do not measure one step."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("accumulation", within="measuring.judged", variant="engine-zero2-ga4")
def a_micro_batch_counts_half(rank: Any, reproduction: Any) -> None:
    def halve(engine: Any, *_: Any) -> None:
        backward, seen = engine.backward, []

        def unfair(loss: Any, *args: Any, **options: Any) -> Any:
            seen.append(loss)
            return backward(loss * 0.5 if len(seen) == 2 else loss, *args, **options)

        engine.backward = unfair

    upon(reproduction, "deepspeed_engine", halve)


@breaks("rows", within="sft.assert_rows", variant="sft-ddp-ga4")
def the_rows_differ_in_length(rank: Any, reproduction: Any) -> None:
    reproduction.sft.LETTERS = "abcdefghijqr"  # the last three are two tokens each


@breaks("steps", within="steps.take", variant="sft-ddp-ga4")
def there_are_two_steps(rank: Any, reproduction: Any) -> None:
    upon(reproduction.sft, "trainer", lambda trainer, *_: setattr(trainer.args, "max_steps", 2))


@breaks("micro-batches", within="steps.take", variant="sft-ddp-ga4")
def the_batches_are_made_elsewhere(rank: Any, reproduction: Any) -> None:
    def made_before(trainer: Any, *_: Any) -> None:
        loader = trainer.get_train_dataloader()
        trainer.get_train_dataloader = lambda: loader

    upon(reproduction.sft, "trainer", made_before)
