"""The compiled advisories as data classes; :mod:`trl_compat.publishing.compiled` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trl_compat.conditions import Value
from trl_compat.errors import BadInput
from trl_compat.text.nearest import unknown_name

SHIPPED = Path(__file__).parent


@dataclass(frozen=True)
class Where:
    """A conjunction of version ranges and commits."""

    versions: Mapping[str, str]
    commits: Mapping[str, list[str]]


@dataclass(frozen=True)
class Before:
    """Where a block does not come to bear: there is nothing to fail, or ``by`` strikes first.

    ``conditions`` are those that must be named for it, beyond what the block itself says.
    """

    by: str
    where: Where
    conditions: Mapping[str, list[Value]]


@dataclass(frozen=True)
class AffectedScope:
    """A scope in which a failure shows, in conditions that a user can name.

    Attributes:
        symptom: name of the symptom; ``exception`` and ``message`` are its type and pattern.
        conditions: allowed values by name.
        severity: how it hurts.
        also_requires: what must hold besides, as a clause.
        absent: where the release lacks what could fail.
        hidden: where another failure stops the run before.
    """

    symptom: str
    exception: str
    message: str
    severity: str
    where: Where
    conditions: Mapping[str, list[Value]]
    also_requires: str
    absent: tuple[Before, ...]
    hidden: tuple[Before, ...]


@dataclass(frozen=True)
class Patch:
    """A fix without a change of versions, with the releases it is for.

    ``settings`` means that it changes the configuration and no code.
    """

    name: str
    summary: str
    snippet: str
    cost: str
    where: Where
    settings: bool = False


@dataclass(frozen=True)
class WrongFix:
    """What is recommended somewhere and does not help, and why."""

    name: str
    why: str
    where: Where


@dataclass(frozen=True)
class CompiledWorkaround:
    """Other versions, or an option with the versions that it is for."""

    upgrade: Mapping[str, str]
    pin: Mapping[str, str]
    option: str
    versions: Mapping[str, str]
    note: str


@dataclass(frozen=True)
class CompiledAdvisory:
    """An advisory, as far as doctor, marks and constraints need it."""

    id: str
    title: str
    summary: str
    severity: str
    advice: str
    available: Mapping[str, str]
    blocks: tuple[AffectedScope, ...]
    patches: tuple[Patch, ...]
    avoid: tuple[CompiledWorkaround, ...]
    wrong_fixes: tuple[WrongFix, ...]
    references: tuple[str, ...]


def parse(data: Mapping[str, Any]) -> CompiledAdvisory:
    """A record from its JSON form."""
    blocks = tuple(
        AffectedScope(
            **{
                **block,
                "where": Where(**block["where"]),
                **{
                    name: tuple(Before(**{**b, "where": Where(**b["where"])}) for b in block[name])
                    for name in ("absent", "hidden")
                },
            }
        )
        for block in data["blocks"]
    )
    patches = tuple(Patch(**{**p, "where": Where(**p["where"])}) for p in data["patches"])
    wrong = tuple(WrongFix(**{**w, "where": Where(**w["where"])}) for w in data["wrong_fixes"])
    parts = {
        "blocks": blocks,
        "patches": patches,
        "avoid": tuple(CompiledWorkaround(**way) for way in data["avoid"]),
        "wrong_fixes": wrong,
        "references": tuple(data["references"]),
    }
    return CompiledAdvisory(**{**data, **parts})


Use = Mapping[str, Value]
"""Conditions under which a reproduction runs."""


@cache
def _shipped() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((SHIPPED / "advisories.json").read_text(encoding="utf-8"))
    return data


@cache
def shipped() -> dict[str, CompiledAdvisory]:
    """Every record that is shipped, by id; withdrawn ones are not."""
    return {data["id"]: parse(data) for data in _shipped()["records"]}


def shipped_uses() -> tuple[Use, ...]:
    """What the reproductions of the shipped records do: nothing else was ever looked at."""
    return tuple(_shipped()["uses"])


def shipped_record(failure: str) -> CompiledAdvisory:
    """The record of a failure.

    Raises:
        BadInput: there is none; the nearest id is suggested.
    """
    known = shipped()
    if failure not in known:
        raise BadInput(unknown_name("failure", failure, known))
    return known[failure]
