"""matrix.yaml: the stacks, the profiles that select from them, and what is excluded and why.

Stacks are written by hand or made by the file's grids when it is read (:mod:`.grids`).
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from trl_compat import ranges
from trl_compat.errors import BadInput
from trl_compat.files import documents
from trl_compat.files.models import FrozenModel
from trl_compat.files.names import NAME
from trl_compat.packages import PACKAGES
from trl_compat.ranges import Answer
from trl_compat.stacks.exact_version import ExactVersion, check_python
from trl_compat.stacks.grids import expansion
from trl_compat.stacks.grids.expansion import Expansion
from trl_compat.stacks.grids.schema import Grid
from trl_compat.stacks.in_place.record import InPlace
from trl_compat.text.nearest import unknown_name

GIT = re.compile(r"git\+(?P<url>https://[\w.-]+(?:/\w[\w.-]*)+)@(?P<commit>[0-9a-f]{7,40})")


def _version(value: str) -> str:
    if not GIT.fullmatch(value):
        try:
            Version(value)
        except InvalidVersion:
            raise ValueError(
                f"'{value}' is neither a version nor git+https://...@<commit>"
            ) from None
    return value


class Stack(FrozenModel):
    """Exact versions of the packages under test, and the day that pins everything below them.

    ``only`` limits a stack to some failures (with ``why``), for trees that exist for one of them.
    ``lock`` names a lock that is honoured as it is in place of resolving; DeepSpeed and PEFT may
    then be missing (empty), as they are from many stacks.
    ``build`` names the packages that may be built from their source where they have no wheel, which
    runs their code; if it is left out, any may.
    ``grid`` is the grid that has made it; empty for a stack that is written by hand.  ``also_in``
    are others that mean the same stack.
    ``in_place`` is an environment that is used as it is; no file can name one, ``check`` does.
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
    in_place: InPlace | None = None
    only: tuple[str, ...] = ()
    why: str = ""
    grid: str = ""
    also_in: tuple[str, ...] = ()

    @field_validator(*PACKAGES)
    @classmethod
    def _exact(cls, value: str) -> str:
        return _version(value) if value else value  # whether it may be missing is asked below

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
        if missing and self.lock is None and self.in_place is None:
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

    def absent(self, package: str) -> bool:
        """Whether the stack goes without a package."""
        return not getattr(self, package, "")

    def requirements(self) -> list[str]:
        """The stack as pip requirements."""
        wanted = []
        for package in PACKAGES:
            value = getattr(self, package)
            wanted.append(f"{package} @ {value}" if GIT.fullmatch(value) else f"{package}=={value}")
        return [*wanted, *self.with_]


class Selector(FrozenModel):
    """A part of the cross product; what is left out means all.

    Without ``stacks`` and ``grids`` the stacks written by hand are meant, without ``failures`` and
    ``invariants`` every failure; ``invariants: [all]`` means every invariant.  ``variants`` left
    out means those that each record names as its ``default``; ``[all]`` means every variant.
    """

    stacks: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
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
    """Cells that are not run, with the reason; a field that is left out matches everything.

    Attributes:
        versions: a range for each package that decides, in place of naming every stack.
        failure: one or several, like ``variant``.
    """

    reason: str = Field(min_length=10)
    stack: str | None = None
    grid: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    failure: str | tuple[str, ...] | None = None
    variant: str | tuple[str, ...] | None = None
    model: str | None = None

    @field_validator("versions")
    @classmethod
    def _ranges(cls, versions: dict[str, str]) -> dict[str, str]:
        for package, range_ in versions.items():
            if package not in PACKAGES:
                raise ValueError(unknown_name("package", package, PACKAGES))
            try:
                ranges.ranges(range_)
            except InvalidSpecifier:
                raise ValueError(
                    f"{package}: '{range_}' is not a version range such as '>=1.0,<2'"
                ) from None
        return versions

    def covers(self, *, stack: str, failure: str, variant: str, model: str) -> bool:
        """Whether this exclude names the cell, :meth:`concerns` left aside."""
        pairs = (
            (self.stack, stack),
            (self.failure, failure),
            (self.variant, variant),
            (self.model, model),
        )
        return all(
            actual in wanted if isinstance(wanted, tuple) else wanted in (None, actual)
            for wanted, actual in pairs
        )

    def concerns(self, stack: Stack | None) -> bool:
        """Whether the grid and the versions that it names, if any, are those of a stack."""
        if stack is None:
            return self.grid is None and not self.versions
        in_range = ranges.of_stack(stack)
        return self.grid in (None, stack.grid, *stack.also_in) and all(
            in_range(package, range_) is Answer.YES for package, range_ in self.versions.items()
        )


