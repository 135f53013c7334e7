"""The schema of an advisory, version 1: everything known about one failure.

Ranges are PEP 440 specifiers, which people can write and installers understand; the events of other
formats (introduced, fixed, last affected) are derived from them (:mod:`.events`).  Advisories
contain no evidence; results.json does.  Renamed keys can still be read by their old names.
``schema/advisory-1.json`` is the JSON Schema.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier
from pydantic import AfterValidator, AliasChoices, Field, field_validator, model_validator

from trl_compat.advisories.symptom import Symptom
from trl_compat.conditions import Value, allows
from trl_compat.files.models import FrozenModel
from trl_compat.files.names import NAME
from trl_compat.packages import PACKAGES
from trl_compat.ranges import Answer, HasVersions, holds, of_stack, ranges


def _ranges(versions: dict[str, str]) -> dict[str, str]:
    for package, range_ in versions.items():
        if package not in (*PACKAGES, "python"):
            raise ValueError(f"unknown package '{package}'")
        try:
            ranges(range_)
        except InvalidSpecifier:
            raise ValueError(f"{package}: '{range_}' is not a version range") from None
    return versions


Ranges = Annotated[dict[str, str], AfterValidator(_ranges)]
"""PEP 440 version ranges by package; all must hold."""


def _of_packages(reasons: dict[str, str]) -> dict[str, str]:
    for package, why in reasons.items():
        if package not in (*PACKAGES, "python"):
            raise ValueError(f"unknown package '{package}'")
        if not why.strip():
            raise ValueError(f"{package}: say why in a sentence")
    return reasons


Reasons = Annotated[dict[str, str], AfterValidator(_of_packages)]
"""A sentence by package."""


ConditionMap = dict[str, Value | tuple[Value, ...]]
"""What is allowed, by name: a value, a bound such as ``">=3"``, null where the configuration lacks
the key, or a list of these."""

# What only a reproduction has: the part of the root cause it looks at, how far it goes, and which
# stand-in it leaves out.  Everything else a user can name.
INTERNAL = ("facet", "save", "steps", "without_stand_in")


class Severity(enum.StrEnum):
    """How severe a failure is."""

    CRASH_AT_START = "crash-at-start"
    CRASH_LATE = "crash-late"
    SILENT_WRONG_RESULT = "silent-wrong-result"
    SLOW = "slow"


class Phase(enum.StrEnum):
    """How far a scenario gets before a failure that masks others stops it; in this order."""

    IMPORT = "import"  # of the stack
    MODEL = "model"  # is made or loaded
    TRAINER = "trainer"  # is made
    START = "start"  # of train(), up to the first forward pass
    STEP = "step"  # generation, forward and backward pass
    UPDATE = "update"  # of the weights and the learning rate
    LOG = "log"  # of the step, when it is over


class Reference(FrozenModel):
    """Where a fact comes from."""

    url: str = Field(pattern=r"^https://")
    note: str = ""
    type: Literal["report", "introduced", "fix", "discussion", "web"] | None = None

    @property
    def kind(self) -> str:
        """The type; by default an issue is a report, everything else a page."""
        return self.type or ("report" if "/issues/" in self.url else "web")


class Scope(FrozenModel):
    """A conjunction of version ranges, commits and conditions.

    A stack that takes a git commit of a package matches only through ``commits`` of that package.
    """

    versions: Ranges = {}
    commits: dict[str, tuple[str, ...]] = {}
    conditions: ConditionMap = {}

    def covers(self, stack: HasVersions, conditions: Mapping[str, Any]) -> bool:
        """Whether the stack, under these conditions, lies in the scope."""
        return self.answer(stack, conditions) is Answer.YES

    def answer(
        self, stack: HasVersions, conditions: Mapping[str, Any], examined: Collection[str] = ()
    ) -> Answer:
        """Whether the stack lies in the scope, which is not known of a commit that nobody examined.

        Args:
            stack: the stack.
            conditions: what holds in the cell.
            examined: the packages whose commit the record names.
        """
        for name, wanted in self.conditions.items():
            allowed = wanted if isinstance(wanted, tuple) else (wanted,)
            if not allows(allowed, conditions.get(name)):
                return Answer.NO
        return holds(self.versions, self.commits, of_stack(stack, examined), stack.commit)[0]


class Affected(Scope):
    """A scope in which the failure occurs with the named symptom; the first match wins.

    Attributes:
        user_conditions: the conditions that a user can name instead of ``conditions``, if these
            exist only in a reproduction (a facet, a stand-in); default: the other conditions.
        also_requires: a further condition without an option, as a clause of text.
        severity: the severity in this scope, if it differs from the failure's.
        precedence: why it precedes another scope that it overlaps.
    """

    symptom: str
    severity: Severity | None = None
    user_conditions: ConditionMap | None = Field(
        default=None, validation_alias=AliasChoices("user_conditions", "means")
    )
    also_requires: str = Field(
        default="", validation_alias=AliasChoices("also_requires", "provided")
    )
    precedence: str = Field(default="", validation_alias=AliasChoices("precedence", "first"))


class Absent(Scope):
    """A scope in which the failure cannot occur: the release lacks the option or the trainer."""

    why: str


class Workaround(FrozenModel):
    """A way around the failure without a patch: other versions, or an option.

    ``upgrade`` and ``pin`` are ranges that are not affected; ``option`` is what to set, as text,
    and ``versions`` are the ranges that have it.  :mod:`trl_compat.upgrade.recommend` finds the
    releases of a range that bring no other failure, so a ``note`` names none.
    """

    upgrade: Ranges = {}
    pin: Ranges = {}
    option: str = ""
    versions: Ranges = {}
    note: str = ""

    @model_validator(mode="after")
    def _one(self) -> Workaround:
        if sum(map(bool, (self.upgrade, self.pin, self.option))) != 1:
            raise ValueError("give exactly one of upgrade, pin or option")
        if self.versions and not self.option:
            raise ValueError("'versions' limits an option, so it requires 'option'")
        return self


STANDALONE = "-standalone"  # ends the name under which a fix's standalone form is tried


class FixBase(FrozenModel):
    """A change that is tried in affected cells.

    Its ``entry`` is called before the scenario, or the cell runs under its ``conditions`` in place
    of those of the variant (null leaves one out), if the fix is a setting.

    ``versions``, ``commits``, ``variants`` and ``only``, the conditions of a cell, say where it is
    tried; left out, everywhere.
    """

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    entry: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    conditions: dict[str, Value] = {}
    versions: Ranges = {}
    commits: dict[str, tuple[str, ...]] = {}
    variants: tuple[str, ...] = ()
    only: ConditionMap = {}

    @model_validator(mode="after")
    def _one_way(self) -> FixBase:
        if bool(self.entry) == bool(self.conditions):
            raise ValueError("give either 'entry' (code) or 'conditions' (other settings)")
        return self

    @field_validator("name")
    @classmethod
    def _not_a_form(cls, name: str) -> str:
        if name.endswith(STANDALONE):
            raise ValueError(
                f"'{name}': the ending '{STANDALONE}' is reserved for standalone forms"
            )
        return name


class Fix(FixBase):
    """A smallest change that fixes the failure without changing versions; it must pass.

    Attributes:
        snippet: how a user of this package applies it.
        standalone: the same as Python code to paste before the trainer is created, which does not
            import trl_compat.  Cells execute exactly this text.
    """

    summary: str
    snippet: str
    standalone: str = ""
    cost: str = ""


class WrongFix(FixBase):
    """A change that is recommended elsewhere but does not fix the failure; cells prove it."""

    why: str
    symptom: str


class Reproduction(FrozenModel):
    """The module that triggers the failure, its conditions, and its control."""

    module: str = Field(pattern=r"^\w+$")
    conditions: dict[str, Value] = {}
    control: str | None = None
    variants: dict[str, dict[str, Value]]
    default: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _known(self) -> Reproduction:
        for name in self.variants:
            if not NAME.fullmatch(name):  # they become parts of file names
                raise ValueError(f"variant '{name}' may contain only a-z, 0-9, '.', '+' and '-'")
        for name in (*([self.control] if self.control else []), *self.default):
            if name not in self.variants:
                raise ValueError(f"'{name}' is not one of the variants")
        return self

    def conditions_of(self, variant: str) -> dict[str, Value]:
        """All conditions of a variant, the common ones included."""
        return {**self.conditions, **self.variants[variant]}


class Advisory(FrozenModel):
    """The record of one failure.

    Attributes:
        schema_version: of this schema; left out, 1.
        summary: affected setups, symptom and affected releases.
        cause: why it fails, and what is irrelevant.
        details: further information.
        available: releases that have the feature at all.
        absent: scopes in which the failure cannot occur.
        masks: it stops reproductions of other failures before they can show their failure.
        avoid: workarounds by other versions or options, the best first.
        advice: another remedy, in one sentence; it names no release (``avoid`` does).
        open_ends: by package, why its ranges have no upper end although its newest release was not
            observed to fail, where another package of the block has an end.
        withdrawn: the date from which the advisory is no longer valid; it is kept for references
            but not used.
    """

    schema_version: Literal[1] = 1
    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    summary: str
    severity: Severity
    cause: str
    details: str = ""
    published: datetime.date | None = None
    modified: datetime.date | None = None
    withdrawn: datetime.date | None = None
    references: tuple[Reference, ...]
    available: Ranges = {}
    absent: tuple[Absent, ...] = ()
    symptoms: dict[str, Symptom]
    affected: tuple[Affected, ...]
    open_ends: Reasons = {}
    reproduction: Reproduction | None = None
    masks: bool = False
    phase: Phase | None = Field(default=None, validation_alias=AliasChoices("phase", "moment"))
    fixes: tuple[Fix, ...] = ()
    wrong_fixes: tuple[WrongFix, ...] = ()
    avoid: tuple[Workaround, ...] = ()
    advice: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Advisory:
        named = [*(a.symptom for a in self.affected), *(w.symptom for w in self.wrong_fixes)]
        for symptom in named:
            if symptom not in self.symptoms:
                raise ValueError(f"symptom '{symptom}' is not defined")
        shown = self.masks or any(symptom.violates for symptom in self.symptoms.values())
        if self.reproduction is None and not shown:
            raise ValueError("requires a reproduction, 'masks: true' or a violated invariant")
        if self.phase is not None and not self.masks:
            raise ValueError(
                "'phase' applies to failures that mask others, so it requires 'masks: true'"
            )
        return self

    def conditions_for_users(self, block: Affected) -> ConditionMap:
        """What a user can name of a scope's conditions, those of the reproduction included."""
        if block.user_conditions is not None:
            return block.user_conditions
        common = self.reproduction.conditions if self.reproduction else {}
        named = {**common, **block.conditions}
        return {name: value for name, value in named.items() if name not in INTERNAL}

    def symptom_of(
        self,
        error: Mapping[str, Any],
        measured: Mapping[str, Any] | None = None,
        predicted: str | None = None,
    ) -> str | None:
        """Name of the symptom that a recorded exception shows, or None.

        Args:
            predicted: the symptom in whose ranges the stack is. Two faults that violate an
                invariant may leave the same numbers; then it is this one.
        """
        found = [name for name, s in self.symptoms.items() if s.matches(error, measured)]
        return predicted if predicted in found else next(iter(found), None)

    def nearly_shown_by(
        self, error: Mapping[str, Any], measured: Mapping[str, Any]
    ) -> tuple[str, tuple[str, ...]] | None:
        """The symptom that a recorded exception comes nearest to, and which parts it does not show.

        None if it has nothing in common with any.
        """
        found = [(name, s.unlike(error, measured)) for name, s in self.symptoms.items()]
        near = [(name, parts) for name, parts in found if parts]
        return min(near, key=lambda one: len(one[1]), default=None)

    def resembled_by(self, error: Mapping[str, Any]) -> str | None:
        """Name of the symptom from whose place a recorded exception comes, or None."""
        return next((name for name, s in self.symptoms.items() if s.is_place_of(error)), None)
