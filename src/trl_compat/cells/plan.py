"""Cells and the plan: which cells a selection contains, and in which order they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from trl_compat.advisories import Catalogue, WrongFix
from trl_compat.cells.expectations import Expectation, Trial, applicable_fixes, expect, trials
from trl_compat.cells.outcomes import Outcome
from trl_compat.cells.rerun import PLAINLY, Again
from trl_compat.files.names import require_known
from trl_compat.stacks.matrix import Matrix, Selector

UNFIXED = "none"


class Coordinates(BaseModel):
    """A cell without its fix: where in the cross product it is."""

    model_config = ConfigDict(frozen=True)

    stack: str
    failure: str
    variant: str
    model: str
    world_size: int


class Cell(Coordinates):
    """stack × failure × variant × model × world size × (unfixed or a fix).

    A fix is applied by calling its ``entry`` or by executing its ``code``.
    """

    device: str
    fix: str | None = None
    entry: str | None = None
    code: str = ""
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

    def command(self, again: Again = PLAINLY, *, torchrun: bool = False) -> str:
        """The one line that runs exactly this cell again, with its control.

        Args:
            again: how its run was started.
            torchrun: plain ``torchrun`` started its ranks because that was asked for.
        """
        options = ["--stack", self.stack, "--failure", self.failure, "--variant", self.variant]
        options += ["--model", self.model, "--world-size", str(self.world_size)]
        options += ["--device", self.device, "--fix", self.fix or UNFIXED, "--fresh"]
        return again.line(options, torchrun=torchrun)


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


class CellPlan(BaseModel):
    """The cells to run, grouped by stack in the order of the matrix, and what is left out."""

    cells: list[Cell] = Field(default_factory=list)
    not_run: list[NotRun] = Field(default_factory=list)


def plan(matrix: Matrix, catalogue: Catalogue, selection: Selection) -> CellPlan:
    """The cells that a selection means.

    What the user names narrows the profile.  Where that leaves nothing, because the profile does
    not have it, what is named is taken from the whole matrix.

    Raises:
        BadInput: an unknown profile, stack, failure, variant, model or fix.
    """
    (profile_name,) = require_known("profile", [selection.profile], matrix.profiles)
    require_known("stack", selection.stacks, matrix.stacks)
    require_known("failure", selection.failures, catalogue.failures)
    require_known("model", selection.models, matrix.models)
    _check_names(catalogue, selection)
    profile = matrix.profiles[profile_name]
    found = [_narrowed(block, matrix, catalogue, selection) for block in profile.select]
    wanted = [place for places in found for place in places]
    if not wanted:
        wanted = list(_narrowed(Selector(variants=("all",)), matrix, catalogue, selection))
    pasted = frozenset(profile.standalone or matrix.models)
    return _arranged(matrix, catalogue, selection, wanted, pasted)


def _narrowed(
    block: Selector, matrix: Matrix, catalogue: Catalogue, selection: Selection
) -> list[Coordinates]:
    """The places of a block that the selection allows, controls not yet among them."""

    def both(wanted: Sequence[str], has: Sequence[str], everything: Iterable[str]) -> list[str]:
        offered = [item for item in everything if not has or item in has]
        return [item for item in offered if not wanted or item in wanted]

    places = []
    for name in both(selection.stacks, block.stacks, matrix.stacks):
        only = matrix.stacks[name].only
        for failure in both(selection.failures, block.failures, catalogue.failures):
            if only and failure not in only:
                continue
            reproduction = catalogue.reproduction(failure)
            offered = block.variants or reproduction.default or tuple(reproduction.variants)
            if offered == ("all",):
                offered = tuple(reproduction.variants)
            for variant in both(selection.variants, offered, reproduction.variants):
                places += [
                    Coordinates(
                        stack=name,
                        failure=failure,
                        variant=variant,
                        model=model,
                        world_size=selection.world_size or block.world_size,
                    )
                    for model in both(selection.models, block.models, matrix.models)
                ]
    return places


def _arranged(
    matrix: Matrix,
    catalogue: Catalogue,
    selection: Selection,
    places: Sequence[Coordinates],
    pasted: Collection[str],
) -> CellPlan:
    """The cells of the places with their controls, stack by stack, controls first.

    With the models of ``pasted`` the standalone forms of fixes are tried, too.
    """
    cells: dict[str, Cell] = {}
    left_out: dict[tuple[str, str, str, str], NotRun] = {}
    for place in places:
        where = place.model_dump(exclude={"world_size"})
        reason = next((e.reason for e in matrix.excludes if e.covers(**where)), None)
        if reason:
            left_out[tuple(where.values())] = NotRun(**where, reason=reason)
            continue
        reproduction = catalogue.reproduction(place.failure)
        if reproduction.control not in (None, place.variant):
            control = place.model_copy(update={"variant": reproduction.control})
            cell = _cell(control, matrix, catalogue, selection.device, None)
            cells.setdefault(cell.id, cell)
        for cell in _cells(place, matrix, catalogue, selection, place.model in pasted):
            cells[cell.id] = cell
    order = {name: number for number, name in enumerate(matrix.stacks)}
    arranged = sorted(cells.values(), key=lambda cell: (order[cell.stack], cell.order))
    return CellPlan(cells=arranged, not_run=list(left_out.values()))


def _cell(
    place: Coordinates, matrix: Matrix, catalogue: Catalogue, device: str, fix: Trial | None
) -> Cell:
    advisory, stack = catalogue[place.failure], matrix.stacks[place.stack]
    control = catalogue.reproduction(place.failure).control
    return Cell(
        **place.model_dump(),
        device=device,
        fix=fix.name if fix else None,
        entry=fix.entry if fix else None,
        code=fix.standalone if fix else "",
        wrong_fix=fix is not None and isinstance(fix.remedy, WrongFix),
        is_control=place.variant == control and fix is None,
        expectation=expect(
            stack, advisory, place.variant, catalogue.masks, fix.remedy if fix else None, device
        ),
    )


def _cells(
    place: Coordinates, matrix: Matrix, catalogue: Catalogue, selection: Selection, pasted: bool
) -> Iterator[Cell]:
    """The unfixed cell of a place and its fixes, as far as they are wanted."""
    unfixed = _cell(place, matrix, catalogue, selection.device, None)
    wanted = selection.fixes
    if not wanted or UNFIXED in wanted:
        yield unfixed
    broken = unfixed.expectation.outcome is Outcome.REPRODUCED
    stack, advisory = matrix.stacks[place.stack], catalogue[place.failure]
    for fix in trials(applicable_fixes(stack, advisory, place.variant)):
        # A fix is tried where the failure is expected, or where the user asks for it by name.
        by_itself = broken and (pasted or not fix.standalone)
        if fix.name in wanted or (not wanted and by_itself):
            yield _cell(place, matrix, catalogue, selection.device, fix)


def _check_names(catalogue: Catalogue, selection: Selection) -> None:
    variants: set[str] = set()
    fixes = {UNFIXED}
    for failure in selection.failures or catalogue.failures:
        advisory = catalogue[failure]
        variants.update(catalogue.reproduction(failure).variants)
        remedies = (*advisory.fixes, *advisory.wrong_fixes)
        fixes.update(trial.name for trial in trials(remedies))
    require_known("variant", selection.variants, sorted(variants))
    require_known("fix", selection.fixes, sorted(fixes))
