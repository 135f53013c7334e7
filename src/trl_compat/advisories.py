"""Advisories: one record per failure, the single source of expectations, tables and docs.

An advisory says which stacks are affected as conjunctions of version ranges, commits and
conditions, what the failure looks like (its symptoms), how to provoke it, and which fixes work and
which do not.  An advisory with ``masks: true`` describes a failure that stops other reproductions
before their place of interest.
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field, field_validator, model_validator

from trl_compat import documents
from trl_compat.errors import BadInput
from trl_compat.matrix import PACKAGES, Record, Stack

Value = str | int | bool


def _ranges(versions: dict[str, str]) -> dict[str, str]:
    for package, range_ in versions.items():
        if package not in (*PACKAGES, "python"):
            raise ValueError(f"unknown package '{package}'")
        try:
            SpecifierSet(range_)
        except InvalidSpecifier:
            raise ValueError(f"{package}: '{range_}' is not a version range") from None
    return versions


Ranges = Annotated[dict[str, str], AfterValidator(_ranges)]
"""PEP 440 version ranges by package; all must hold."""


class Severity(enum.StrEnum):
    """How a failure hurts."""

    CRASH_AT_START = "crash-at-start"
    CRASH_LATE = "crash-late"
    SILENT_WRONG_RESULT = "silent-wrong-result"
    SLOW = "slow"


class Moment(enum.StrEnum):
    """How far a scenario has come when a failure that masks others stops it; in this order."""

    IMPORT = "import"  # of the stack
    MODEL = "model"  # is made or loaded
    TRAINER = "trainer"  # is made
    START = "start"  # of train(), up to the first forward pass
    STEP = "step"  # generation, forward and backward pass
    UPDATE = "update"  # learning rate and log


class Reference(Record):
    """Where a fact comes from."""

    url: str = Field(pattern=r"^https://")
    note: str = ""


class Symptom(Record):
    """What is seen: exception type, message (regex, searched) and raising place (glob).

    ``where`` is ``file:function`` of the innermost frame that is no attribute look-up, or
    ``check:name`` for a post-condition of the reproduction.  ``through`` must match any frame.
    """

    exception: str
    message: str
    where: str
    through: str | None = None

    @field_validator("message")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def matches(self, error: Mapping[str, Any]) -> bool:
        """Whether a recorded exception (see ``trl_compat.runtime.signature``) is this symptom."""
        if error["exception"] != self.exception or not re.search(self.message, error["message"]):
            return False
        if not fnmatch.fnmatchcase(error["where"], self.where):
            return False
        frames = (f"{frame['file']}:{frame['function']}" for frame in error["frames"])
        return self.through is None or any(fnmatch.fnmatchcase(f, self.through) for f in frames)


class Scope(Record):
    """A conjunction of version ranges, commits and conditions.

    A stack that takes a git commit of a package matches only through ``commits`` of that package.
    """

    versions: Ranges = {}
    commits: dict[str, tuple[str, ...]] = {}
    conditions: dict[str, Value | tuple[Value, ...]] = {}

    def covers(self, stack: Stack, conditions: Mapping[str, Any]) -> bool:
        """Whether the stack, under these conditions, lies in the scope."""
        for package, range_ in self.versions.items():
            version = stack.version(package)
            if version is None or not SpecifierSet(range_).contains(version, prereleases=True):
                return False
        for package, commits in self.commits.items():
            commit = stack.commit(package)
            if commit is None or not any(commit.startswith(known) for known in commits):
                return False
        for name, wanted in self.conditions.items():
            allowed = wanted if isinstance(wanted, tuple) else (wanted,)
            if conditions.get(name) not in allowed:
                return False
        return True


class Affected(Scope):
    """A scope in which the failure shows, as the named symptom."""

    symptom: str


class Absent(Scope):
    """A scope in which there is nothing to fail: the release lacks the option or the trainer."""

    why: str


class Remedy(Record):
    """A change that is tried in affected cells, by calling its ``entry`` before the scenario.

    ``versions``, ``commits`` and ``variants`` say where it exists; left out, everywhere.
    """

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    entry: str = Field(pattern=r"^[\w.]+:\w+$")
    versions: Ranges = {}
    commits: dict[str, tuple[str, ...]] = {}
    variants: tuple[str, ...] = ()


class Fix(Remedy):
    """A smallest change that mends the failure without changing versions; it must pass."""

    summary: str
    snippet: str
    standalone: str = ""
    cost: str = ""


class WrongFix(Remedy):
    """A change that is recommended somewhere and does not mend the failure; run to show it."""

    why: str
    symptom: str


class Reproduction(Record):
    """Which module provokes the failure, under which conditions, and what its control is."""

    module: str = Field(pattern=r"^\w+$")
    conditions: dict[str, Value] = {}
    control: str | None = None
    variants: dict[str, dict[str, Value]]
    default: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _known(self) -> Reproduction:
        for name in (*([self.control] if self.control else []), *self.default):
            if name not in self.variants:
                raise ValueError(f"'{name}' is not one of the variants")
        return self

    def conditions_of(self, variant: str) -> dict[str, Value]:
        """All conditions of a variant, the common ones included."""
        return {**self.conditions, **self.variants[variant]}


class Advisory(Record):
    """The record of one failure."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    summary: str
    severity: Severity
    cause: str
    references: tuple[Reference, ...]
    available: Ranges = {}
    absent: tuple[Absent, ...] = ()
    symptoms: dict[str, Symptom]
    affected: tuple[Affected, ...]
    reproduction: Reproduction | None = None
    masks: bool = False
    moment: Moment | None = None
    fixes: tuple[Fix, ...] = ()
    wrong_fixes: tuple[WrongFix, ...] = ()
    advice: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Advisory:
        named = [*(a.symptom for a in self.affected), *(w.symptom for w in self.wrong_fixes)]
        for symptom in named:
            if symptom not in self.symptoms:
                raise ValueError(f"symptom '{symptom}' is not described")
        if self.reproduction is None and not self.masks:
            raise ValueError("needs a reproduction, or 'masks: true'")
        if self.moment is not None and not self.masks:
            raise ValueError("'moment' says when a failure masks others, so needs 'masks: true'")
        return self

    def symptom_of(self, error: Mapping[str, Any]) -> str | None:
        """Name of the symptom that a recorded exception shows, or None."""
        return next((name for name, s in self.symptoms.items() if s.matches(error)), None)


