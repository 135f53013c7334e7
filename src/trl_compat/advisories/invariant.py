"""The schema of an invariant, version 1: what must hold in every stack, and how that is measured.

An invariant is no failure: nobody has to know a fault for it to be looked for.  Its cells measure
numbers against a reference; what a release is known to do wrong stands in the advisories whose
symptoms say ``violates``.  A violation that no advisory describes is a new failure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field, model_validator

from trl_compat.advisories.schema import (
    Absent,
    Advisory,
    Affected,
    Fix,
    Ranges,
    Reference,
    Reproduction,
    Severity,
    WrongFix,
)
from trl_compat.advisories.symptom import Symptom
from trl_compat.conditions import Value
from trl_compat.files.models import FrozenModel

BETWEEN = "/"  # the advisory's id and the name of its symptom, in a cell of an invariant


class OtherTolerance(FrozenModel):
    """What is right under some conditions, where it is not what is right elsewhere."""

    conditions: dict[str, Value]
    tolerance: dict[str, float]
    tolerance_from: str


class Invariant(FrozenModel):
    """A statement about training, with the way in which it is measured.

    Attributes:
        title: the statement, in a few words.
        statement: what must hold, whole.
        reference: how the right value is computed, and from what.
        measured: the values that a cell keeps, with their meaning and unit.
        tolerance: by value, the largest deviation that counts as right.
        tolerance_from: why that much, and no less.
        other_tolerances: the same of variants that are measured less exactly.
        available: releases that have what is measured.
        absent: scopes in which it cannot be measured.
    """

    schema_version: Literal[1] = 1
    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    statement: str
    reference: str
    measured: dict[str, str]
    tolerance: dict[str, float]
    tolerance_from: str
    other_tolerances: tuple[OtherTolerance, ...] = ()
    published: datetime.date | None = None
    references: tuple[Reference, ...] = ()
    available: Ranges = {}
    absent: tuple[Absent, ...] = ()
    reproduction: Reproduction

    @model_validator(mode="after")
    def _measures_what_it_judges(self) -> Invariant:
        named = {*self.tolerance, *(name for o in self.other_tolerances for name in o.tolerance)}
        if unknown := sorted(named - set(self.measured)):
            raise ValueError(f"tolerance of '{unknown[0]}', which is not measured")
        return self

    def tolerated(self, conditions: Mapping[str, object]) -> dict[str, float]:
        """By value, the largest deviation that counts as right under these conditions."""
        found = dict(self.tolerance)
        for other in self.other_tolerances:
            if all(conditions.get(name) == value for name, value in other.conditions.items()):
                found |= other.tolerance
        return found

    def with_violations(self, advisories: Iterable[Advisory]) -> Advisory:
        """The invariant as the record of its cells: what is known to violate it, and the remedies.

        Symptoms are named ``<advisory>/<symptom>``, so that a verdict says whose they are.
        """
        symptoms: dict[str, Symptom] = {}
        affected: list[Affected] = []
        fixes: list[Fix] = []
        wrong: list[WrongFix] = []
        for advisory in advisories:
            mine = {n: s for n, s in advisory.symptoms.items() if s.violates == self.id}
            if not mine:
                continue
            symptoms |= {named(advisory.id, name): symptom for name, symptom in mine.items()}
            affected += [
                block.model_copy(update={"symptom": named(advisory.id, block.symptom)})
                for block in advisory.affected
                if block.symptom in mine
            ]
            fixes += advisory.fixes
            wrong += [
                fix.model_copy(update={"symptom": named(advisory.id, fix.symptom)})
                for fix in advisory.wrong_fixes
                if fix.symptom in mine
            ]
        return Advisory(
            id=self.id,
            title=self.title,
            summary=self.statement,
            severity=Severity.SILENT_WRONG_RESULT,
            cause=self.reference,
            references=self.references,
            available=self.available,
            absent=self.absent,
            symptoms=symptoms,
            affected=tuple(affected),
            reproduction=self.reproduction,
            fixes=tuple(fixes),
            wrong_fixes=tuple(wrong),
        )


def named(advisory: str, symptom: str) -> str:
    """The name of an advisory's symptom in the cells of an invariant."""
    return f"{advisory}{BETWEEN}{symptom}"


def symptom_in(name: str | None) -> str | None:
    """The symptom's name in its own advisory."""
    return name.rpartition(BETWEEN)[2] if name else None


def whose(symptom: str | None) -> str | None:
    """The advisory that a symptom in a cell of an invariant belongs to; None for any other."""
    return symptom.partition(BETWEEN)[0] if symptom and BETWEEN in symptom else None
