"""Sabotages of gradient: a factor, a lost token, a stale reference model, rows of one form."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import before_the_loss, upon


@breaks("gradient", within="measuring.judged", variant="sft-ddp")
def the_loss_has_a_factor(rank: Any, reproduction: Any) -> None:
    def scale(trainer: Any, *_: Any) -> None:
        compute = trainer.compute_loss
        trainer.compute_loss = lambda *args, **options: compute(*args, **options) * 0.99

    upon(reproduction.sft, "trainer", scale)


@breaks("gradient", within="measuring.judged", variant="dpo-ddp")
def the_reference_is_the_policy(rank: Any, reproduction: Any) -> None:
    def copy(trainer: Any, *_: Any) -> None:
        trainer.ref_model.load_state_dict(trainer.model.state_dict())

    upon(reproduction.dpo, "trainer", copy)


@breaks("gradient", within="measuring.judged", variant="dpo-zero2")
def the_first_token_of_each_answer_is_lost(rank: Any, reproduction: Any) -> None:
    def lose(inputs: Any) -> None:
        for row in inputs["completion_mask"]:
            row[row.nonzero()[0]] = 0

    upon(reproduction.dpo, "trainer", lambda trainer, *_: before_the_loss(trainer, lose))


@breaks("rows", within="dpo.assert_rows", variant="dpo-ddp")
def all_pairs_are_one(rank: Any, reproduction: Any) -> None:
    def one(count: int) -> Any:
        return {"prompt": ["a b"] * count, "chosen": [" c"] * count, "rejected": [" d"] * count}

    reproduction.dpo.pairs = one
