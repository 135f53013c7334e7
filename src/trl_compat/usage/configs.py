"""Conditions from the configuration files of accelerate and DeepSpeed.

A literal value in a file becomes a condition; values left to the command line or ``auto`` stay
unspecified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.usage.conditions import UsageBuilder

GATHER = "stage3_gather_16bit_weights_on_model_save"
AUTO = "auto"  # the Trainer fills in its own argument
STRATEGIES = {
    "DEEPSPEED": "deepspeed",
    "FSDP": "fsdp",
    "MULTI_GPU": "ddp",
    "MULTI_CPU": "ddp",
    "NO": "none",
}


def read_accelerate(path: Path, conditions: UsageBuilder) -> None:
    """A file of ``accelerate config``, and the DeepSpeed configuration that it names.

    Raises:
        BadInput: no YAML mapping, a kind of run without known conditions, a contradiction.
    """
    data = reading.yaml_of(path)
    if not isinstance(data, dict):
        raise BadInput(f"{path}: not an `accelerate config` file")
    who = str(path)
    kind = data.get("distributed_type")
    # YAML reads a bare NO as false.
    kind = "NO" if kind is False else kind
    if not isinstance(kind, str):
        raise BadInput(f"{path}: no distributed_type in it; is it an `accelerate config` file?")
    if kind in STRATEGIES:
        conditions.say("strategy", (STRATEGIES[kind],), who)
    else:
        conditions.notes.append(f"{path}: unknown distributed_type; the strategy is unspecified")
    if (device := _device(kind, data.get("use_cpu"))) is not None:
        conditions.say("device", (device,), who)
    ranks = data.get("num_processes")
    if isinstance(ranks, int) and not isinstance(ranks, bool) and 0 < ranks < 1_000_000:
        conditions.say("world_size", (ranks,), who)
    if kind == "DEEPSPEED":
        _deepspeed_part(path, _part(path, data, "deepspeed_config"), conditions)
    if kind == "FSDP":
        # accelerate takes 1 where the file says nothing.
        version = _part(path, data, "fsdp_config").get("fsdp_version", 1)
        if str(version) not in ("1", "2"):
            raise BadInput(f"{path}: fsdp_version is neither 1 nor 2")
        conditions.say("fsdp_version", (int(version),), who)


def _device(kind: str, use_cpu: object) -> str | None:
    """Where the ranks run: on CPUs only where the file says so."""
    if kind == "MULTI_CPU" or use_cpu is True:
        return "cpu"
    return "cuda" if use_cpu is False else None


def _part(path: Path, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return reading.mapping(data.get(name) or {}, f"{path}: {name}")


def _deepspeed_part(path: Path, part: Mapping[str, Any], conditions: UsageBuilder) -> None:
    named, stage = part.get("deepspeed_config_file"), part.get("zero_stage")
    if isinstance(named, str) and named:
        nested(named, path, conditions)
        return
    who = str(path)
    if stage is not None:
        _stage(stage, f"{path}: deepspeed_config.zero_stage", who, conditions)
    # accelerate offloads nothing and clips nothing unless the file says so.
    device = part.get("offload_optimizer_device", "none")
    _settings(
        {
            "offload_optimizer": device,
            "gradient_accumulation_steps": part.get("gradient_accumulation_steps", AUTO),
            "gradient_clipping": part.get("gradient_clipping"),
        },
        who,
        conditions,
    )
    if stage is not None and str(stage) == "3":
        _settings({GATHER: part.get("zero3_save_16bit_model", False)}, who, conditions)


def nested(named: str, path: Path, conditions: UsageBuilder) -> None:
    """The DeepSpeed file that a configuration or a script names, if it is here."""
    here = (Path(named), path.parent / named)
    try:
        found = next((p for p in here if p.is_file()), None)
    except OSError:
        found = None
    if found is None:
        conditions.say("strategy", ("deepspeed",), str(path))
        conditions.notes.append(
            f"{path}: the DeepSpeed file {named[:200]} was not found and not read"
        )
    else:
        read_deepspeed(found, conditions)


def read_deepspeed(path: Path, conditions: UsageBuilder) -> None:
    """A DeepSpeed configuration.

    Raises:
        BadInput: no JSON object, a stage that is none, a contradiction.
    """
    data = reading.json_of(path)
    zero = data.get("zero_optimization", {}) if isinstance(data, dict) else None
    if not isinstance(zero, dict):
        raise BadInput(f"{path}: not a DeepSpeed configuration")
    conditions.say("strategy", ("deepspeed",), str(path))
    _stage(zero.get("stage", 0), f"{path}: zero_optimization.stage", str(path), conditions)
    offload = zero.get("offload_optimizer") or {}
    device = offload.get("device", "none") if isinstance(offload, dict) else AUTO
    _settings(
        {
            "offload_optimizer": "cpu" if zero.get("cpu_offload") is True else device,
            "gradient_accumulation_steps": data.get("gradient_accumulation_steps", AUTO),
            "gradient_clipping": data.get("gradient_clipping"),
        },
        str(path),
        conditions,
    )
    if str(zero.get("stage")) == "3":
        _settings({GATHER: zero.get(GATHER)}, str(path), conditions)


def _settings(found: Mapping[str, object], who: str, conditions: UsageBuilder) -> None:
    """States what a DeepSpeed configuration sets or leaves out; what others fill in is open."""
    for name, value in found.items():
        left_to_others = value == AUTO and name != "gradient_clipping"
        countable = not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, str | int | float | None) and countable and not left_to_others:
            conditions.state(name, (value,), who)


def _stage(stage: object, name: str, who: str, conditions: UsageBuilder) -> None:
    if stage == "auto":
        return
    if isinstance(stage, bool) or str(stage)[:10] not in ("0", "1", "2", "3"):
        raise BadInput(f"{name} is not 0, 1, 2 or 3")
    conditions.say("zero_stage", (int(str(stage)),), who)
