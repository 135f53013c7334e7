"""Sabotages of reference: it is another model, it is changed, or nothing is trained beside it."""

from __future__ import annotations

from typing import Any

from .declaration import breaks
from .spoiling import change_one_number, upon


@breaks("reference", within="measuring.judged", variant="dpo-ddp")
def the_reference_is_another_model(rank: Any, reproduction: Any) -> None:
    upon(reproduction.dpo, "trainer", lambda trainer, *_: add_one(trainer.ref_model))


@breaks("reference", within="measuring.judged", variant="dpo-ddp-own")
def the_reference_is_trained_too(rank: Any, reproduction: Any) -> None:
    upon(reproduction.steps, "take", lambda _, _rank, trainer, *__: add_one(trainer.ref_model))


@breaks("reference", within="measuring.judged", variant="dpo-zero3")
def a_shard_of_the_reference_is_changed(rank: Any, reproduction: Any) -> None:
    def change(_: Any, _rank: Any, trainer: Any, *__: Any) -> None:
        change_one_number(next(trainer.ref_model.parameters()))

    upon(reproduction.steps, "take", change)


@breaks("moved", within="scenario", variant="dpo-ddp")
def the_policy_stays(rank: Any, reproduction: Any) -> None:
    def stop(trainer: Any, *_: Any) -> None:
        for parameter in trainer.model.parameters():
            parameter.register_hook(lambda gradient: gradient * 0)

    upon(reproduction.dpo, "trainer", stop)


def add_one(model: Any) -> None:
    """Changes a weight of a model that nothing shards."""
    next(model.parameters()).data.view(-1)[0] += 1
