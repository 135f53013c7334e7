"""Sabotages of unwrap-double-yield: a helper, an engine, an option that are not what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from trl_compat.runtime import strategies, trainers, weights

from .declaration import breaks
from .spoiling import (
    change_one_number,
    gather_for_good,
    hooks_of_some_module,
    in_place_of_helper,
    lose_a_hook,
    no_learning_rate_of_adam,
    upon,
)

ARGUMENT = "gather_deepspeed3_params"
OPTION = "ds3_gather_for_generation"
FIX = "yield-once-and-restore"
AFTER_EXCEPTION = "restores-after-exception"


@contextlib.contextmanager
def changed_logits(model: Any, factor: float) -> Iterator[None]:
    """While in the block, the model's logits are multiplied."""
    handle = model.lm_head.register_forward_hook(lambda module, inputs, logits: logits * factor)
    try:
        yield
    finally:
        handle.remove()


@breaks("loss-afterwards", within="assert_trains", variant="zero2")
def the_engine_computes_something_else(rank: Any, reproduction: Any) -> None:
    def change(bench: Any, *_: Any) -> None:
        bench.engine.module.lm_head.register_forward_hook(lambda module, inputs, out: 2 * out)

    upon(reproduction, "build_bench", change)


@breaks("trained-afterwards", within="assert_trains", variant="zero2")
def steps_that_do_nothing(rank: Any, reproduction: Any) -> None:
    no_learning_rate_of_adam()


@breaks("unwrapped", within="yields_once", variant="yields-once")
def the_engine_itself_is_yielded(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, engine: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(engine, *args, **options):
            yield engine


@breaks("sharded-inside", within="yields_once", variant="yields-once")
def gathered_when_told_not_to(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **{**options, ARGUMENT: True}) as model:
            yield model


@breaks("hooks-inside", within="yields_once", variant="yields-once")
def a_hook_is_missing_inside(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **options) as model:
            hooks = hooks_of_some_module(model)
            key, hook = hooks.popitem()
            yield model
            hooks[key] = hook


def lose_a_hook_after_the_block() -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **options) as model:
            yield model
        lose_a_hook(model)


@breaks("hooks-after", within="yields_once", variant="yields-once")
def a_hook_is_lost_without_gathering(rank: Any, reproduction: Any) -> None:
    lose_a_hook_after_the_block()


@breaks("hooks-after", within="restores_after_exception", variant=AFTER_EXCEPTION, fix=FIX)
def a_hook_is_lost_with_gathering(rank: Any, reproduction: Any) -> None:
    lose_a_hook_after_the_block()


@breaks("several-tokens", within="same_tokens", variant="same-tokens")
def the_plain_model_repeats_one_token(rank: Any, reproduction: Any) -> None:
    def empty(_: Any, bench: Any) -> None:
        for parameter in bench.plain.parameters():
            parameter.data.zero_()

    upon(reproduction, "follow", empty)


def change_generation(factor: float, *, gathered: bool) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **options) as model:
            spoilt = options[ARGUMENT] is gathered
            with changed_logits(model, factor) if spoilt else contextlib.nullcontext():
                yield model


@breaks("tokens-sharded", within="same_tokens", variant="same-tokens")
def sharded_weights_prefer_other_tokens(rank: Any, reproduction: Any) -> None:
    change_generation(-1, gathered=False)


@breaks("tokens-gathered", within="same_tokens", variant="same-tokens")
def gathered_weights_prefer_other_tokens(rank: Any, reproduction: Any) -> None:
    change_generation(-1, gathered=True)


@breaks("scores-sharded", within="same_tokens", variant="same-tokens")
def sharded_weights_score_otherwise(rank: Any, reproduction: Any) -> None:
    change_generation(1.01, gathered=False)


@breaks("scores-gathered", within="same_tokens", variant="same-tokens")
def gathered_weights_score_otherwise(rank: Any, reproduction: Any) -> None:
    change_generation(1.01, gathered=True)


@breaks("whole-inside", within="restores_after_exception", variant=AFTER_EXCEPTION, fix=FIX)
def not_gathered(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **{**options, ARGUMENT: False}) as model:
            yield model


