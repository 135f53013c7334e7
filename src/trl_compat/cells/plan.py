"""Cells and the plan: which cells a selection contains, and in which order they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from trl_compat.advisories import Catalogue, FixBase, WrongFix
from trl_compat.advisories.invariant import whose
from trl_compat.cells import devices
from trl_compat.cells.expectations import (
    Expectation,
    Trial,
    applicable_fixes,
    trials,
    unfixed,
    with_fix,
)
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.rerun import PLAINLY, Again
from trl_compat.conditions import Value
from trl_compat.errors import BadInput
from trl_compat.files.names import require_known
from trl_compat.machine.gpus import SHARED
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

    A fix is applied by calling its ``entry``, by executing its ``code``, or by other ``conditions``
    than the variant's (None leaves one out).
    """

    device: str
    fix: str | None = None
    entry: str | None = None
    code: str = ""
    conditions: Mapping[str, Value] = {}
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
        options = [] if again.one_stack else ["--stack", self.stack]
        options += ["--failure", self.failure, "--variant", self.variant]
        options += ["--model", self.model, "--world-size", str(self.world_size)]
        options += [*devices.options(self.device), "--fix", self.fix or UNFIXED, "--fresh"]
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
    """What the user asked for; an empty tuple means everything that the profile has.

    Attributes:
        whole: take what is named from the whole matrix, whatever the profile has.
    """

    model_config = ConfigDict(frozen=True)

    profile: str = "default"
    stacks: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    world_size: int | None = None
    device: str = "cpu"
    whole: bool = False


class CellPlan(BaseModel):
    """The cells to run, grouped by stack in the order of the matrix, and what is left out."""

    cells: list[Cell] = Field(default_factory=list)
    not_run: list[NotRun] = Field(default_factory=list)


def plan(matrix: Matrix, catalogue: Catalogue, selection: Selection) -> CellPlan:
    """The cells that a selection means.

    What the user names narrows the profile.  Where that leaves nothing, because the profile does
    not have it, what is named is taken from the whole matrix.

    Raises:
        BadInput: an unknown profile, stack, grid, failure, variant, model or fix.
    """
    (profile_name,) = require_known("profile", [selection.profile], matrix.profiles)
    require_known("stack", selection.stacks, matrix.stacks)
    if selection.grids:
        if not matrix.grids:
            raise BadInput(f"unknown grid '{selection.grids[0]}'; the matrix has no grids")
        require_known("grid", selection.grids, matrix.grids)
    require_known(
        "failure or invariant" if catalogue.invariants else "failure",
        selection.failures,
        catalogue.subjects,
    )
    require_known("model", selection.models, matrix.models)
    _check_names(catalogue, selection)
    profile = matrix.profiles[profile_name]
    blocks = () if selection.whole else profile.select
    found = [_narrowed(block, matrix, catalogue, selection) for block in blocks]
    wanted = [place for places in found for place in places]
    if not wanted:
        wanted = _narrowed(_whole(matrix, selection), matrix, catalogue, selection)
    pasted = frozenset(profile.standalone or matrix.models)
    return _arranged(matrix, catalogue, selection, wanted, pasted)


def _whole(matrix: Matrix, selection: Selection) -> Selector:
    """All that can be named: every variant, of a grid's many stacks only those that are usual."""
    usual = selection.grids and not selection.variants
    stacks = selection.stacks or (() if selection.grids else tuple(matrix.by_hand))
    return Selector(
        stacks=stacks,
        grids=selection.grids,
        failures=selection.failures,
        variants=() if usual else ("all",),
    )


def _stacks(matrix: Matrix, names: Sequence[str], grids: Sequence[str]) -> list[str]:
    """The stacks that are named alone or by their grids, in the order of the matrix."""
    wanted = {*names, *(name for grid in grids for name in matrix.stacks_of(grid))}
    return [name for name in matrix.stacks if name in wanted]


def _narrowed(
    block: Selector, matrix: Matrix, catalogue: Catalogue, selection: Selection
) -> list[Coordinates]:
    """The places of a block that the selection allows, controls not yet among them."""

    def both(wanted: Sequence[str], has: Sequence[str], everything: Iterable[str]) -> list[str]:
        offered = [item for item in everything if not has or item in has]
        return [item for item in offered if not wanted or item in wanted]

    places = []
    offered_stacks = _stacks(
        matrix, block.stacks or ([] if block.grids else matrix.by_hand), block.grids
    )
    wanted_stacks = _stacks(matrix, selection.stacks, selection.grids)
    for name in both(wanted_stacks, (), offered_stacks):
        only = matrix.stacks[name].only
        for failure in both(selection.failures, (), _subjects(block, catalogue)):
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


