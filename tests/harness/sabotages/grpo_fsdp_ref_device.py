"""Sabotages of grpo-fsdp-ref-device: a reference model that is not where, or what, it must be."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from trl_compat.runtime import strategies

from .declaration import breaks
from .spoiling import upon


def after_building(reproduction: Any, spoil: Any) -> None:
    upon(reproduction, "build_trainer", lambda trainer, *_: spoil(trainer))


def undistribute(trainer: Any) -> None:
    """Makes the trainer's accelerator believe that it is not distributed."""
    from accelerate.utils import DistributedType

    type(trainer.accelerator).distributed_type = property(lambda _: DistributedType.NO)


def place_reference(place: Any) -> None:
    """Puts something else where GRPO prepares its reference model for FSDP."""
    from trl.trainer import grpo_trainer

    grpo_trainer.prepare_fsdp = place


@breaks("reference-on-device", within="assert_placed", variant="fsdp1-device")
def reference_left_where_it_was(rank: Any, reproduction: Any) -> None:
    place_reference(lambda model, accelerator: model.eval())


@breaks("reference-wrapped", within="assert_sharded", variant="fsdp1-sharding")
def reference_not_wrapped(rank: Any, reproduction: Any) -> None:
    place_reference(lambda model, accelerator: model.eval())


@breaks("reference-sharded", within="assert_sharded", variant="fsdp1-sharding")
def reference_wrapped_and_whole(rank: Any, reproduction: Any) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    def whole(model: Any, accelerator: Any) -> Any:
        strategy = ShardingStrategy.NO_SHARD
        return FullyShardedDataParallel(
            model, sharding_strategy=strategy, device_id=accelerator.device, use_orig_params=True
        ).eval()

    place_reference(whole)


@breaks("reference-sharded", within="assert_sharded", variant="fsdp2-sharding")
def one_parameter_made_whole(rank: Any, reproduction: Any) -> None:
    def make_whole(trainer: Any) -> None:
        import torch

        norm = trainer.ref_model.model.norm
        norm.weight = torch.nn.Parameter(norm.weight.full_tensor().detach())

    after_building(reproduction, make_whole)


@breaks("evaluation-mode", within="assert_same_model", variant="ddp")
def reference_in_training_mode(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, lambda trainer: trainer.ref_model.train())


@breaks("reference-logits", within="assert_same_model", variant="ddp")
def a_weight_of_the_reference_changed(rank: Any, reproduction: Any) -> None:
    def change(trainer: Any) -> None:
        trainer.ref_model.model.norm.weight.data[0] += 0.01

    after_building(reproduction, change)


@breaks("synchronised-reference", within="assert_callback", variant="ddp")
def callback_with_another_model(rank: Any, reproduction: Any) -> None:
    def exchange(trainer: Any) -> None:
        for callback in trainer.callback_handler.callbacks:
            if type(callback).__name__ == "SyncRefModelCallback":
                callback.ref_model = trainer.model

    after_building(reproduction, exchange)


@breaks("clipped-gradients", within="assert_clipping", variant="fsdp1-sharding")
def gradients_lost_before_clipping(rank: Any, reproduction: Any) -> None:
    from accelerate import Accelerator

    clip = Accelerator.clip_grad_norm_

    def lose_and_clip(self: Any, parameters: Any, *args: Any) -> Any:
        parameters = list(parameters)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.zero_()
        return clip(self, parameters, *args)

    Accelerator.clip_grad_norm_ = lose_and_clip


@breaks("reference", within="scenario", variant="ddp")
def no_reference_at_all(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, lambda trainer: setattr(trainer, "ref_model", None))


@breaks("world-size", within="strategies.assert_fsdp", variant="ddp")
def every_rank_believes_it_is_alone(rank: Any, reproduction: Any) -> None:
    after_building(
        reproduction,
        lambda trainer: setattr(type(trainer.accelerator), "num_processes", property(lambda _: 1)),
    )


@breaks("data-parallel", within="strategies.assert_fsdp", variant="ddp")
def not_distributed(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, undistribute)


@breaks("fsdp", within="strategies.assert_fsdp", variant="fsdp1-sharding")
def fsdp_ignored_as_accelerate_does_on_cpu(rank: Any, reproduction: Any) -> None:
    reproduction.stand_ins.forced_fsdp_state = lambda rank: contextlib.nullcontext()
    place_reference(lambda model, accelerator: model.eval())


@breaks("fsdp", within="strategies.assert_fsdp", variant="fsdp1-sharding")
def fsdp_without_its_settings(rank: Any, reproduction: Any) -> None:
    after_building(
        reproduction, lambda trainer: setattr(trainer.accelerator.state, "fsdp_plugin", None)
    )


@breaks("fsdp", within="strategies.assert_fsdp", variant="fsdp1-sharding")
def settings_of_fsdp_without_fsdp(rank: Any, reproduction: Any) -> None:
    after_building(reproduction, undistribute)


@breaks("fsdp-version", within="strategies.assert_fsdp", variant="fsdp2-sharding")
def fsdp1_in_place_of_fsdp2(rank: Any, reproduction: Any) -> None:
    def older(*_: Any) -> None:
        os.environ.update(
            FSDP_VERSION="1",
            FSDP_RESHARD_AFTER_FORWARD="FULL_SHARD",
            FSDP_STATE_DICT_TYPE="FULL_STATE_DICT",
        )

    upon(strategies, "configure_fsdp", older)
