"""What was run, and the outcomes, as data; every report is made from it."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable

from pydantic import Field, model_validator

import trl_compat
from trl_compat.advisories.invariant import whose
from trl_compat.cells.hangs import RankState
from trl_compat.cells.observation import Launch
from trl_compat.cells.outcome import Outcome
from trl_compat.files.models import FrozenModel
from trl_compat.machine.description import Host


class StackVersions(FrozenModel):
    """The exact versions of a stack.

    Attributes:
        grid: the grid that made the stack; empty for one that was written by hand.
    """

    python: str
    torch: str
    trl: str
    transformers: str
    deepspeed: str
    accelerate: str
    peft: str
    as_of: str
    lock_sha256: str | None
    grid: str = ""


class StackResult(StackVersions):
    """The same; ``packages`` is everything in its environment."""

    packages: dict[str, str]


class RunResult(FrozenModel):
    """A run of the command to which cells of the document belong.

    Attributes:
        id: the id that cells refer to.
        started_at: when it began; RFC 3339.
        ended_at: when its results were written; None if it was killed before.
        command: the line that was run.
        note: a note for readers.
    """

    id: str
    started_at: str
    ended_at: str | None
    command: str
    profile: str
    host: Host
    harness_version: str
    note: str = ""


class Signature(FrozenModel):
    """Type, message and raising place of the first exception."""

    exception: str
    message: str
    where: str


class Attempt(FrozenModel):
    """One run of a cell; a deviating cell has one more, alone and with plain torchrun."""

    launch: Launch
    outcome: Outcome
    seconds: float
    signature: Signature | None


class CellResult(FrozenModel):
    """One cell.

    Attributes:
        fixed: a fix, right or wrong, was applied; ``fix`` is its name.
        expected: the outcome that the advisories predict; None if they predict nothing, because
            their ranges name releases and the stack has a git commit that none of them names.
        agrees: outcome, symptom and mask are the predicted ones; true as well for a cell that could
            not be run (``unavailable``), and if nothing is predicted.
        symptom: the advisory's symptom that was observed.
        resembles: the symptom at whose raising place a different error was raised.
        peak_memory: bytes that the cell's processes used together, shared memory counted once.
        leftovers: processes that were still running when the cell ended, and were killed.
        hanging: for a hang, the state of each rank that was still running: its place, the
            collective that it waits in, how many it had started, its Python stacks.
        traceback: the end of the traceback of the rank that raised first; empty if none did.
        checks: post-conditions that were asserted, by name.
        measured: of an invariant, the values that were measured (see its record).
        evidence: ``cpu-gloo × n`` or ``cuda-nccl × n`` if ranks ran, else ``none``.
        log: path under reports/ of the file with what its ranks printed, which holds the logs of
            other cells of the stack as well; None if its own is not kept.
        log_line: the line of that file where its own begins, from 1.
        command: the command that runs exactly this cell again.
        run: the id of the run in which it was observed; None if unknown.
        key: digest of what can change its observation (lock, reproduction, model, runtime); empty
            if unknown.
        sides: where results of several machines differ, the cell as each has it; else empty.
    """

    id: str
    stack: str
    failure: str
    variant: str
    model: str
    world_size: int
    backend: str
    fixed: bool
    fix: str | None
    wrong_fix: bool = False
    control: bool = False
    outcome: Outcome
    expected: Outcome | None
    agrees: bool
    reason: str
    symptom: str | None
    masked_by: str | None
    resembles: str | None = None
    signature: Signature | None
    traceback: str = ""
    checks: list[str]
    measured: dict[str, float | str] = Field(default_factory=dict)
    stand_ins: list[str]
    evidence: str
    started_at: str
    seconds: float
    peak_memory: int = 0
    leftovers: int = 0
    hanging: dict[int, RankState] = Field(default_factory=dict)
    launch: Launch
    attempts: list[Attempt]
    log: str | None
    log_line: int | None = None
    command: str
    run: str | None = None
    key: str = ""
    sides: list[CellResult] = Field(default_factory=list)


class NotRunResult(FrozenModel):
    """Cells that the matrix excludes, with the reason."""

    stack: str
    failure: str
    variant: str
    model: str
    reason: str
    run: str | None = None


# Of a file that was written before runs were kept apart: its head tells of one only.
OF_THE_HEAD = "the last of several runs; some of these cells may be from earlier ones"


class Results(FrozenModel):
    """All results; :mod:`trl_compat.results.files` keeps them in a head and a file per stack.

    The head (command, profile, host, harness version) is that of the last run; cells of earlier
    runs are kept, and each cell names its run by ``run``.

    Attributes:
        runs: the runs of the cells, oldest first; None in files written before runs were kept.
        unread: the stacks whose own file could not be read, with a sentence on why; their cells
            are not among ``cells``.
    """

    generated_at: str
    harness_version: str = trl_compat.__version__
    command: str
    profile: str
    host: Host
    stacks: dict[str, StackResult]
    cells: list[CellResult]
    not_run: list[NotRunResult] = Field(default_factory=list)
    summary: dict[str, int]
    runs: list[RunResult] | None = None
    unread: dict[str, str] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="after")
    def _runs_are_there(self) -> Results:
        known = {run.id for run in self.runs or ()}
        shown = [*self.cells, *(side for cell in self.cells for side in cell.sides)]
        named = {cell.run for cell in shown} | {left.run for left in self.not_run}
        named.discard(None)
        if lacking := sorted(str(name) for name in named - known):
            raise ValueError(f"a cell is of run '{lacking[0]}', which is not among the runs")
        return self

    @property
    def all_runs(self) -> list[RunResult]:
        """The runs that cells are of; of a file from before they were kept, what its head says."""
        if self.runs is not None or not self.cells:
            return self.runs or []
        first = min(cell.started_at for cell in self.cells)
        head = RunResult(
            id=f"before-{self.generated_at}",
            started_at=first,
            ended_at=self.generated_at,
            note=OF_THE_HEAD,
            **{n: getattr(self, n) for n in ("command", "profile", "host", "harness_version")},
        )
        return [head]

    def run_of(self, part: CellResult | NotRunResult) -> RunResult | None:
        """The run that a cell is of; None if that is not known."""
        if self.runs is None:
            return self.all_runs[0] if self.cells else None
        return next((run for run in self.runs if run.id == part.run), None)


def found_in(cell: CellResult) -> str | None:
    """The failure that an unfixed cell showed: its own, or the one that came before it."""
    if cell.fixed:
        return None
    if cell.outcome is Outcome.REPRODUCED:
        return whose(cell.symptom) or cell.failure
    return cell.masked_by if cell.outcome is Outcome.MASKED else None


def summary(cells: Iterable[CellResult]) -> dict[str, int]:
    """How often each outcome came, most frequent first."""
    return dict(Counter(str(cell.outcome) for cell in cells).most_common())


def now() -> str:
    """This moment, RFC 3339, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
