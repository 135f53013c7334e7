"""The logs of cells in ``reports/evidence``: those that tell something, and no others.

A cell that went as expected is told in full by results.json: what it asserted, and for a masked one
what was raised.  Reports are committed, so such logs would be a thousand files that nobody reads.
What ranks printed stays in the record of the cell on the machine that ran it.
"""

from __future__ import annotations

from pathlib import Path

from trl_compat import results
from trl_compat.cells.outcomes import Outcome
from trl_compat.results import CellResult, Results

FOLDER = "evidence"
QUIET = frozenset({Outcome.PASS, Outcome.NOT_APPLICABLE, Outcome.MASKED})


def tells_something(cell: CellResult) -> bool:
    """Whether a cell failed or deviated, or left processes behind."""
    return cell.outcome not in QUIET or not cell.agrees or cell.leftovers > 0


def place_of(cell: CellResult, text: str) -> str | None:
    """The path of a cell's log below the reports; None for one that tells nothing."""
    return f"{FOLDER}/{cell.id}.log" if text and tells_something(cell) else None


def write(reports: Path, place: str, text: str) -> None:
    """Writes the log of a cell, scrubbed."""
    path = reports / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(results.scrub(text), encoding="utf-8")


def of_before(reports: Path, cell: CellResult) -> str | None:
    """The log of a cell of an earlier run, if it is to stay and is there."""
    there = cell.log is not None and (reports / cell.log).is_file()
    return cell.log if there and tells_something(cell) else None


def remove_others(reports: Path, document: Results) -> None:
    """Removes the logs that no cell of the results names."""
    folder = reports / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    named = {cell.log for cell in document.cells}
    for path in folder.glob("*.log"):
        if f"{FOLDER}/{path.name}" not in named and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