def _subjects(block: Selector, catalogue: Catalogue) -> list[str]:
    """The failures and invariants of a block; without a word of either, all failures."""
    wanted = {*block.failures, *block.invariants}
    if "all" in block.invariants:
        wanted |= set(catalogue.invariants)
    return [name for name in catalogue.subjects if name in (wanted or catalogue.failures)]


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
    predictions = _Predictions(matrix, catalogue, selection.device)
    cells: dict[str, Cell] = {}
    left_out: dict[tuple[str, str, str, str], NotRun] = {}
    for place in places:
        where = place.model_dump(exclude={"world_size"})
        reason = matrix.excluded(**where)
        if reason:
            left_out[tuple(where.values())] = NotRun(**where, reason=reason)
            continue
        reproduction = catalogue.reproduction(place.failure)
        if reproduction.control not in (None, place.variant):
            control = place.model_copy(update={"variant": reproduction.control})
            cell = _cell(control, predictions, None)
            cells.setdefault(cell.id, cell)
        for cell in _cells(place, predictions, selection, place.model in pasted):
            cells[cell.id] = cell
    order = {name: number for number, name in enumerate(matrix.stacks)}
    arranged = sorted(cells.values(), key=lambda cell: (order[cell.stack], cell.order))
    return CellPlan(cells=arranged, not_run=list(left_out.values()))


class _Predictions:
    """What the advisories predict without a fix; the same for all models, so it is asked once."""

    def __init__(self, matrix: Matrix, catalogue: Catalogue, device: str) -> None:
        self.matrix, self.catalogue, self.device = matrix, catalogue, device
        self._known: dict[tuple[str, str, str], Expectation] = {}

    def of(self, place: Coordinates, fix: FixBase | None) -> Expectation:
        """The prediction for a place."""
        key = (place.stack, place.failure, place.variant)
        if key not in self._known:
            stack, advisory = self.matrix.stacks[place.stack], self.catalogue[place.failure]
            masks = self.catalogue.masks
            told = devices.of_ranks(self.device)
            found = unfixed(stack, advisory, place.variant, masks, told)
            # What depends on the device depends on the backend, too, and here is gloo on a GPU.
            if self.device == SHARED and any("device" in a.conditions for a in advisory.affected):
                found = Expectation(outcome=None)
            by_rule = {"may_be_unresolvable": bool(stack.grid)}
            self._known[key] = found.model_copy(update=by_rule)
        return with_fix(self._known[key], fix)


def _cell(place: Coordinates, predictions: _Predictions, fix: Trial | None) -> Cell:
    control = predictions.catalogue.reproduction(place.failure).control
    return Cell(
        **place.model_dump(),
        device=predictions.device,
        fix=fix.name if fix else None,
        entry=fix.entry if fix else None,
        code=fix.standalone if fix else "",
        conditions=fix.remedy.conditions if fix else {},
        wrong_fix=fix is not None and isinstance(fix.remedy, WrongFix),
        is_control=place.variant == control and fix is None,
        expectation=predictions.of(place, fix.remedy if fix else None),
    )


def _cells(
    place: Coordinates, predictions: _Predictions, selection: Selection, pasted: bool
) -> Iterator[Cell]:
    """The unfixed cell of a place and its fixes, as far as they are wanted."""
    as_it_is = _cell(place, predictions, None)
    wanted = selection.fixes
    if not wanted or UNFIXED in wanted:
        yield as_it_is
    broken = as_it_is.expectation.outcome is Outcome.REPRODUCED
    stack = predictions.matrix.stacks[place.stack]
    advisory = predictions.catalogue[place.failure]
    owner = predictions.catalogue.records.get(whose(as_it_is.expectation.symptom) or "")
    meant = (*owner.fixes, *owner.wrong_fixes) if owner else ()
    names = {fix.name for fix in meant}
    for fix in trials(applicable_fixes(stack, advisory, place.variant)):
        if owner and fix.remedy.name not in names:
            continue  # it mends another fault of the same invariant
        # A fix is tried where its failure is expected, or where the user asks for it by name.
        by_itself = broken and (pasted or not fix.standalone)
        if fix.name in wanted or (not wanted and by_itself):
            yield _cell(place, predictions, fix)


def _check_names(catalogue: Catalogue, selection: Selection) -> None:
    variants: set[str] = set()
    fixes = {UNFIXED}
    for failure in selection.failures or catalogue.subjects:
        advisory = catalogue[failure]
        variants.update(catalogue.reproduction(failure).variants)
        remedies = (*advisory.fixes, *advisory.wrong_fixes)
        fixes.update(trial.name for trial in trials(remedies))
    require_known("variant", selection.variants, sorted(variants))
    require_known("fix", selection.fixes, sorted(fixes))
