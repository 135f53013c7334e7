"""Cells and the plan: which of them a selection means, and in which order they run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from trl_compat.advisories import Advisory, Catalogue, Fix, WrongFix
from trl_compat.expectations import Expectation, applicable_fixes, expect
from trl_compat.matrix import Matrix, Profile, Stack, choose
from trl_compat.outcomes import Outcome

UNFIXED = "none"


class Cell(BaseModel):
    """stack × failure × variant × model × world size × (unfixed or a fix)."""

    model_config = ConfigDict(frozen=True)

    stack: str
    failure: str
    variant: str
    model: str
    world_size: int
    device: str
    fix: str | None = None
    entry: str | None = None
    wrong_fix: bool = False
    is_control: bool = False
    expectation: Expectation

    @property
    def id(self) -> str:
        """Unique within a report and safe as a file name."""
        parts = [self.stack, self.failure, self.variant, self.model, f"x{self.world_size}"]
        if self.device != "cpu":
            parts.append(self.device)
        if self.fix:
            parts.append(self.fix)
        return "__".join(parts)

    @property
    def order(self) -> tuple[str, str, bool, str, str]:
        """Sort key inside a stack: a control before the cells that it vouches for."""
        return (self.failure, self.model, not self.is_control, self.variant, self.fix or "")

    def command(self, matrix_file: str = "matrix.yaml") -> str:
        """The one line that runs exactly this cell again."""
        options = ["--stack", self.stack, "--failure", self.failure, "--variant", self.variant]
        options += ["--model", self.model, "--world-size", str(self.world_size)]
        options += ["--device", self.device, "--fix", self.fix or UNFIXED, "--fresh"]
        if matrix_file != "matrix.yaml":
            options += ["--matrix", matrix_file]
        return f"nox -s matrix -- {shlex.join(options)}"


class NotRun(BaseModel):
    """Cells that the matrix leaves out, and why."""

    model_config = ConfigDict(frozen=True)

    stack: str
    failure: str
    variant: str
    model: str
    reason: str


class Selection(BaseModel):
    """What the user asked for; an empty tuple means everything that the profile has."""

    model_config = ConfigDict(frozen=True)

    profile: str = "default"
    stacks: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    world_size: int | None = None
    device: str = "cpu"


class Plan(BaseModel):
    """The cells to run, grouped by stack in the order of the matrix, and what is left out."""

    cells: list[Cell] = Field(default_factory=list)
    not_run: list[NotRun] = Field(default_factory=list)


def plan(matrix: Matrix, catalogue: Catalogue, selection: Selection) -> Plan:
    """The cells that a selection means.

    Naming stacks selects them whether the profile has them or not.

    Raises:
        BadInput: an unknown profile, stack, failure, variant, model or fix.
    """
    (profile_name,) = choose("profile", [selection.profile], matrix.profiles)
    profile = matrix.profiles[profile_name]
    stacks = choose("stack", selection.stacks or profile.stacks, matrix.stacks)
    failures = choose("failure", selection.failures or profile.failures, catalogue.failures)
    models = choose("model", selection.models or profile.models, matrix.models)
    _check_names(catalogue, failures, selection)
    result = Plan()
    for name in stacks:
        stack = matrix.stacks[name]
        cells: dict[str, Cell] = {}
        for failure in failures:
            if stack.only and failure not in stack.only:
                continue
            variants = list(_variants(catalogue[failure], profile, selection))
            for variant, fixes_wanted in variants:
                for model in models:
                    reason = _excluded(matrix, name, failure, variant, model)
                    if reason:
                        left_out = NotRun(
                            stack=name,
                            failure=failure,
                            variant=variant,
                            model=model,
                            reason=reason,
                        )
                        result.not_run.append(left_out)
                        continue
                    world_size = selection.world_size or profile.world_size
                    base = _Place(name, stack, failure, variant, model, world_size)
                    for cell in _cells(base, catalogue, selection, fixes_wanted):
                        cells[cell.id] = cell
        result.cells.extend(sorted(cells.values(), key=lambda cell: cell.order))
    return result


class _Place:
    """Where in the cross product we are."""

    def __init__(
        self, name: str, stack: Stack, failure: str, variant: str, model: str, world_size: int
    ) -> None:
        self.name, self.stack, self.failure = name, stack, failure
        self.variant, self.model, self.world_size = variant, model, world_size


def _cells(
    place: _Place, catalogue: Catalogue, selection: Selection, fixes_wanted: bool
) -> Iterator[Cell]:
    advisory = catalogue[place.failure]
    assert advisory.reproduction is not None
    masks = catalogue.masks
    is_control = place.variant == advisory.reproduction.control

    def cell(fix: Fix | WrongFix | None) -> Cell:
        return Cell(
            stack=place.name,
            failure=place.failure,
            variant=place.variant,
            model=place.model,
            world_size=place.world_size,
            device=selection.device,
            fix=fix.name if fix else None,
            entry=fix.entry if fix else None,
            wrong_fix=isinstance(fix, WrongFix),
            is_control=is_control and fix is None,
            expectation=expect(place.stack, advisory, place.variant, masks, fix),
        )

    unfixed = cell(None)
    wanted = selection.fixes
    if not wanted or UNFIXED in wanted or not fixes_wanted:
        yield unfixed
    if not fixes_wanted:
        return
    for fix in applicable_fixes(place.stack, advisory, place.variant):
        # A fix is tried where the failure is expected, or where the user asks for it by name.
        if fix.name in wanted or (
            not wanted and unfixed.expectation.outcome is Outcome.REPRODUCED
        ):
            yield cell(fix)


def _variants(
    advisory: Advisory, profile: Profile, selection: Selection
) -> Iterator[tuple[str, bool]]:
    """The variants of a failure that are meant, and whether their fixes are.

    The control comes along with the variants that it vouches for.
    """
    reproduction = advisory.reproduction
    assert reproduction is not None
    if selection.variants:
        chosen = [v for v in reproduction.variants if v in selection.variants]
    elif profile.variants == ("all",):
        chosen = list(reproduction.variants)
    else:
        chosen = list(reproduction.default or reproduction.variants)
    control = reproduction.control
    if control is not None and chosen and control not in chosen:
        yield control, False
    for variant in chosen:
        yield variant, True


def _check_names(
    catalogue: Catalogue, failures: Sequence[str], selection: Selection
) -> None:
    variants: set[str] = set()
    fixes = {UNFIXED}
    for failure in failures:
        advisory = catalogue[failure]
        assert advisory.reproduction is not None
        variants.update(advisory.reproduction.variants)
        fixes.update(fix.name for fix in (*advisory.fixes, *advisory.wrong_fixes))
    if selection.variants:
        choose("variant", selection.variants, variants)
    if selection.fixes:
        choose("fix", selection.fixes, fixes)


def _excluded(matrix: Matrix, stack: str, failure: str, variant: str, model: str) -> str | None:
    for exclude in matrix.excludes:
        if exclude.covers(stack=stack, failure=failure, variant=variant, model=model):
            return exclude.reason
    return None
