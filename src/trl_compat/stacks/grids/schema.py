"""A grid as matrix.yaml has it: axes of versions and rules, how they combine, what is left out.

docs/grids.md explains each key to people.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from typing import Annotated, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from trl_compat.files.models import FrozenModel
from trl_compat.packages import PACKAGES
from trl_compat.stacks.exact_version import ExactVersion, check_python
from trl_compat.text.nearest import hint

OLDEST_ALLOWED, ON_THE_DAY, NEWEST = "oldest-allowed", "on-the-day", "newest"
WORDS = (OLDEST_ALLOWED, ON_THE_DAY, NEWEST)
KINDS = (
    "word",
    "version",
    "every_minor_since",
    "every_release_since",
    "newest",
    "newest_minors",
    "days_later",
)


class Sample(enum.StrEnum):
    """Which combinations of the axes are taken."""

    FULL = "full"
    PAIRWISE = "pairwise"
    THREE_WAY = "3-way"
    ONE_AT_A_TIME = "one-at-a-time"

    @property
    def strength(self) -> int:
        """Of the covering array; 0 where none is needed."""
        return {Sample.PAIRWISE: 2, Sample.THREE_WAY: 3}.get(self, 0)


def _a_version(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        raise ValueError(f"'{text}' is not a version") from None


class Rule(FrozenModel):
    """One entry of an axis: a version, a word, or a mapping with one rule.

    Attributes:
        word: ``oldest-allowed``, ``on-the-day`` (both as this TRL requires), ``newest``.
        every_minor_since: the newest patch of every minor release, up to that of ``until``.
        every_release_since: every final release, up to ``until``.
        newest: so many of the newest final releases; ``newest_minors``: of the newest minors.
        days_later: the newest so many days after the TRL release.
        newest_of: the newest of these that was released when the packages of ``released_by`` were;
            left out, all the others.
    """

    word: str = ""
    version: ExactVersion = ""
    every_minor_since: ExactVersion = ""
    every_release_since: ExactVersion = ""
    until: ExactVersion = ""
    newest: int | None = Field(default=None, ge=1, strict=True)
    newest_minors: int | None = Field(default=None, ge=1, strict=True)
    days_later: int | None = Field(default=None, ge=0, le=3650, strict=True)
    newest_of: tuple[ExactVersion, ...] = ()
    released_by: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, float):
            raise ValueError(f"quote the version ('{value}' was read as a number)")
        if isinstance(value, Mapping | Rule):
            return value
        if not isinstance(value, str):
            raise ValueError(f"'{value}' is neither a version nor a rule; {hint('', WORDS, 1)}")
        if value in WORDS:
            return {"word": value}
        try:
            return {"version": str(Version(value))}
        except InvalidVersion:
            raise ValueError(
                f"'{value}' is neither a version nor a rule; {hint(value, WORDS, 1)}"
            ) from None

    @field_validator("version", "every_minor_since", "every_release_since", "until")
    @classmethod
    def _one(cls, version: str) -> str:
        return _a_version(version) if version else ""

    @field_validator("newest_of")
    @classmethod
    def _some(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_a_version(version) for version in versions)

    @model_validator(mode="after")
    def _one_rule(self) -> Rule:
        given = [kind for kind in KINDS if getattr(self, kind) not in ("", None)]
        given += ["newest_of"] if self.newest_of else []
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"an entry of an axis has one rule ({found} found)")
        if self.word and self.word not in WORDS:
            raise ValueError(f"unknown rule '{self.word}'; {hint(self.word, WORDS, 1)}")
        if self.until and not (self.every_minor_since or self.every_release_since):
            raise ValueError("until belongs to every_minor_since and every_release_since")
        if self.released_by and not self.newest_of:
            raise ValueError("released_by belongs to newest_of")
        for package in self.released_by:
            if package not in PACKAGES:
                raise ValueError(f"unknown package '{package}'; {hint(package, PACKAGES, 1)}")
        return self

    @property
    def follows_trl(self) -> bool:
        """Whether what it means depends on the TRL of the row."""
        return self.word in (OLDEST_ALLOWED, ON_THE_DAY) or self.days_later is not None

    @property
    def text(self) -> str:
        """The rule as a sentence names it."""
        shown = self.model_dump(exclude_defaults=True)
        if len(shown) == 1 and (self.word or self.version):
            return self.word or self.version
        return ", ".join(f"{key}: {value}" for key, value in shown.items())


def _listed(value: Any) -> Any:
    """An axis with one entry may go without the brackets."""
    if value is None:
        raise ValueError("the axis is empty; name a version or a rule")
    return value if isinstance(value, list | tuple) else [value]


def _not_empty(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    if not rules:
        raise ValueError("the axis is empty; name a version or a rule")
    return rules


Axis = Annotated[tuple[Rule, ...], BeforeValidator(_listed)]


class Axes(FrozenModel):
    """The axes of a grid; a package without one is chosen to fit the others."""

    trl: Axis
    transformers: Axis | None = None
    deepspeed: Axis | None = None
    accelerate: Axis | None = None
    peft: Axis | None = None
    torch: Axis | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_named(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError("axes is a mapping of packages to versions and rules")
        for package, rules in value.items():
            if rules is None and package in PACKAGES:
                raise ValueError(f"axis {package} is empty; name a version or a rule")
        return value

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """An axis that is not there is not there when it is read again."""
        return {package: rules for package, rules in write(self).items() if rules is not None}

    @field_validator(*PACKAGES)
    @classmethod
    def _rules(cls, rules: tuple[Rule, ...] | None) -> tuple[Rule, ...] | None:
        return None if rules is None else _not_empty(rules)

    @model_validator(mode="after")
    def _no_circle(self) -> Axes:
        for rule in self.trl:
            if rule.follows_trl or rule.newest_of:
                raise ValueError(f"axis trl: '{rule.text}' depends on the TRL release itself")
        chosen_last = {p for p, rules in self.named.items() if any(r.newest_of for r in rules)}
        for package, rules in self.named.items():
            for rule in rules:
                if circle := chosen_last & set(rule.released_by):
                    raise ValueError(
                        f"axis {package}: released_by names {min(circle)}, whose axis has "
                        "newest_of itself"
                    )
        return self

    @property
    def named(self) -> dict[str, tuple[Rule, ...]]:
        """The axes that there are, TRL's first."""
        order = ("trl", *(package for package in PACKAGES if package != "trl"))
        return {p: rules for p in order if (rules := getattr(self, p)) is not None}


