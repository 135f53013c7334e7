"""matrix.yaml: the stacks, the profiles that select from them, and what is excluded and why."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, field_validator, model_validator

from trl_compat.files import documents
from trl_compat.files.models import FrozenModel
from trl_compat.files.names import NAME
from trl_compat.packages import PACKAGES
from trl_compat.text.nearest import unknown_name

# What goes into cells (trl_compat.runtime, trl_compat.fixes) is written for it.
OLDEST_PYTHON = (3, 9)
GIT = re.compile(r"git\+(?P<url>https://[\w.-]+(?:/\w[\w.-]*)+)@(?P<commit>[0-9a-f]{7,40})")


def _plain_version(value: Any) -> Any:
    # YAML reads 2.10 as the number 2.1; a version must be quoted or have two dots.
    if isinstance(value, float):
        raise ValueError(f"quote the version ('{value}' was read as a number)")
    return value


def _version(value: str) -> str:
    if not GIT.fullmatch(value):
        try:
            Version(value)
        except InvalidVersion:
            raise ValueError(
                f"'{value}' is neither a version nor git+https://...@<commit>"
            ) from None
    return value


def check_python(version: str) -> str:
    """The version of Python of a stack, e.g. ``3.11``.

    Raises:
        ValueError: it is none, or no cell can run on it.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?", version)
    if found is None:
        raise ValueError(f"'{version}' is not a Python version such as 3.11")
    if (int(found[1]), int(found[2])) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ValueError(f"Python {version}: cells require Python {oldest} or newer")
    return version


ExactVersion = Annotated[str, BeforeValidator(_plain_version)]


class Stack(FrozenModel):
    """Exact versions of the packages under test, and the day that pins everything below them.

    ``only`` limits a stack to some failures (with ``why``), for trees that exist for one of them.
    ``lock`` names a lock that is honoured as it is in place of resolving; DeepSpeed and PEFT may
    then be missing (empty), as they are from many stacks.
    ``build`` names the packages that may be built from their source where they have no wheel, which
    runs their code; if it is left out, any may.
    """

    as_of: datetime.date
    python: ExactVersion = "3.11"
    torch: ExactVersion
    trl: ExactVersion
    transformers: ExactVersion
    deepspeed: ExactVersion = ""
    accelerate: ExactVersion
    peft: ExactVersion = ""
    lock: Path | None = None
    with_: tuple[str, ...] = Field(default=(), alias="with")
    build: tuple[str, ...] | None = None
    only: tuple[str, ...] = ()
    why: str = ""

    @field_validator(*PACKAGES)
    @classmethod
    def _exact(cls, value: str) -> str:
        return _version(value)

    @field_validator("python")
    @classmethod
    def _python(cls, value: str) -> str:
        return check_python(value)

    @field_validator("build")
    @classmethod
    def _build(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if not is_normalized_name(canonicalize_name(name)):
                raise ValueError(f"build: '{name}' is not a package name")
        return names

    @field_validator("with_")
    @classmethod
    def _requirements(cls, wanted: tuple[str, ...]) -> tuple[str, ...]:
        for text in wanted:
            try:
                local = Requirement(text).url is None
            except InvalidRequirement:
                local = False
            if not local or "\n" in text:
                raise ValueError(f"with: '{text}' is not a requirement such as 'kernels==0.4.4'")
        return wanted

    @model_validator(mode="after")
    def _complete(self) -> Stack:
        missing = [package for package in PACKAGES if not getattr(self, package)]
        if missing and self.lock is None:
            raise ValueError(f"{', '.join(missing)}: missing")
        return self

    def version(self, package: str) -> Version | None:
        """The release of a package; None where the stack takes a git commit of it."""
        value = getattr(self, package, None)
        return Version(value) if value and not GIT.fullmatch(value) else None

    def commit(self, package: str) -> str | None:
        """The git commit of a package; None where the stack takes a release."""
        match = GIT.fullmatch(getattr(self, package, "") or "")
        return match["commit"] if match else None

    def requirements(self) -> list[str]:
        """The stack as pip requirements."""
        wanted = []
        for package in PACKAGES:
            value = getattr(self, package)
            wanted.append(f"{package} @ {value}" if GIT.fullmatch(value) else f"{package}=={value}")
        return [*wanted, *self.with_]


class Selector(FrozenModel):
    """A part of the cross product; what is left out means all.

    ``variants`` left out means those that each advisory names as its ``default``; ``[all]`` means
    every variant.
    """

    stacks: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    world_size: int = Field(default=2, ge=2, le=8)


class Profile(FrozenModel):
    """A named selection: the cells of any of its blocks.

    ``standalone`` names the models with which the standalone form of a fix is run beside the other;
    left out, all of them.
    """

    about: str
    select: tuple[Selector, ...] = Field(min_length=1)
    standalone: tuple[str, ...] = ()


class Exclude(FrozenModel):
    """Cells that are not run, with the reason; a field that is left out matches everything."""

    reason: str = Field(min_length=10)
    stack: str | None = None
    failure: str | None = None
    variant: str | None = None
    model: str | None = None

    def covers(self, *, stack: str, failure: str, variant: str, model: str) -> bool:
        """Whether this exclude names the cell."""
        pairs = (
            (self.stack, stack),
            (self.failure, failure),
            (self.variant, variant),
            (self.model, model),
        )
        return all(wanted is None or wanted == actual for wanted, actual in pairs)


class Matrix(FrozenModel):
    """The whole file."""

    models: tuple[str, ...]
    stacks: dict[str, Stack]
    profiles: dict[str, Profile]
    excludes: tuple[Exclude, ...] = ()

    @field_validator("models")
    @classmethod
    def _models(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        for name in models:
            if not NAME.fullmatch(name):
                raise ValueError(f"model name '{name}' may contain only a-z, 0-9, '.', '+' and '-'")
        return models

    @field_validator("stacks")
    @classmethod
    def _names(cls, stacks: dict[str, Stack]) -> dict[str, Stack]:
        for name in stacks:
            if not NAME.fullmatch(name):
                raise ValueError(f"stack name '{name}' may contain only a-z, 0-9, '.', '+' and '-'")
        return stacks

    @model_validator(mode="after")
    def _references(self) -> Matrix:
        for name, profile in self.profiles.items():
            for model in profile.standalone:
                if model not in self.models:
                    raise ValueError(
                        f"profile '{name}': {unknown_name('model', model, self.models)}"
                    )
            for block in profile.select:
                for kind, wanted, known in (
                    ("stack", block.stacks, self.stacks),
                    ("model", block.models, self.models),
                ):
                    for item in wanted:
                        if item not in known:
                            raise ValueError(f"profile '{name}': {unknown_name(kind, item, known)}")
        for exclude in self.excludes:
            if exclude.stack is not None and exclude.stack not in self.stacks:
                raise ValueError(f"excludes: {unknown_name('stack', exclude.stack, self.stacks)}")
            if exclude.model is not None and exclude.model not in self.models:
                raise ValueError(f"excludes: {unknown_name('model', exclude.model, self.models)}")
        return self


def load(path: Path) -> Matrix:
    """Reads a matrix file; the locks that it names lie where its own folder says.

    Raises:
        BadInput: see :func:`trl_compat.files.documents.load`.
    """
    table = documents.load(path, Matrix)
    stacks = {
        name: stack.model_copy(update={"lock": path.parent / stack.lock}) if stack.lock else stack
        for name, stack in table.stacks.items()
    }
    return table.model_copy(update={"stacks": stacks})
