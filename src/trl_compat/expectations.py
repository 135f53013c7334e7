"""Which outcome the advisories predict for a cell; the only place where predictions are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, ConfigDict

from trl_compat.advisories import Advisory, Remedy, Scope, WrongFix
from trl_compat.matrix import Versions
from trl_compat.outcomes import Outcome


class Expectation(BaseModel):
    """The predicted outcome, with the symptom or the mask that makes it so."""

    model_config = ConfigDict(frozen=True)

    outcome: Outcome
    symptom: str | None = None
    masked_by: str | None = None


def expect(
    stack: Versions,
    advisory: Advisory,
    variant: str,
    masks: Sequence[Advisory],
    fix: Remedy | None = None,
    device: str = "cpu",
) -> Expectation:
    """The outcome that the advisories predict for a cell; its device counts as a condition."""
    assert advisory.reproduction is not None
    conditions = {**advisory.reproduction.conditions_of(variant), "device": device}
    if not _available(stack, advisory) or any(a.covers(stack, conditions) for a in advisory.absent):
        return Expectation(outcome=Outcome.NOT_APPLICABLE)
    for mask in masks:
        if mask.id != advisory.id and _affected(mask, stack, conditions):
            return Expectation(outcome=Outcome.MASKED, masked_by=mask.id)
    symptom = _affected(advisory, stack, conditions)
    match fix:
        case WrongFix():
            return Expectation(outcome=Outcome.REPRODUCED, symptom=fix.symptom)
        case None if symptom:
            return Expectation(outcome=Outcome.REPRODUCED, symptom=symptom)
        case _:
            return Expectation(outcome=Outcome.PASS)


def applicable_fixes(stack: Versions, advisory: Advisory, variant: str) -> list[Remedy]:
    """Fixes, right and wrong, that are to be tried in this stack and variant."""
    assert advisory.reproduction is not None
    conditions = advisory.reproduction.conditions_of(variant)
    remedies: tuple[Remedy, ...] = (*advisory.fixes, *advisory.wrong_fixes)
    return [
        fix
        for fix in remedies
        if (not fix.variants or variant in fix.variants)
        and Scope(versions=fix.versions, commits=fix.commits).covers(stack, conditions)
    ]


def _available(stack: Versions, advisory: Advisory) -> bool:
    for package, range_ in advisory.available.items():
        version = stack.version(package)
        if version is not None and not SpecifierSet(range_).contains(version, prereleases=True):
            return False
    return True


def _affected(advisory: Advisory, stack: Versions, conditions: Mapping[str, Any]) -> str | None:
    return next((a.symptom for a in advisory.affected if a.covers(stack, conditions)), None)
