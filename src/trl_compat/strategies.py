"""The strategies as people name them on a command line, and the conditions that they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trl_compat.matrix import choose

STRATEGIES: Mapping[str, Mapping[str, str | int]] = {
    "ddp": {"strategy": "ddp"},
    "deepspeed": {"strategy": "deepspeed"},
    "zero1": {"strategy": "deepspeed", "zero_stage": 1},
    "zero2": {"strategy": "deepspeed", "zero_stage": 2},
    "zero3": {"strategy": "deepspeed", "zero_stage": 3},
    "fsdp": {"strategy": "fsdp"},
    "fsdp1": {"strategy": "fsdp", "fsdp_version": 1},
    "fsdp2": {"strategy": "fsdp", "fsdp_version": 2},
}


def known(names: Sequence[str]) -> tuple[str, ...]:
    """The names, checked.

    Raises:
        BadInput: one is unknown; the nearest is suggested.
    """
    return choose("strategy", names, STRATEGIES) if names else ()


def conditions_of(names: Sequence[str]) -> dict[str, tuple[str | int, ...]]:
    """The values that each condition may have, as far as the names together say.

    Raises:
        BadInput: a name is unknown.
    """
    found: dict[str, tuple[str | int, ...]] = {}
    meant = [STRATEGIES[name] for name in known(names)]
    for condition in ("strategy", "zero_stage", "fsdp_version"):
        # Named for one strategy only, a stage says nothing about the others.
        values = [one[condition] for one in meant if condition in one]
        if values and len(values) == len(meant):
            found[condition] = tuple(dict.fromkeys(values))
    return found
