"""The deviating cells of a report, as findings."""

from __future__ import annotations

from trl_compat.advisories import Catalogue
from trl_compat.report import tables
from trl_compat.report.finding import Finding
from trl_compat.results import CellResult, Results


def of_results(document: Results, catalogue: Catalogue) -> list[Finding]:
    """The cells that deviate from their advisory."""
    return [_of_cell(cell, catalogue) for cell in document.cells if not cell.agrees]


def _of_cell(cell: CellResult, catalogue: Catalogue) -> Finding:
    advisory = catalogue.records.get(cell.failure)
    references = advisory.references if advisory else ()
    said = f"{cell.id}: expected {tables.expected(cell)}, is {cell.outcome}. {cell.reason}".rstrip()
    return Finding(
        rule_id=cell.failure,
        title=advisory.title if advisory else cell.failure,
        message=f"{said}\nRun it again: {cell.command}",
        level="error" if cell.outcome.ran else "warning",
        help_uri=references[0].url if references else "",
        location=f"advisories/{cell.failure}.yaml",
    )
