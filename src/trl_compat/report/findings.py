"""Findings: what a command has to say against something, in the shape that reports of it share.

``report``, ``gate`` and ``doctor`` make them; :mod:`trl_compat.report.sarif` writes them for code
scanning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trl_compat.advisories import Catalogue
from trl_compat.results import CellResult, Results

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        rule_id: what kind of thing it is; the id of an advisory where there is one.
        title: of the rule, the same for every finding of it.
        message: what was found here and what to do, in sentences.
        help_uri: where to read about the rule; empty if nowhere.
        location: the file that it is about, relative to the repository, with ``:line`` if known.
    """

    rule_id: str
    title: str
    message: str
    level: Level
    help_uri: str
    location: str


def of_results(document: Results, catalogue: Catalogue) -> list[Finding]:
    """The cells that deviate from their advisory."""
    return [_of_cell(cell, catalogue) for cell in document.cells if not cell.agrees]


def _of_cell(cell: CellResult, catalogue: Catalogue) -> Finding:
    advisory = catalogue.records.get(cell.failure)
    references = advisory.references if advisory else ()
    said = f"{cell.id}: expected {cell.expected}, is {cell.outcome}. {cell.reason}".rstrip()
    return Finding(
        rule_id=cell.failure,
        title=advisory.title if advisory else cell.failure,
        message=f"{said}\nRun it again: {cell.command}",
        level="error" if cell.outcome.ran else "warning",
        help_uri=references[0].url if references else "",
        location=f"advisories/{cell.failure}.yaml",
    )
