"""What a user can name: the trainer, how it is distributed, options; and how that is said.

A condition is a name with one or more possible values.  Naming one excludes the scopes that need
another value; a condition that nobody named stays open, and what depends on it is listed as
"applies if you use ...".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trl_compat.doctor.records import Value
from trl_compat.errors import BadInput

Named = Mapping[str, tuple[Value, ...]]

# Which package a condition needs: without it, the condition cannot hold.
NEEDS = {("strategy", "deepspeed"): "deepspeed", ("peft", True): "peft"}
# What naming one condition says about another.
IMPLIES: dict[str, tuple[str, Value]] = {
    "zero_stage": ("strategy", "deepspeed"),
    "fsdp_version": ("strategy", "fsdp"),
}
WORDS: dict[tuple[str, Value], str] = {
    ("strategy", "deepspeed"): "DeepSpeed",
    ("strategy", "fsdp"): "FSDP",
    ("strategy", "ddp"): "plain data parallelism",
    ("peft", True): "a PEFT model",
    ("peft", False): "no PEFT",
    ("device", "cpu"): "CPU ranks",
    ("device", "cuda"): "GPUs",
}
TRAINERS = (
    *("AlignProp", "BCO", "CPO", "DDPO", "DPO", "GKD", "GRPO", "Iterative SFT", "KTO", "Nash-MD"),
    *("Online DPO", "ORPO", "PPO", "PRM", "Reward", "RLOO", "SFT", "XPO"),
)
OTHER_NAMES = {"PPOv2": "PPO", "OnlineDPO": "Online DPO", "NashMD": "Nash-MD"}


@dataclass
class Conditions:
    """What was named, by whom; two that contradict each other are refused."""

    values: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    said_by: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def say(self, name: str, values: Iterable[Value], who: str) -> None:
        """Names a condition, and what it implies.

        Raises:
            BadInput: something else was said before.
        """
        wanted = tuple(dict.fromkeys(canonical(name, value) for value in values))
        known = self.values.get(name)
        both = tuple(value for value in wanted if known is None or value in known)
        if not both:
            raise BadInput(
                f"{who} says {name} = {_either(wanted)}, {self.said_by[name]} says "
                f"{_either(known or ())}; which is it?"
            )
        self.values[name], self.said_by[name] = both, who
        if name in IMPLIES:
            other, value = IMPLIES[name]
            self.say(other, (value,), who)


def canonical(name: str, value: Value) -> Value:
    """One spelling of a value: numbers and truth as such, trainers without 'Trainer'."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.casefold() in ("true", "false"):
        return text.casefold() == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if name == "trainer":
        bare = text.removesuffix("Trainer")
        plain = {re.sub(r"[\s_-]", "", n).casefold(): n for n in TRAINERS}
        bare = OTHER_NAMES.get(bare, bare)
        return plain.get(re.sub(r"[\s_-]", "", bare).casefold(), bare)
    return text


def needed(block: Mapping[str, list[Value]]) -> dict[str, list[Value]]:
    """The conditions of a scope with what they imply."""
    implied = {other: [value] for name, (other, value) in IMPLIES.items() if name in block}
    return {**implied, **block}


def phrase(conditions: Mapping[str, list[Value]]) -> str:
    """``the PPO trainer with DeepSpeed ZeRO stage 3``."""
    rest = dict(conditions)
    parts = []
    if "trainer" in rest:
        parts.append(f"the {_either(rest.pop('trainer'))} trainer")
    if "zero_stage" in rest:
        rest.pop("strategy", None)
        parts.append(f"DeepSpeed ZeRO stage {_either(rest.pop('zero_stage'))}")
    if "fsdp_version" in rest:
        rest.pop("strategy", None)
        parts.append(f"FSDP{_either(rest.pop('fsdp_version'))}")
    for name, values in rest.items():
        known = [WORDS[name, value] for value in values if (name, value) in WORDS]
        parts.append(_either(known) if len(known) == len(values) else f"{name}={_either(values)}")
    return " with ".join(parts[:2]) + "".join(f" and {part}" for part in parts[2:])


def _either(values: Iterable[Value]) -> str:
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
