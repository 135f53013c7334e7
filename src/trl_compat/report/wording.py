"""Scopes, conditions and patterns of advisories in the words of people who train models.

What only says where a reproduction looks (its facet, its steps) is no condition that a user has,
and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trl_compat.advisories import Advisory, Remedy, Scope

STRATEGIES = {"deepspeed": "DeepSpeed", "fsdp": "FSDP", "ddp": "DDP"}
DEVICES = {"cpu": "on CPU ranks", "cuda": "on GPUs"}
SAVING = {"trainer": "save_model", "checkpoint": "checkpoints", "gathered": "gathered saving"}
OF_THE_REPRODUCTION = frozenset({"facet", "steps", "without_stand_in"})


def conditions(wanted: Mapping[str, Any]) -> str:
    """``PPO, ZeRO-3, save_model or checkpoints``; empty if nothing is asked for."""
    told = []
    for name, value in wanted.items():
        values = value if isinstance(value, tuple) else (value,)
        match name:
            case _ if name in OF_THE_REPRODUCTION:
                continue
            case "strategy" if {"zero_stage", "fsdp_version"} & set(wanted):
                continue  # the next one says more
            case "strategy":
                told.append(_either(STRATEGIES.get(v, v) for v in values))
            case "zero_stage":
                told.append(_either(f"ZeRO-{v}" for v in values))
            case "fsdp_version":
                told.append(_either(f"FSDP{v}" for v in values))
            case "device":
                told.append(_either(DEVICES.get(v, v) for v in values))
            case "peft":
                told.append(_either("with PEFT" if v else "without PEFT" for v in values))
            case "save":
                told.append(_either(SAVING.get(v, v) for v in values))
            case "trainer":
                told.append(_either(values))
            case _:
                told.append(f"{name.replace('_', ' ')}: {_either(values)}")
    return ", ".join(told)


def releases(scope: Scope | Remedy) -> str:
    """``trl >=0.11.0, <=1.12.0 with transformers <5.0``."""
    ranges = [f"{name} {range_.replace(',', ', ')}" for name, range_ in scope.versions.items()]
    commits = [f"{name} at commit {_either(found)}" for name, found in scope.commits.items()]
    return " with ".join([*ranges, *commits]) or "every release"


def affected(advisory: Advisory) -> list[tuple[str, str, str]]:
    """Releases, conditions and symptom of each scope, each once."""
    scopes = (
        (releases(scope), conditions(scope.conditions), scope.symptom)
        for scope in advisory.affected
    )
    return list(dict.fromkeys(scopes))


def message(pattern: str) -> str:
    """A pattern of a message as the message that people see, what varies as ``…``."""
    text = pattern.removeprefix("^").removesuffix("$")
    text = re.sub(r"\\[wd][+*]?|\[[^]]*\][+*]|\.[+*]", "…", text)
    return re.sub(r"\\(.)", r"\1", text)


def _either(values: Any) -> str:
    return " or ".join(str(value) for value in values)