class Catalogue(Record):
    """All advisories of a folder, by id."""

    kind: Literal["catalogue"] = "catalogue"
    records: dict[str, Advisory]

    @property
    def failures(self) -> tuple[str, ...]:
        """Ids of the failures that have a reproduction, in the order of their ids."""
        return tuple(sorted(i for i, record in self.records.items() if record.reproduction))

    @property
    def masks(self) -> tuple[Advisory, ...]:
        """Advisories that can stop another failure's scenario, those that do so first, first."""
        moments = [*Moment, None]
        masks = [record for record in self.records.values() if record.masks]
        return tuple(sorted(masks, key=lambda mask: (moments.index(mask.moment), mask.id)))

    def reproduction(self, failure: str) -> Reproduction:
        """How a failure is provoked."""
        reproduction = self.records[failure].reproduction
        assert reproduction is not None, f"{failure} only masks others"
        return reproduction

    def __getitem__(self, failure: str) -> Advisory:
        return self.records[failure]


def load(folder: Path, reproductions: Path) -> Catalogue:
    """Reads every advisory of a folder and checks that each reproduction is there.

    Raises:
        BadInput: a broken record, a file whose name is not its id, a missing reproduction.
    """
    records = {}
    for path in sorted(folder.glob("*.yaml")):
        advisory = documents.load(path, Advisory)
        if advisory.id != path.stem:
            raise BadInput(f"{path}: id '{advisory.id}' should be '{path.stem}' like the file")
        module = advisory.reproduction and reproductions / f"{advisory.reproduction.module}.py"
        if module and not module.is_file():
            raise BadInput(f"{path}: reproduction {module.name} is not in {reproductions}")
        records[advisory.id] = advisory
    if not records:
        raise BadInput(f"{folder}: no advisories there")
    return Catalogue(records=records)
