"""Sabotages of online-dpo-ref-none: adapters, base model and reference that are not themselves."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from trl_compat.runtime import strategies, trainers

from .declaration import breaks
from .spoiling import no_learning_rate, upon


def after_building(reproduction: Any, spoil: Any) -> None:
    upon(reproduction, "build_trainer", lambda trainer, *_: spoil(trainer))


def after_preparing(reproduction: Any, spoil: Any) -> None:
    upon(reproduction, "prepare_only", lambda _, trainer: spoil(trainer))


def scale_parameters(trainer: Any, part_of_name: str, factor: float) -> None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    for name, parameter in model.named_parameters():
        if part_of_name in name:
            parameter.data.mul_(factor)


@breaks("adapters-trained", within="scenario", variant="zero2-train")
def steps_that_do_nothing(rank: Any, reproduction: Any) -> None:
    no_learning_rate()


@breaks("adapters-trained", within="scenario", variant="zero2-train")
def the_trainer_forgets_the_adapters(rank: Any, reproduction: Any) -> None:
    trainer_class, _ = trainers.find(rank.condition("trainer"))
    init = trainer_class.__init__

    @functools.wraps(init)
    def init_without_adapters(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **{**options, "peft_config": None})

    trainer_class.__init__ = init_without_adapters


@breaks("no-second-model", within="scenario", variant="ddp")
def a_reference_model_is_there(rank: Any, reproduction: Any) -> None:
    after_preparing(reproduction, lambda trainer: setattr(trainer, "ref_model", trainer.model))


@breaks("wraps-peft", within="scenario", variant="ddp")
def the_model_below_the_adapters_is_wrapped(rank: Any, reproduction: Any) -> None:
    def wrap(trainer: Any) -> None:
        from torch.nn.parallel import DistributedDataParallel

        trainer.model_wrapped = DistributedDataParallel(trainer.model.get_base_model())

    after_preparing(reproduction, wrap)


@breaks("reference-asked", within="assert_reference", variant="ddp")
def adapters_are_never_disabled(rank: Any, reproduction: Any) -> None:
    from peft import PeftModel

    PeftModel.disable_adapter = lambda self: contextlib.nullcontext()


@breaks("reference", within="assert_reference", variant="ddp")
def the_base_model_is_another(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, lambda trainer: scale_parameters(trainer, "model.norm", 1.1))


@breaks("policy-asked", within="assert_reference", variant="ddp")
def the_policy_answers_without_gradients(rank: Any, reproduction: Any) -> None:
    import torch

    reproduction.call_both = torch.no_grad()(reproduction.call_both)


@breaks("policy", within="assert_reference", variant="ddp")
def adapters_do_nothing(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, lambda trainer: scale_parameters(trainer, "lora_B", 0.0))


@breaks("base-tensors", within="scenario", variant="ddp")
def the_base_model_changes_in_the_end(rank: Any, reproduction: Any) -> None:
    def change(_: Any, rank: Any, trainer: Any) -> None:
        scale_parameters(trainer, "model.norm", 1.1)

    upon(reproduction, "call_both", change)


@breaks("data-parallel", within="strategies.assert_engine", variant="ddp")
def the_model_is_not_wrapped(rank: Any, reproduction: Any) -> None:
    after_preparing(reproduction, lambda trainer: setattr(trainer, "model_wrapped", trainer.model))


@breaks("engine", within="strategies.assert_engine", variant="zero2")
def deepspeed_is_not_asked_for(rank: Any, reproduction: Any) -> None:
    strategies.deepspeed_argument = lambda rank: {}
