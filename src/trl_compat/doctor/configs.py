"""Conditions out of the configuration files of accelerate and DeepSpeed.

What a file says literally becomes a condition; what it leaves to the command line or to ``auto``
stays open.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trl_compat.doctor.conditions import Conditions
from trl_compat.errors import BadInput
from trl_compat.sources.files import text_of

STRATEGIES = {
    "DEEPSPEED": "deepspeed",
    "FSDP": "fsdp",
    "MULTI_GPU": "ddp",
    "MULTI_CPU": "ddp",
}


def read_accelerate(path: Path, conditions: Conditions) -> None:
    """A file of ``accelerate config``, and the DeepSpeed configuration that it names.

    Raises:
        BadInput: no YAML mapping, a kind of run without known conditions, a contradiction.
    """
    data = _mapping(path)
    who = str(path)
    kind = data.get("distributed_type")
    # YAML reads a bare NO as false.
    kind = "NO" if kind is False else kind
    if not isinstance(kind, str):
        raise BadInput(f"{path}: no distributed_type in it; is it a file of `accelerate config`?")
    if kind == "NO":
        conditions.say("strategy", ("none",), who)
    elif kind in STRATEGIES:
        conditions.say("strategy", (STRATEGIES[kind],), who)
    else:
        conditions.notes.append(f"{path}: nothing is known about distributed_type {kind}")
    if data.get("use_cpu") is True or kind == "MULTI_CPU":
        conditions.say("device", ("cpu",), who)
    if isinstance(data.get("num_processes"), int):
        conditions.say("world_size", (data["num_processes"],), who)
    if kind == "DEEPSPEED":
        _deepspeed_part(path, _part(path, data, "deepspeed_config"), conditions)
    if kind == "FSDP":
        # accelerate takes 1 where the file says nothing.
        version = _part(path, data, "fsdp_config").get("fsdp_version", 1)
        if version not in (1, 2):
            raise BadInput(f"{path}: fsdp_version is {version!r}; 1 or 2")
        conditions.say("fsdp_version", (version,), who)


def _part(path: Path, data: dict[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name) or {}
    if not isinstance(part, dict):
        raise BadInput(f"{path}: {name} is no mapping")
    return part


def _deepspeed_part(path: Path, part: dict[str, Any], conditions: Conditions) -> None:
    named = part.get("deepspeed_config_file")
    if isinstance(named, str) and named:
        inner = Path(named)
        found = next((p for p in (inner, path.parent / inner) if p.is_file()), None)
        if found is None:
            conditions.notes.append(f"{path}: the DeepSpeed file {named} is not here and not read")
        else:
            read_deepspeed(found, conditions)
    elif isinstance(part.get("zero_stage"), int):
        conditions.say("zero_stage", (part["zero_stage"],), str(path))


def read_deepspeed(path: Path, conditions: Conditions) -> None:
    """A DeepSpeed configuration.

    Raises:
        BadInput: no JSON object, a stage that is none, a contradiction.
    """
    try:
        data = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    zero = data.get("zero_optimization", {}) if isinstance(data, dict) else None
    if not isinstance(zero, dict):
        raise BadInput(f"{path}: not a DeepSpeed configuration")
    conditions.say("strategy", ("deepspeed",), str(path))
    stage = zero.get("stage", 0)
    if isinstance(stage, int) and stage in (0, 1, 2, 3) and not isinstance(stage, bool):
        conditions.say("zero_stage", (stage,), str(path))
    elif stage != "auto":
        raise BadInput(f"{path}: zero_optimization.stage is {stage!r}; 0, 1, 2 or 3")


def _mapping(path: Path) -> dict[str, Any]:
    import yaml

    # libyaml's loader is many times faster, and not everywhere.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = yaml.load(text_of(path), Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise BadInput(f"{path}{line}: not valid YAML") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path}: not a file of `accelerate config`")
    return data