class Forbidden(FrozenModel):
    """Combinations that are not made into stacks, with the reason: ranges that hold together."""

    reason: str = Field(min_length=10)
    trl: str = ""
    transformers: str = ""
    deepspeed: str = ""
    accelerate: str = ""
    peft: str = ""
    torch: str = ""

    @field_validator(*PACKAGES)
    @classmethod
    def _range(cls, text: str) -> str:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            raise ValueError(f"'{text}' is not a version range such as '>=1.0,<2'") from None
        return text

    @model_validator(mode="after")
    def _something(self) -> Forbidden:
        if not self.ranges:
            raise ValueError("an exclude names the version range of at least one package")
        return self

    @property
    def ranges(self) -> dict[str, SpecifierSet]:
        """The range of each package that it names."""
        return {p: SpecifierSet(text) for p in PACKAGES if (text := getattr(self, p))}

    def covers(self, versions: Mapping[str, Version]) -> bool:
        """Whether these versions are all inside its ranges."""
        return all(
            range_.contains(versions[package], prereleases=True)
            for package, range_ in self.ranges.items()
        )


class Grid(FrozenModel):
    """Stacks made by rule.

    Attributes:
        base: for ``one-at-a-time``: the entry of each axis that stays while another one moves; left
            out, the first.
        seed: of the covering array.
        python: of every stack; left out, 3.11, or the nearest that the releases are for.
        as_of: a fixed day; left out, ``days_after`` days after the newest of the six releases.
    """

    about: str
    axes: Axes
    sample: Sample = Sample.FULL
    base: dict[str, Rule] = Field(default_factory=dict)
    seed: int = 1
    python: ExactVersion = ""
    as_of: datetime.date | None = None
    days_after: int = Field(default=3, ge=0, le=365)
    excludes: tuple[Forbidden, ...] = ()

    @field_validator("python")
    @classmethod
    def _python(cls, value: str) -> str:
        return check_python(value) if value else ""

    @model_validator(mode="after")
    def _base_fits(self) -> Grid:
        if self.base and self.sample is not Sample.ONE_AT_A_TIME:
            raise ValueError("base belongs to sample: one-at-a-time")
        for package in self.base:
            if package not in self.axes.named:
                raise ValueError(f"base: {package} is not an axis of this grid")
        return self
