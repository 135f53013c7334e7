"""Sabotages of grpo-zero3-optimizer: training, saving, generating and handing over, each spoilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trl_compat.runtime import weights

from .declaration import breaks
from .spoiling import (
    gather_for_good,
    in_place_of_helper,
    lose_a_hook,
    no_learning_rate,
    no_learning_rate_of_adam,
    upon,
)

OLD, FIX = "trl-0.15.2", "find-the-engine"


def after_building(reproduction: Any, spoil: Callable[[Any], object]) -> None:
    upon(reproduction, "build_trainer", lambda trainer, *_: spoil(trainer))


def after_the_block(spoil: Callable[[Any], object]) -> None:
    """Spoils the bare model whenever TRL's helper has given it back."""

    @in_place_of_helper()
    def unwrap(helper: Any, bare: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(bare, *args, **options) as model:
            yield model
        spoil(bare)


@breaks("none-in-use", within="check_restored", variant="zero3-helper")
def a_parameter_stays_in_use(rank: Any, reproduction: Any) -> None:
    after_the_block(lambda bare: next(bare.parameters()).ds_active_sub_modules.add(1))


@breaks("hooks-restored", within="check_restored", variant="zero3-helper")
def a_hook_is_lost(rank: Any, reproduction: Any) -> None:
    after_the_block(lose_a_hook)


@breaks("hooks-restored", within="check_restored", variant="zero2-train")
def hooks_are_not_looked_at_before(rank: Any, reproduction: Any) -> None:
    reproduction.at_train_begin = lambda trainer, action: None


@breaks("sharded-again", within="check_restored", variant="zero3-helper")
def a_parameter_stays_whole(rank: Any, reproduction: Any) -> None:
    after_the_block(gather_for_good)


@breaks("trained", within="train", variant="zero2-train")
def steps_that_do_nothing(rank: Any, reproduction: Any) -> None:
    no_learning_rate()


@breaks("evaluated", within="train", variant="zero2-train")
def evaluation_without_a_loss(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, lambda trainer: setattr(trainer, "evaluate", dict))


@breaks("saved-tensors", within="train", variant="zero2-train")
def one_byte_changed(rank: Any, reproduction: Any) -> None:
    def change(_: Any, folder: str) -> None:
        if rank.main:
            path = rank.folder / folder / "model.safetensors"
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(bytes(content))

    after_building(reproduction, lambda trainer: upon(trainer, "save_model", change))


@breaks("generated", within="train", variant="zero2-train")
def tokens_come_from_elsewhere(rank: Any, reproduction: Any) -> None:
    def generate_unseen(trainer: Any) -> None:
        def restore() -> None:
            model = trainer.model
            model.generate = type(model).generate.__get__(model)

        reproduction.at_train_begin(trainer, restore)

    after_building(reproduction, generate_unseen)


@breaks("whole-while-generating", within="train", variant="zero3-train")
def hooks_are_left_on(rank: Any, reproduction: Any) -> None:
    from trl.models import utils

    utils.remove_hooks = utils.add_hooks = lambda engine: None


@breaks("trained", within="hand_over", variant="zero3-vllm", stack=OLD, fix=FIX)
def steps_that_do_nothing_with_vllm(rank: Any, reproduction: Any) -> None:
    no_learning_rate()


@breaks("handed-over", within="hand_over", variant="zero3-vllm", stack=OLD, fix=FIX)
def nothing_is_handed_over(rank: Any, reproduction: Any) -> None:
    after_building(
        reproduction, lambda trainer: setattr(trainer, "_move_model_to_vllm", lambda: None)
    )


@breaks("handed-over-whole", within="hand_over", variant="zero3-vllm", stack=OLD, fix=FIX)
def shards_are_handed_over(rank: Any, reproduction: Any) -> None:
    after_building(
        reproduction, lambda trainer: setattr(trainer.args, "ds3_gather_for_generation", False)
    )


@breaks("handed-over-trained", within="hand_over", variant="zero3-vllm", stack=OLD, fix=FIX)
def untrained_weights_are_handed_over(rank: Any, reproduction: Any) -> None:
    def exchange(trainer: Any) -> None:
        untrained = weights.full_state(trainer.model)

        def load() -> None:
            if rank.main:
                trainer.llm.load_weights(untrained.items())

        trainer._move_model_to_vllm = load

    after_building(reproduction, exchange)


def spoil_generation(number: int) -> None:
    """The model prefers other tokens when the helper's block is entered for the Nth time."""
    entered = []

    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        entered.append(True)
        with helper(*args, **options) as model:
            if len(entered) == number:
                head = model.lm_head.register_forward_hook(lambda module, inputs, out: -out)
                yield model
                head.remove()
            else:
                yield model


@breaks(
    "tokens-before-step",
    within="unwrap_bare_model.generate_and_compare",
    variant="zero3-helper",
)
def other_tokens_before_the_step(rank: Any, reproduction: Any) -> None:
    spoil_generation(1)


@breaks(
    "tokens-after-step",
    within="unwrap_bare_model.generate_and_compare",
    variant="zero3-helper",
)
def other_tokens_after_the_step(rank: Any, reproduction: Any) -> None:
    spoil_generation(2)


@breaks("trained", within="unwrap_bare_model", variant="zero3-helper")
def steps_of_the_engine_that_do_nothing(rank: Any, reproduction: Any) -> None:
    no_learning_rate_of_adam()
