"""What ranks printed, in ``reports/evidence``: a file per stack, of the cells that tell something.

The log of every cell that deviated, crashed or hung is kept whole, and of cells that went as
predicted the first of each kind, shortened: results.json tells the others in full.  Reports are
committed, so a file per cell would be thousands of files.  What all ranks printed stays in the
records of the machine that ran them.

A file is a list of sections.  A section starts with ``=== `` and the id of its cell at the start
of a line; what was printed is indented, so nothing in it can be taken for such a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.files.writing import write_atomically
from trl_compat.results import CellResult, Results, scrub

FOLDER = "evidence"
LOG = re.compile(rf"{FOLDER}/[\w.+-]+\.log")
LARGEST = 64 * reading.MIB
QUIET = frozenset({Outcome.PASS, Outcome.REPRODUCED, Outcome.MASKED, Outcome.NOT_APPLICABLE})
HEAD = "=== "
INDENT = "  "
PART = re.compile(r"^(?====== \w+ =====$)", re.M)
LONGEST_PART = 2_000  # characters of a rank, in a sample
ABOUT = "What the ranks of cells of {stack} printed; results/{stack}.json says of which."


def tells_something(cell: CellResult) -> bool:
    """Whether a cell deviated, left processes behind, or ended like no other."""
    return cell.outcome not in QUIET or not cell.agrees or cell.leftovers > 0


def place(cell: CellResult) -> str:
    """Where a log is as editors and terminals take it: ``evidence/trl-0.12.2.log:17``."""
    return f"{cell.log}:{cell.log_line}" if cell.log_line else f"{cell.log}"


def link(cell: CellResult) -> str | None:
    """The link to the log of a cell; None without one, or if it leads anywhere else."""
    if not cell.log or not LOG.fullmatch(cell.log):
        return None
    return f"{cell.log}#L{cell.log_line}" if cell.log_line else cell.log


def kept(reports: Path, document: Results) -> dict[str, str]:
    """The logs in a folder of reports by the cell's id, as :func:`keep` keeps them."""
    before = cache(lambda log: _sections(reports, log))
    found = {cell.id: _as_kept(cell, before) for cell in document.cells}
    return {name: text for name, text in found.items() if text}


def _as_kept(cell: CellResult, before: Callable[[str], Mapping[str, str]]) -> str:
    text = before(cell.log).get(cell.id, "") if cell.log else ""
    # A file of its own, from before schema version 2, has it whole.
    return text if cell.log_line or tells_something(cell) else _shortened(text)


def keep(
    reports: Path, document: Results, said: Mapping[str, str], *, as_said: bool = False
) -> Results:
    """Writes the logs to keep; the document whose cells name them.  Removes all others.

    Args:
        reports: the folder of the reports.
        document: its cells name the logs that were kept before.
        said: what the ranks of cells printed, by the cell's id; of others their log stays.
        as_said: the texts were kept before, so that they are neither scrubbed nor shortened.
    """
    before = cache(lambda log: _sections(reports, log))

    def printed(cell: CellResult) -> str:
        if cell.id in said and as_said:
            return said[cell.id]
        if cell.id in said:
            text = scrub(said[cell.id].rstrip())
            return text if tells_something(cell) else _shortened(text).rstrip("\n")
        return _as_kept(cell, before)

    by_stack: dict[str, list[CellResult]] = {}
    for cell in document.cells:
        by_stack.setdefault(cell.stack, []).append(cell)
    places: dict[str, tuple[str, int]] = {}
    files: dict[str, str] = {}
    for stack, cells in by_stack.items():
        place, lines = f"{FOLDER}/{stack}.log", [ABOUT.format(stack=stack)]
        for cell, text in _to_keep(cells, printed):
            lines += ["", f"{HEAD}{cell.id}"]
            places[cell.id] = (place, len(lines))
            lines += [f"{INDENT}{line}" if line else "" for line in text.split("\n")]
        if len(lines) > 1:
            files[place] = "\n".join(lines) + "\n"
    for place, text in files.items():
        path = reports / place
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomically(path, text)
    cells = [_with_log(cell, *places.get(cell.id, (None, None))) for cell in document.cells]
    stay = {f"{FOLDER}/{name}.log" for name in document.unread}
    _remove_others(reports, {*files, *stay})
    return document.model_copy(update={"cells": cells})


def _to_keep(
    cells: list[CellResult], printed: Callable[[CellResult], str]
) -> Iterator[tuple[CellResult, str]]:
    """The cells of a stack whose log is kept, with it."""
    known: set[tuple[object, ...]] = set()
    for cell in cells:
        if tells_something(cell):
            if text := printed(cell):
                yield cell, text
            continue
        place = "" if cell.outcome is Outcome.MASKED else cell.failure
        kind = (place, cell.outcome, cell.symptom, cell.masked_by)
        if cell.outcome is Outcome.NOT_APPLICABLE or kind in known:
            continue
        if text := printed(cell):
            known.add(kind)
            yield cell, text


def _with_log(cell: CellResult, log: str | None, line: int | None) -> CellResult:
    if (cell.log, cell.log_line) == (log, line):
        return cell
    return cell.model_copy(update={"log": log, "log_line": line})


def _shortened(text: str) -> str:
    """The end of what each rank printed."""
    parts = []
    for part in PART.split(text):
        head, _, rest = part.partition("\n")
        cut = rest[-LONGEST_PART:].partition("\n")[2] if len(rest) > LONGEST_PART else None
        parts.append(part if cut is None else f"{head}\n[...]\n{cut}")
    return "".join(parts)


def _sections(reports: Path, log: str) -> dict[str, str]:
    """The logs in a file by the cell's id; the file of a single cell is named after it."""
    path = reports / log
    if not LOG.fullmatch(log) or path.is_symlink():
        return {}
    try:
        text = reading.bytes_of(path, most=LARGEST).decode("utf-8", "replace")
    except BadInput:
        return {}
    if not text.startswith(ABOUT.format(stack=path.stem)):
        return {path.stem: text.rstrip()}  # as they were before schema version 2
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        if line.startswith(HEAD):
            current = found.setdefault(line.removeprefix(HEAD), [])
        else:
            current.append(line.removeprefix(INDENT))
    return {name: "\n".join(lines).rstrip("\n") for name, lines in found.items()}


def _remove_others(reports: Path, named: set[str]) -> None:
    """Removes the logs that no cell of the results names."""
    folder = reports / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.glob("*.log"):
        if f"{FOLDER}/{path.name}" not in named and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
