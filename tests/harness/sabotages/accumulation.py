"""Sabotages of accumulation: steps that lose something, and cells that do not measure one step."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import upon


@breaks("accumulation", within="measuring.judged", variant="engine-zero2-ga4")
def a_micro_batch_counts_half(rank: Any, reproduction: Any) -> None:
    upon(reproduction, "deepspeed_engine", lambda engine, *_: halve_the_second(engine))


@breaks("accumulation", within="measuring.judged", variant="engine-zero2-bf16-ga4")
def a_micro_batch_in_bfloat16_counts_half(rank: Any, reproduction: Any) -> None:
    upon(reproduction, "deepspeed_engine", lambda engine, *_: halve_the_second(engine))


@breaks("dtype", within="assert_dtype", variant="engine-zero2-bf16-ga4")
def the_engine_computes_in_float32(rank: Any, reproduction: Any) -> None:
    upon(reproduction, "deepspeed_engine", lambda engine, *_: engine.module.float())


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


@breaks("accumulation", within="measuring.judged", variant="reward-zero2-ga4")
def a_micro_batch_of_pairs_is_lost(rank: Any, reproduction: Any) -> None:
    upon(reproduction.reward, "trainer", lambda trainer, *_: lose_the_second(trainer))


@breaks("accumulation", within="measuring.judged", variant="kto-zero3-ga4")
def a_micro_batch_of_answers_is_lost(rank: Any, reproduction: Any) -> None:
    upon(reproduction.kto, "trainer", lambda trainer, *_: lose_the_second(trainer))


@breaks("accumulation", within="measuring.judged", variant="kto-ddp-ga4")
def the_kl_estimate_is_that_of_the_first_micro_batch(rank: Any, reproduction: Any) -> None:
    def keep(trainer: Any, *_: Any) -> None:
        compute = trainer._compute_kl_logps
        kept: dict[int, Any] = {}

        def compute_once(model: Any, batch: Any) -> Any:
            return kept.setdefault(id(model), compute(model, batch))

        trainer._compute_kl_logps = compute_once

    upon(reproduction.kto, "trainer", keep)


def halve_the_second(engine: Any) -> None:
    """The second micro-batch of an engine counts half."""
    backward, seen = engine.backward, []

    def unfair(loss: Any, *args: Any, **options: Any) -> Any:
        seen.append(loss)
        return backward(loss * 0.5 if len(seen) == 2 else loss, *args, **options)

    engine.backward = unfair


def lose_the_second(trainer: Any) -> None:
    """The second micro-batch of a trainer has no gradient."""
    compute, seen = trainer.compute_loss, []

    def compute_loss(*args: Any, **options: Any) -> Any:
        seen.append(args)
        return compute(*args, **options) * (len(seen) != 2)

    trainer.compute_loss = compute_loss
