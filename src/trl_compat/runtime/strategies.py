"""How a scenario is distributed: DDP, ZeRO stage 1 to 3, and the proof that it really was.

DeepSpeed and FSDP are enabled by settings that several releases silently ignore (accelerate on CPU
in particular), so nothing here trusts a setting: :func:`assert_engine` checks the resulting engine.
"""

from __future__ import annotations

import json
import os
from typing import Any

from .context import Rank


def deepspeed_config(stage: int) -> dict[str, Any]:
    """A DeepSpeed configuration that shards even tiny tensors.

    ``stage3_param_persistence_threshold`` is 0: with the default, tensors of tiny models stay
    whole on every rank and a fix that forgets to gather looks right.
    """
    zero: dict[str, Any] = {"stage": stage}
    if stage == 3:
        zero.update(
            stage3_param_persistence_threshold=0,
            stage3_gather_16bit_weights_on_model_save=True,
        )
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000,
    }


def configure_by_environment(rank: Rank) -> None:
    """Switches the variant's strategy on the way ``accelerate launch`` does, by the environment.

    For trainers whose config class cannot take ``deepspeed=`` (PPO and old RLOO redefine
    ``world_size`` and multiply None).
    """
    stage = rank.condition("zero_stage")
    if stage is None:
        return
    path = rank.folder / f"deepspeed{rank.rank}.json"
    path.write_text(json.dumps(deepspeed_config(stage)), encoding="utf-8")
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    os.environ["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = str(path)
    os.environ["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = "true" if stage == 3 else "false"


def deepspeed_argument(rank: Rank) -> dict[str, Any]:
    """``{"deepspeed": config}`` for the trainer's arguments, or nothing without DeepSpeed."""
    stage = rank.condition("zero_stage")
    return {} if stage is None else {"deepspeed": deepspeed_config(stage)}


def assert_engine(rank: Rank, wrapped: Any) -> None:
    """Precondition: the wrapped model is what the variant asks for, at its ZeRO stage."""
    stage = rank.condition("zero_stage")
    kind = type(wrapped).__name__
    rank.observe("wrapped_as", kind)
    if stage is None:
        rank.precondition(
            "data-parallel",
            kind == "DistributedDataParallel",
            f"the model should be wrapped as DistributedDataParallel and is {kind}",
        )
        return
    rank.precondition("engine", kind == "DeepSpeedEngine", f"no DeepSpeed engine but a {kind}")
    actual = wrapped.zero_optimization_stage()
    rank.precondition("zero-stage", actual == stage, f"ZeRO stage {actual} instead of {stage}")
    if stage == 3:
        whole = [
            name
            for name, parameter in wrapped.module.named_parameters()
            if parameter.requires_grad
            and (parameter.numel() != 0 or getattr(parameter, "ds_persist", False))
        ]
        rank.precondition("sharded", not whole, f"parameters not sharded: {whole[:3]}")


def configure_fsdp(rank: Rank) -> None:
    """Switches FSDP on, at the variant's ``fsdp_version``, the way ``accelerate launch`` does.

    By the environment and not by ``TrainingArguments(fsdp=...)``: that option changed its form
    several times, and it asks for ``sync_module_states``, which needs a GPU.  Without a GPU
    accelerate ignores all this, unless :func:`.stand_ins.forced_fsdp_state` is in force.
    """
    version = rank.condition("fsdp_version")
    if version is None:
        return
    os.environ.update(
        ACCELERATE_USE_FSDP="true",
        FSDP_VERSION=str(version),
        FSDP_RESHARD_AFTER_FORWARD="true" if version == 2 else "FULL_SHARD",
        FSDP_SHARDING_STRATEGY="FULL_SHARD",
        FSDP_AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP",
        FSDP_USE_ORIG_PARAMS="true",
        FSDP_SYNC_MODULE_STATES="false",
        FSDP_CPU_RAM_EFFICIENT_LOADING="false",
        FSDP_OFFLOAD_PARAMS="false",
        # accelerate 1.6.0 allows no other with FSDP2
        FSDP_STATE_DICT_TYPE="SHARDED_STATE_DICT" if version == 2 else "FULL_STATE_DICT",
    )


def assert_fsdp(rank: Rank, accelerator: Any) -> None:
    """Precondition: the accelerator distributes as the variant asks, FSDP at its version or DDP."""
    version = rank.condition("fsdp_version")
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    rank.observe("distributed_type", kind)
    rank.precondition(
        "world-size",
        accelerator.num_processes == rank.world_size,
        f"accelerate counts {accelerator.num_processes} processes of {rank.world_size}",
    )
    if version is None:
        rank.precondition("data-parallel", kind.startswith("MULTI_"), f"{kind} instead of DDP")
        return
    rank.precondition("fsdp", kind == "FSDP" and plugin is not None, f"{kind} instead of FSDP")
    actual = getattr(plugin, "fsdp_version", 1)
    rank.precondition("fsdp-version", actual == version, f"FSDP{actual} instead of FSDP{version}")