class Matrix(FrozenModel):
    """The whole file.

    Attributes:
        stacks: as :func:`load` gives it, those that the grids have made as well.
    """

    models: tuple[str, ...]
    stacks: dict[str, Stack]
    grids: dict[str, Grid] = Field(default_factory=dict)
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
        for name, stack in stacks.items():
            if not NAME.fullmatch(name) and not stack.grid:
                raise ValueError(f"stack name '{name}' may contain only a-z, 0-9, '.', '+' and '-'")
        return stacks

    @field_validator("grids")
    @classmethod
    def _grid_names(cls, grids: dict[str, Grid]) -> dict[str, Grid]:
        for name in grids:
            if not NAME.fullmatch(name):
                raise ValueError(f"grid name '{name}' may contain only a-z, 0-9, '.', '+' and '-'")
        return grids

    @model_validator(mode="after")
    def _references(self) -> Matrix:
        if not self.grids and (wrong := self.unknown_reference()):
            raise ValueError(wrong)  # else it is asked when the stacks of the grids are known
        return self

    def unknown_reference(self) -> str:
        """What a profile or an exclude names that there is not, as a sentence; empty if nothing."""
        known = {"stack": self.stacks, "model": self.models, "grid": self.grids}
        named: list[tuple[str, str, str | None]] = []
        for name, profile in self.profiles.items():
            where = f"profile '{name}'"
            named += [(where, "model", model) for model in profile.standalone]
            for block in profile.select:
                named += [(where, "stack", one) for one in block.stacks]
                named += [(where, "grid", one) for one in block.grids]
                named += [(where, "model", one) for one in block.models]
        for exclude in self.excludes:
            named.append(("excludes", "stack", exclude.stack))
            named.append(("excludes", "grid", exclude.grid))
            named.append(("excludes", "model", exclude.model))
        for where, kind, one in named:
            if one is not None and one not in known[kind]:
                return f"{where}: {unknown_name(kind, one, known[kind])}"
        return ""

    @property
    def by_hand(self) -> list[str]:
        """The names of the stacks that are written in the file."""
        return [name for name, stack in self.stacks.items() if not stack.grid]

    def stacks_of(self, grid: str) -> list[str]:
        """The names of the stacks that a grid means, those that another grid means too included."""
        return [
            name
            for name, stack in self.stacks.items()
            if stack.grid and grid in (stack.grid, *stack.also_in)
        ]

    def expansion(self, grid: str) -> Expansion:
        """How a grid became stacks."""
        return expansion.expand(self.grids[grid])

    def excluded(self, *, stack: str, failure: str, variant: str, model: str) -> str | None:
        """The reason for which a cell is left out; None if it is not."""
        for exclude in self.excludes:
            if exclude.covers(
                stack=stack, failure=failure, variant=variant, model=model
            ) and exclude.concerns(self.stacks.get(stack)):
                return exclude.reason
        return None


def load(path: Path) -> Matrix:
    """Reads a matrix file and makes the stacks of its grids.

    The locks that it names lie where its own folder says.

    Raises:
        BadInput: see :func:`trl_compat.files.documents.load`; or a grid means no stacks.
    """
    table = documents.load(path, Matrix)
    if given := [name for name, stack in table.stacks.items() if stack.in_place]:
        raise BadInput(f"{path}: stacks.{given[0]}: unknown key 'in_place'")
    stacks = {
        name: stack.model_copy(update={"lock": path.parent / stack.lock}) if stack.lock else stack
        for name, stack in table.stacks.items()
    }
    for name, stack in stacks.items():
        if stack.grid or stack.also_in or (table.grids and name.startswith("grid-")):
            what = (
                "the key grid is"
                if stack.grid or stack.also_in
                else "a name that begins with 'grid-' is"
            )
            line = documents.line_of(path, ("stacks", name))
            raise BadInput(f"{path}:{line}: stacks.{name}: {what} for the stacks that grids make")
    if not table.grids:
        return table.model_copy(update={"stacks": stacks})
    return _with_grids(table, stacks, path)


def _with_grids(table: Matrix, stacks: dict[str, Stack], path: Path) -> Matrix:
    made: dict[str, Expansion] = {}
    for name, grid in table.grids.items():
        try:
            made[name] = expansion.expand(grid)
        except BadInput as error:
            line = documents.line_of(path, ("grids", name))
            raise BadInput(f"{path}:{line}: grid '{name}': {error}") from None
    means = {name: set(found.stacks) for name, found in made.items()}
    named = expansion.names([stack for found in made.values() for stack in found.stacks])
    for name, wanted in named.items():
        first, *others = [grid for grid, found in means.items() if wanted in found]
        stacks[name] = Stack(**vars(wanted), grid=first, also_in=tuple(others))
    whole = table.model_copy(update={"stacks": stacks})
    if wrong := whole.unknown_reference():
        raise BadInput(f"{path}: {wrong}")
    return whole
