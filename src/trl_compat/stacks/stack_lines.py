"""A stack as one line of matrix.yaml, for what proposes stacks."""

from __future__ import annotations

import datetime

import yaml

from trl_compat.stacks.matrix import Stack

QUOTED = (" ", "#", ":", "{", "}", "[", "]", ",", "&", "*", "!", "|", ">", "'", '"', "%", "@", "`")


def written(stack: Stack, why: str = "") -> str:
    """A stack in one line, its packages in the order in which the file has them."""
    said = stack.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    order = ("as_of", "python", "torch", "trl", "transformers", "deepspeed", "accelerate", "peft")
    parts = [f"{key}: {_scalar(said.pop(key))}" for key in order if key in said]
    parts += [f"{key}: {_scalar(value)}" for key, value in said.items() if key != "why"]
    if why:
        parts.append(f'why: "{why}"')
    return "{" + ", ".join(parts) + "}"


def _scalar(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    text = str(value)
    plain = not any(sign in text for sign in QUOTED) and _reads_as_text(text)
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _reads_as_text(text: str) -> bool:
    """Whether YAML takes a word as it is: 2.10 would be a number, a day is what it looks like."""
    return isinstance(yaml.safe_load(text), str | datetime.date)
