"""Results on disk, schema version 2: a head, and beside it a file for each stack.

``results.json`` is the head: the last run, all runs, the versions of the stacks, the summary.  The
cells of a stack and the list of its packages are in ``results/<stack>.json``, which repeats the
stack's versions: it is complete by itself, and where it is newer than the head, it is right.

Each file is written atomically, and only where its bytes change; the stacks come first and the head
comes last.  A stack's file that cannot be read costs no other stack anything.  Version 1, which had
all in one file, is still read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

import trl_compat
from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.files.models import FrozenModel
from trl_compat.files.names import STACK_NAME
from trl_compat.files.writing import write_atomically
from trl_compat.machine.description import Host
from trl_compat.results.models import (
    CellResult,
    NotRunResult,
    Results,
    RunResult,
    StackResult,
    StackVersions,
    summary,
)
from trl_compat.results.scrubbing import scrubbed

SCHEMA_VERSION = 2
LARGEST = 512 * reading.MIB
# Where the file of a stack may be: in a folder beside the head, and nowhere else.
BESIDE = re.compile(r"(?P<folder>\w[\w.+-]*)/(?P<name>[^/]+)\.json")
Model = TypeVar("Model", bound=BaseModel)


class StackEntry(StackVersions):
    """A stack in the head.

    Attributes:
        file: where its cells and packages are, relative to the head.
        summary: how often each outcome came in its cells.
    """

    file: str
    summary: dict[str, int]


class Head(FrozenModel):
    """results.json; cells are in the files of the stacks, all else is as in :class:`Results`."""

    schema_version: Literal[2] = 2
    generated_at: str
    harness_version: str = trl_compat.__version__
    command: str
    profile: str
    host: Host
    runs: list[RunResult] | None = None
    summary: dict[str, int]
    stacks: dict[str, StackEntry]
    not_run: list[NotRunResult] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_are_known(self) -> Head:
        odd = [name for name in self.stacks if not STACK_NAME.fullmatch(name)]
        if odd:
            raise ValueError(f"'{odd[0][:80]}' is not the name of a stack")
        known = {None, *(run.id for run in self.runs or ())}
        if lacking := [left.run for left in self.not_run if left.run not in known]:
            raise ValueError(f"what was not run is of run '{lacking[0]}', which is not among them")
        return self


# What a head and results in memory have alike.
LIKE_HEAD = set(Head.model_fields) - {"schema_version", "stacks", "summary"}


class StackFile(FrozenModel):
    """The results of one stack, complete by themselves.

    Attributes:
        stack: its name, which is the file's.
        resolved: its versions, and every package in its environment.
    """

    schema_version: Literal[2] = 2
    stack: str
    resolved: StackResult
    cells: list[CellResult]

    @model_validator(mode="after")
    def _cells_are_its_own(self) -> StackFile:
        if others := sorted({cell.stack for cell in self.cells} - {self.stack}):
            raise ValueError(f"it has a cell of the stack '{others[0][:80]}'")
        return self


class _Version(BaseModel):
    schema_version: Any = None


class _Version1(Results):
    schema_version: Literal[1] = 1


def version_of(path: Path) -> int | None:
    """The schema version of a results file; None if there is none, or if it is no such file."""
    if not path.exists():
        return None
    try:
        found = _Version.model_validate_json(reading.bytes_of(path, most=LARGEST)).schema_version
    except ValidationError:
        return None
    return found if type(found) is int else None


def read(path: Path) -> Results | None:
    """All results; None if there are none.

    Raises:
        BadInput: the file is no results file of a known schema, or a stack's own is not.
    """
    found = read_leniently(path)
    if found is not None and found.unread:
        raise BadInput("; ".join(found.unread.values()))
    return found


def read_leniently(path: Path) -> Results | None:
    """The results, less those of stacks whose own file cannot be read; ``unread`` has these.

    Raises:
        BadInput: the file is no results file of a known schema, or it alone is missing.
    """
    if not path.exists():
        folder = path.parent / path.stem
        if any(map(_is_ours, folder.glob("*.json"))):
            raise BadInput(
                f"{path}: missing, but {folder} has results of stacks; restore it with git, or "
                "remove that folder as well"
            )
        return None
    advice = "move it away or restore it with git, then run again"
    kept = f"{advice} (observed cells are kept in .trl-compat)"
    data = reading.bytes_of(path, most=LARGEST)
    if _version_in(data, path, kept) == 1:
        old = _parsed(_Version1, data, path, "a results file of schema version 1", kept)
        return Results(**{name: getattr(old, name) for name in Results.model_fields})
    head = _parsed(Head, data, path, f"a results file of schema version {SCHEMA_VERSION}", kept)
    runs = {run.id for run in head.runs or ()}
    stacks: dict[str, StackResult] = {}
    cells: list[CellResult] = []
    unread: dict[str, str] = {}
    for name, entry in head.stacks.items():
        try:
            found = _stack_of(path, name, entry.file)
        except BadInput as error:
            unread[name] = str(error)
            versions = entry.model_dump(include=set(StackVersions.model_fields))
            stacks[name] = StackResult(**versions, packages={})
            continue
        stacks[name] = found.resolved
        # Of a run that the head does not know (yet), nothing is known.
        cells += (_of_known_runs(cell, runs) for cell in found.cells)
    alike = {name: getattr(head, name) for name in LIKE_HEAD}
    return Results(**alike, stacks=stacks, cells=cells, summary=summary(cells), unread=unread)


def _of_known_runs(cell: CellResult, runs: Set[str]) -> CellResult:
    if {cell.run, *(side.run for side in cell.sides)} <= {None, *runs}:
        return cell
    sides = [_of_known_runs(side, runs) for side in cell.sides]
    return cell.model_copy(update={"run": cell.run if cell.run in runs else None, "sides": sides})


def read_stack(folder: Path, name: str) -> StackFile | None:
    """The results of one stack alone, from a reports folder; None if it has none.

    Raises:
        BadInput: its file is not the results of that stack.
    """
    if not STACK_NAME.fullmatch(name):
        raise BadInput(f"'{name[:80]}' is not the name of a stack")
    path = folder / "results.json"
    if not _place(path, name).exists() and not _place(path, name).is_symlink():
        return None
    return _stack_of(path, name, _beside(path, name))


def _beside(head: Path, name: str) -> str:
    """Where the file of a stack is, as its head says it."""
    return f"{head.stem}/{name}.json"


def _place(head: Path, name: str) -> Path:
    return head.parent / _beside(head, name)


def _stack_of(head: Path, name: str, file: str) -> StackFile:
    """The results of a stack from the file that the head names.

    Raises:
        BadInput: it is missing, damaged, somebody else's, or not where it may be.
    """
    advice = (
        f"restore it with git, or remove it and make it again with: nox -s matrix -- --stack {name}"
    )
    where = BESIDE.fullmatch(file)
    if where is None or where["name"] != name:
        raise BadInput(f"{head}: the file of the stack '{name}' may not be '{file[:80]}'; {advice}")
    path = head.parent / file
    if path.is_symlink() or path.parent.is_symlink():
        raise BadInput(f"{path}: a symbolic link is not followed; {advice}")
    if not path.exists():
        raise BadInput(f"{path}: missing; {advice}")
    try:
        data = reading.bytes_of(path, most=LARGEST)
    except BadInput as error:
        raise BadInput(f"{error}; {advice}") from None
    _version_in(data, path, advice)
    found = _parsed(StackFile, data, path, f"the results of the stack '{name}'", advice)
    if found.stack != name:
        raise BadInput(f"{path}: is of another stack ('{found.stack[:80]}'); {advice}")
    return found


def _version_in(data: bytes, path: Path, advice: str) -> object:
    """The schema version that a document states, if it is one of ours.

    Raises:
        BadInput: a newer one than this package knows.
    """
    try:
        stated = _Version.model_validate_json(data).schema_version
    except (RecursionError, ValidationError):
        return None  # said by who parses the whole
    if type(stated) is int and stated > SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema version {stated} is newer than {SCHEMA_VERSION}, the newest that "
            f"trl-compat {trl_compat.__version__} reads; update trl-compat, or {advice}"
        )
    return stated


def _parsed(model: type[Model], data: bytes, path: Path, what: str, advice: str) -> Model:
    """A document of a model.

    Raises:
        BadInput: it is none.
    """
    try:
        return model.model_validate_json(data)
    except (RecursionError, ValidationError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"msg": "too deep"}
        place = ".".join(map(str, first.get("loc", ())))
        why = f"{place}: {first['msg']}" if place else str(first["msg"])
        raise BadInput(f"{path}: not {what} ({why[:200]}); {advice}") from None


def write(path: Path, results: Results) -> None:
    """Writes results, scrubbed: the files of stacks that changed, then the head.

    Raises:
        BadInput: the folder of the stacks' files is a link to elsewhere.
    """
    folder = path.parent / path.stem
    if folder.is_symlink():
        raise BadInput(f"{folder}: is a symbolic link; remove it, results are written there")
    by_stack: dict[str, list[CellResult]] = {name: [] for name in results.stacks}
    for cell in results.cells:
        by_stack[cell.stack].append(cell)
    entries: dict[str, StackEntry] = {}
    for name, resolved in results.stacks.items():
        versions = {field: getattr(resolved, field) for field in StackVersions.model_fields}
        file = _beside(path, name)
        entries[name] = StackEntry(**versions, file=file, summary=summary(by_stack[name]))
    alike = {field: getattr(results, field) for field in LIKE_HEAD}
    head = Head(**alike, stacks=entries, summary=results.summary)
    for name, cells in by_stack.items():
        if name not in results.unread:  # what could not be read is not written over either
            found = StackFile(stack=name, resolved=results.stacks[name], cells=cells)
            _write_changed(_place(path, name), "\n".join(_lines(found)) + "\n")
    text = json.dumps(scrubbed(head.model_dump(mode="json")), indent=1, ensure_ascii=False)
    _write_changed(path, text + "\n")
    for stale in folder.glob("*.json"):
        if stale.stem not in entries and _is_ours(stale):
            stale.unlink(missing_ok=True)


def _lines(found: StackFile) -> Iterator[str]:
    """The file of a stack as text, a line for each cell, so that a change shows as a line."""
    data = scrubbed(found.model_dump(mode="json"))
    cells = data.pop("cells")
    yield "{"
    for name, value in data.items():
        yield f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)},"
    yield '"cells": ['
    for number, cell in enumerate(cells, start=1):
        yield json.dumps(cell, ensure_ascii=False) + ("," if number < len(cells) else "")
    yield "]"
    yield "}"


def _is_ours(path: Path) -> bool:
    """Whether a file is the results of the stack that it is named after."""
    if path.is_symlink() or not path.is_file() or not STACK_NAME.fullmatch(path.stem):
        return False
    start = f'{{\n"schema_version": {SCHEMA_VERSION},\n"stack": {json.dumps(path.stem)},\n'
    with path.open("rb") as file:
        return file.read(len(start)) == start.encode()


def _write_changed(path: Path, text: str) -> None:
    """Writes a file whose bytes change; one that would stay the same is not touched.

    Raises:
        BadInput: a folder is in its place.
    """
    data = text.encode()
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; remove it, results are written there")
    if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
        write_atomically(path, text)
