"""Scopes, conditions and patterns of advisories in the words of people who train models.

Conditions that exist only in a reproduction (its facet, its steps) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trl_compat.advisories import INTERNAL, Advisory, Affected, FixBase, Scope
from trl_compat.advisories.symptom import POST_CONDITION, Symptom
from trl_compat.usage import strategies
from trl_compat.usage.conditions import worded

NOTHING = "nothing is raised"
MOST = 1_000_000  # stands for no upper end
DEVICES = {"cpu": "on CPU ranks", "cuda": "on GPUs"}


def conditions(wanted: Mapping[str, Any]) -> str:
    """``PPO, ZeRO-3, with PEFT``; empty if nothing is asked for."""
    told = []
    for name, value in wanted.items():
        values = value if isinstance(value, tuple) else (value,)
        match name:
            case _ if name in INTERNAL:
                continue
            case "strategy" if {"zero_stage", "fsdp_version"} & set(wanted):
                continue  # the next one says more
            case "strategy":
                told.append(_either(strategies.WORDS.get(v, v) for v in values))
            case "zero_stage":
                told.append(_either(f"ZeRO-{v}" for v in values))
            case "fsdp_version":
                told.append(_either(f"FSDP{v}" for v in values))
            case "device":
                told.append(_either(DEVICES.get(v, v) for v in values))
            case "peft":
                told.append(_either("with PEFT" if v else "without PEFT" for v in values))
            case "trainer":
                told.append(_either(values))
            case _:
                told.append(worded(name, values))
    return ", ".join(told)


def releases(scope: Scope | FixBase) -> str:
    """``trl >=0.11.0, <=1.12.0 with transformers <5.0``."""
    ranges = [f"{name} {range_.replace(',', ', ')}" for name, range_ in scope.versions.items()]
    commits = [
        f"{name} at commit {_either(commit[:9] for commit in found)}"
        for name, found in scope.commits.items()
    ]
    return " with ".join([*ranges, *commits]) or "every release"


def when(advisory: Advisory, scope: Affected) -> str:
    """What a user has who is hit, with what has to hold besides."""
    named = conditions(advisory.conditions_for_users(scope))
    return f"{named}, where {scope.also_requires}" if scope.also_requires else named


def affected(advisory: Advisory) -> list[tuple[str, str, str]]:
    """Releases, conditions and symptom of each scope, each once."""
    scopes = (
        (releases(scope), when(advisory, scope), scope.symptom) for scope in advisory.affected
    )
    return list(dict.fromkeys(scopes))


def ways_around(advisory: Advisory) -> list[str]:
    """What helps besides a patch, a sentence each; of releases the facts, as nobody's are known."""
    spared = [
        f"{package} {range_.replace(',', ', ')}"
        for way in advisory.avoid
        for package, range_ in {**way.upgrade, **way.pin}.items()
    ]
    said = []
    if spared:
        said.append(
            f"Not affected: {'; '.join(spared)}. trl-compat doctor tells which of these releases "
            "bring no other known failure to your stack."
        )
    for way in advisory.avoid:
        where = "".join(f" with {p} {r.replace(',', ', ')}" for p, r in way.versions.items())
        if way.option:
            said.append(f"Or set {way.option}{where}.{way.note and ' ' + way.note}")
    return [*said, *filter(None, [" ".join(advisory.advice.split())])]


def seen(symptom: Symptom) -> tuple[str, str, str]:
    """What a user sees: what is raised, with which message, and where; of a silent fault, nothing.

    What a reproduction raises where nothing upstream does is no user's exception.
    """
    if symptom.violates is not None:
        numbers = ", ".join(f"{name} {_number(one)}" for name, one in symptom.measured.items())
        return NOTHING, numbers, f"measured by the invariant {symptom.violates}"
    if symptom.exception == POST_CONDITION:
        return NOTHING, message(symptom.message), "seen by a check of the reproduction"
    return symptom.exception, message(symptom.message), symptom.where


def _number(measured: tuple[float, float] | str) -> str:
    if isinstance(measured, str):
        return message(measured)
    low, high = measured
    if low == high:
        return f"{low:g}"
    if high >= MOST:
        return f"at least {low:g}"
    middle = (low + high) / 2
    # Around a value that is known, the width is that of the tolerance.
    return f"{middle:.3g}" if high - low <= 0.1 * abs(middle) else f"{low:g} to {high:g}"


def message(pattern: str) -> str:
    """A pattern of a message as the message that people see, what varies as ``…``."""
    text = pattern.removeprefix("^").removesuffix("$")
    text = re.sub(r"\\[wd][+*]?|\[[^]]*\][+*]|\.[+*]", "…", text)
    return re.sub(r"\\(.)", r"\1", text)


def _either(values: Any) -> str:
    return " or ".join(str(value) for value in values)
