"""Which cells of results still belong to something in the catalogue.

A failure, a variant or a fix can be renamed or removed.  Its cells then say nothing that anybody
could look up or run again: a run leaves them out of what it writes, and ``trl-compat report
--check`` names them.  Only names decide: a cell that is not selected, or whose fix is no longer
tried in its stack, stays.
"""

from __future__ import annotations

from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import trials
from trl_compat.results.models import CellResult, NotRunResult, Results


class Belonging:
    """Answers of one catalogue; the names of each subject are gathered once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._subjects = frozenset(catalogue.subjects)
        self._fixes: dict[str, frozenset[str]] = {}

    def lacks(self, part: CellResult | NotRunResult) -> str:
        """What of a cell is gone, as ``variant 'zero3'``; empty if all of it is there."""
        if part.failure not in self._subjects:
            return f"failure '{part.failure}'"
        if part.variant not in self._catalogue.reproduction(part.failure).variants:
            return f"variant '{part.variant}'"
        fix = part.fix if isinstance(part, CellResult) else None
        if fix is not None and fix not in self._fixes_of(part.failure):
            return f"fix '{fix}'"
        return ""

    def _fixes_of(self, subject: str) -> frozenset[str]:
        """Every name under which a fix of the subject can be tried, standalone forms included."""
        if subject not in self._fixes:
            record = self._catalogue[subject]
            tried = trials((*record.fixes, *record.wrong_fixes))
            self._fixes[subject] = frozenset(trial.name for trial in tried)
        return self._fixes[subject]


def without_owner(document: Results, catalogue: Catalogue) -> list[str]:
    """The cells that belong to nothing, in words: a line for each stack and what is gone."""
    belonging = Belonging(catalogue)
    counted: dict[tuple[str, str, str], int] = {}
    for cell in document.cells:
        if lacks := belonging.lacks(cell):
            key = (cell.stack, cell.failure, lacks)
            counted[key] = counted.get(key, 0) + 1
    return [
        f"{stack}: {count} cell{'s' if count > 1 else ''} of {failure}: there is no {lacks}"
        for (stack, failure, lacks), count in counted.items()
    ]
