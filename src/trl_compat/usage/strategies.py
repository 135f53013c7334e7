"""The names of distributed strategies, the conditions that they mean, and the words for them.

Every command that takes ``--strategy`` accepts these names and prints these words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trl_compat.errors import BadInput
from trl_compat.text.nearest import hint, plain

STRATEGIES: Mapping[str, Mapping[str, str | int]] = {
    "ddp": {"strategy": "ddp"},
    "deepspeed": {"strategy": "deepspeed"},
    "zero1": {"strategy": "deepspeed", "zero_stage": 1},
    "zero2": {"strategy": "deepspeed", "zero_stage": 2},
    "zero3": {"strategy": "deepspeed", "zero_stage": 3},
    "fsdp": {"strategy": "fsdp"},
    "fsdp1": {"strategy": "fsdp", "fsdp_version": 1},
    "fsdp2": {"strategy": "fsdp", "fsdp_version": 2},
    "none": {"strategy": "none"},  # a single process: advisories may apply, no cell runs it
}
WORDS: Mapping[object, str] = {
    "deepspeed": "DeepSpeed",
    "fsdp": "FSDP",
    "ddp": "DDP",
    "none": "a single process",
}
"""What is printed for each value of the condition ``strategy``."""


def known(names: Sequence[str]) -> tuple[str, ...]:
    """The names, checked; one text may hold several, separated by commas.

    ``ZeRO-3``, as reports print it, is read as ``zero3``.

    Raises:
        BadInput: a name is unknown; the nearest is suggested.
    """
    found = []
    for name in (part.strip().lower() for text in names for part in text.split(",")):
        if plain(name) not in STRATEGIES:
            raise BadInput(f"unknown strategy '{name[:100]}'; {hint(name, STRATEGIES)}")
        found.append(plain(name))
    return tuple(dict.fromkeys(found))


def conditions_of(names: Sequence[str]) -> dict[str, tuple[str | int, ...]]:
    """The values that each condition may have, as far as all names together determine them.

    Raises:
        BadInput: a name is unknown.
    """
    meant = [STRATEGIES[name] for name in known(names)]
    found = {}
    for condition, of in (("strategy", ""), ("zero_stage", "deepspeed"), ("fsdp_version", "fsdp")):
        mine = [one for one in meant if not of or one["strategy"] == of]
        values = [one[condition] for one in mine if condition in one]
        # A condition that one of them leaves open stays open.
        if values and len(values) == len(mine):
            found[condition] = tuple(dict.fromkeys(values))
    return found
