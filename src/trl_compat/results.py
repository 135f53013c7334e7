"""results.json: what was run, and the outcomes, schema version 1; every report is made from it.

The models here are the schema; ``schema/results-1.json`` in the package is their JSON Schema.
"""

from __future__ import annotations

import datetime
import json
import re
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

import trl_compat
from trl_compat.cells.hangs import RankState
from trl_compat.cells.outcomes import Launch, Outcome
from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.files.models import FrozenModel
from trl_compat.files.writing import write_atomically
from trl_compat.machine.description import Host

SCHEMA_VERSION = 1
LARGEST = 512 * reading.MIB


class StackResult(FrozenModel):
    """The exact versions of a stack; ``packages`` is everything in its environment."""

    python: str
    torch: str
    trl: str
    transformers: str
    deepspeed: str
    accelerate: str
    peft: str
    as_of: str
    lock_sha256: str | None
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
        evidence: ``cpu-gloo × n`` or ``cuda-nccl × n`` if ranks ran, else ``none``.
        log: path under reports/; None if the cell went as expected and is not a failure.
        command: the command that runs exactly this cell again.
        run: the id of the run in which it was observed; None if unknown.
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
    command: str
    run: str | None = None


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
    """The whole file.

    The head (command, profile, host, harness version) is that of the last run; cells of earlier
    runs are kept, and each cell names its run by ``run``.

    Attributes:
        runs: the runs of the cells, oldest first; None in files written before runs were kept.
    """

    schema_version: Literal[1] = 1
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

    @model_validator(mode="after")
    def _runs_are_there(self) -> Results:
        known = {run.id for run in self.runs or ()}
        named = {cell.run for cell in self.cells} | {left.run for left in self.not_run}
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
        return cell.failure
    return cell.masked_by if cell.outcome is Outcome.MASKED else None


def read(path: Path) -> Results | None:
    """The results of a file; None if there is none.

    Raises:
        BadInput: the file is no results file of this schema.
    """
    if not path.exists():
        return None
    data = reading.bytes_of(path, most=LARGEST)
    try:
        return Results.model_validate_json(data)
    except (RecursionError, ValidationError) as error:
        first = str(error).splitlines()[0][:200]
        raise BadInput(
            f"{path}: not a results file of schema version {SCHEMA_VERSION} ({first}); move it "
            "away or restore it with git, then run again (observed cells are kept in .trl-compat)"
        ) from None


def write(path: Path, results: Results) -> None:
    """Writes results atomically, scrubbed."""
    data = _scrubbed(results.model_dump(mode="json"))
    write_atomically(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _scrubbed(data: Any, key: str = "") -> Any:
    match data:
        case dict():
            return {name: _scrubbed(value, name) for name, value in data.items()}
        case list():
            return [_scrubbed(value, key) for value in data]
        case str():
            return scrub_command(data) if key == "command" else scrub(data)
        case _:
            return data


def summary(cells: Iterable[CellResult]) -> dict[str, int]:
    """How often each outcome came, most frequent first."""
    return dict(Counter(str(cell.outcome) for cell in cells).most_common())


def now() -> str:
    """This moment, RFC 3339, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


HOME = r"/(?:home|Users)/[^/\s\"':]+|/root(?=/)"
TOKEN = (re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|AKIA)[A-Za-z0-9_-]{8,}"), "<token>")
# Paths are cut down to where they mean the same on every machine.
ANCHORS = r"site-packages|tests/reproductions|tiny_models|lib/python3\.\d+|environments"
SCRUBBED = (
    (re.compile(rf"(?:/[\w.@+~-]+)+/(?=(?:{ANCHORS})/)"), ""),
    (re.compile(r"/[^\s\"':,)]*?/trl-compat-\w+"), "<cell>"),
    (re.compile(HOME), "~"),
    (re.compile(r"/(?:private/)?(?:tmp|var/tmp|var/folders)/[^\s\"':,)]*"), "<tmp>"),
    TOKEN,
)
IN_COMMANDS = ((re.compile(rf"(?<![\w.~-])(?:{HOME})"), "~"), TOKEN)


def scrub(text: str) -> str:
    """The text without home folders, temporary folders, host name and anything like a token."""
    return _without(text, SCRUBBED)


def scrub_command(text: str) -> str:
    """A line to paste without what is private; its other paths stay, or it would not run."""
    return _without(text, IN_COMMANDS)


def _without(text: str, patterns: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, substitute in patterns:
        text = pattern.sub(substitute, text)
    name = socket.gethostname()
    return text.replace(name, "<host>") if len(name) > 4 else text


def json_schema() -> dict[str, Any]:
    """The JSON Schema of results.json."""
    return Results.model_json_schema(mode="serialization")
