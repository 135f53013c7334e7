"""The strategies as people name them on a command line, and the conditions that they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trl_compat.errors import BadInput
from trl_compat.text.nearest import hint

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
ALONE: Mapping[str, Mapping[str, str | int]] = {"none": {"strategy": "none"}}
"""One process: no cell runs that, but a record can be looked up for it."""


def known(names: Sequence[str], there: Mapping[str, object] = STRATEGIES) -> tuple[str, ...]:
    """The names, checked; several may stand in one, with commas.

    Raises:
        BadInput: one is unknown; the nearest is suggested.
    """
    split = [part.strip().lower() for name in names for part in name.split(",")]
    for name in split:
        if name not in there:
            raise BadInput(f"unknown strategy '{name[:100]}'; {hint(name, there)}")
    return tuple(dict.fromkeys(split))


def conditions_of(
    names: Sequence[str], there: Mapping[str, Mapping[str, str | int]] = STRATEGIES
) -> dict[str, tuple[str | int, ...]]:
    """The values that each condition may have, as far as the names together say.

    Raises:
        BadInput: a name is unknown.
    """
    meant = [there[name] for name in known(names, there)]
    found = {}
    for condition, of in (("strategy", ""), ("zero_stage", "deepspeed"), ("fsdp_version", "fsdp")):
        mine = [one for one in meant if not of or one["strategy"] == of]
        values = [one[condition] for one in mine if condition in one]
        # Where one of them leaves it open, it is open.
        if values and len(values) == len(mine):
            found[condition] = tuple(dict.fromkeys(values))
    return found