@breaks("exception-passed-on", within="restores_after_exception", variant="zero2")
def exceptions_are_swallowed(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with contextlib.suppress(Exception), helper(*args, **options) as model:
            yield model


@breaks("hooks-restored", within="restores_after_exception", variant=AFTER_EXCEPTION, fix=FIX)
def a_hook_is_lost_by_an_exception(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, engine: Any, *args: Any, **options: Any) -> Iterator[Any]:
        try:
            with helper(engine, *args, **options) as model:
                yield model
        except BaseException:
            lose_a_hook(engine.module)
            raise


@breaks("released", within="restores_after_exception", variant=AFTER_EXCEPTION, fix=FIX)
def a_forward_leaves_a_parameter_whole(rank: Any, reproduction: Any) -> None:
    def gather_afterwards(bench: Any, *_: Any) -> None:
        model = bench.engine.module
        model.register_forward_hook(lambda module, inputs, out: gather_for_good(model))

    upon(reproduction, "build_bench", gather_afterwards)


@breaks(
    "checkpointing-after",
    within="restores_checkpointing",
    variant="restores-checkpointing",
    fix=FIX,
)
def checkpointing_is_switched_off(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **options) as model:
            yield model
        model.gradient_checkpointing_disable()


@breaks(
    "checkpointing-restored",
    within="restores_checkpointing",
    variant="restores-checkpointing",
    fix=FIX,
)
def checkpointing_is_switched_off_by_an_exception(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper()
    def unwrap(helper: Any, engine: Any, *args: Any, **options: Any) -> Iterator[Any]:
        try:
            with helper(engine, *args, **options) as model:
                yield model
        except BaseException:
            engine.module.gradient_checkpointing_disable()
            raise


@breaks("GRPO-default", within="option_in_config", variant="option-in-config")
def the_option_is_off_by_default(rank: Any, reproduction: Any) -> None:
    _, config_class = trainers.find("GRPO")
    config_class.__dataclass_fields__[OPTION].default = False


@breaks("GRPO-kept", within="option_in_config", variant="option-in-config")
def the_option_is_not_kept(rank: Any, reproduction: Any) -> None:
    _, config_class = trainers.find("GRPO")
    upon(config_class, "__post_init__", lambda _, config: setattr(config, OPTION, True))


@breaks("option-honoured", within="watched_generation.generate", variant="grpo-honours-option")
def the_trainer_ignores_the_option(rank: Any, reproduction: Any) -> None:
    @in_place_of_helper("trl.trainer.grpo_trainer")
    def unwrap(helper: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with helper(*args, **{**options, ARGUMENT: True}) as model:
            yield model


@breaks("generated", within="trainer_honours_option", variant="grpo-honours-option")
def the_trainer_does_not_generate(rank: Any, reproduction: Any) -> None:
    def leave_out(trainer: Any, *_: Any) -> None:
        trainer._prepare_inputs = lambda inputs: inputs

    upon(reproduction, "build_grpo", leave_out)


@breaks("zero-stage", within="strategies.assert_engine", variant="zero2")
def a_stage_less_than_was_asked_for(rank: Any, reproduction: Any) -> None:
    config = strategies.deepspeed_config
    strategies.deepspeed_config = lambda stage: config(stage - 1)


@breaks("sharded", within="strategies.assert_engine", variant="yields-once")
def a_parameter_stays_whole(rank: Any, reproduction: Any) -> None:
    from accelerate import Accelerator

    upon(Accelerator, "prepare", lambda prepared, *_: gather_for_good(prepared[0].module))


@breaks("loaded-weights", within="weights.assert_loaded", variant="yields-once")
def one_number_changed_while_loading(rank: Any, reproduction: Any) -> None:
    from transformers import AutoModelForCausalLM

    def change(model: Any, *_: Any) -> None:
        parameter = next(model.parameters())
        if hasattr(parameter, "ds_id"):
            change_one_number(parameter)

    upon(AutoModelForCausalLM, "from_pretrained", change)


@breaks("loaded-weights", within="weights.assert_loaded", variant="yields-once")
def tensors_of_other_names(rank: Any, reproduction: Any) -> None:
    state = weights.full_state
    weights.full_state = lambda module: {f"other.{name}": t for name, t in state(module).items()}
