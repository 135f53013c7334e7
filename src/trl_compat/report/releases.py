"""What each TRL release does about a failure, with releases of one kind folded into ranges.

A range says "first – last" of releases that were *run* one after the other; releases between them
that were not run are not claimed.  Commits stand alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trl_compat.outcomes import Outcome
from trl_compat.report import tables
from trl_compat.results import CellResult, Results

# What a reader asks first comes first.
ORDER = (
    Outcome.REPRODUCED,
    Outcome.PASS,
    Outcome.MASKED,
    *(o for o in tables.WORST_FIRST if o is not Outcome.NOT_APPLICABLE),
    Outcome.NOT_APPLICABLE,
)
WORDS = {
    Outcome.REPRODUCED: "Fails on",
    Outcome.PASS: "Works on",
    Outcome.MASKED: "Not proven, stopped earlier by another failure, on",
    Outcome.NOT_APPLICABLE: "Not there in",
}


@dataclass(frozen=True)
class Standing:
    """The TRL releases with one outcome.

    Attributes:
        ranges: "0.11.4 – 0.13.0", ascending, commits last.
        reasons: what the cells say of it, each once.
    """

    outcome: Outcome
    ranges: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def words(self) -> str:
        """``Fails on``, ``Works on`` or the outcome's word."""
        return WORDS.get(self.outcome, f"{str(self.outcome).capitalize()} on")


def fold(tested: Sequence[str], chosen: Collection[str]) -> tuple[str, ...]:
    """The chosen versions, those that follow one another among the tested ones as one range."""
    runs: list[list[str]] = []
    before_was_chosen = False
    for version in sorted(set(tested), key=tables.version_key):
        is_chosen = version in chosen and not version.startswith("git+")
        if is_chosen and before_was_chosen:
            runs[-1].append(version)
        elif is_chosen:
            runs.append([version])
        # Commits come before all releases and never break a range.
        before_was_chosen = is_chosen
    commits = sorted(tables.version_text(v) for v in set(chosen) if v.startswith("git+"))
    return (*(r[0] if len(r) == 1 else f"{r[0]} – {r[-1]}" for r in runs), *commits)


def standings(document: Results, failure: str) -> tuple[Standing, ...]:
    """What the releases do about a failure; the worst of a release's stacks speaks for it."""
    cells = [cell for cell in document.cells if cell.failure == failure]
    by_release: dict[str, Outcome] = {}
    for stack in tables.stacks_of(document, cells):
        summary = tables.summary_of(cells, stack, failure)
        if summary is None:
            continue
        release = document.stacks[stack].trl
        both = (summary.outcome, by_release.get(release, summary.outcome))
        by_release[release] = min(both, key=tables.WORST_FIRST.index)
    found = []
    for outcome in dict.fromkeys(ORDER):
        releases = [release for release, worst in by_release.items() if worst is outcome]
        if releases:
            here = [cell for cell in cells if document.stacks[cell.stack].trl in releases]
            found.append(
                Standing(outcome, fold(list(by_release), releases), _reasons(here, outcome))
            )
    return tuple(found)


@dataclass(frozen=True)
class VariantRow:
    """What a variant, unfixed or with a fix, came to on the TRL releases where it was run."""

    variant: str
    fix: str | None
    control: bool
    wrong_fix: bool
    found: tuple[tuple[Outcome, tuple[str, ...]], ...]


def by_variant(document: Results, failure: str) -> tuple[VariantRow, ...]:
    """One row per variant and fix, controls first, the releases of each outcome folded."""
    rows: dict[tuple[str, str], list[CellResult]] = {}
    cells = [cell for cell in document.cells if cell.failure == failure]
    for cell in sorted(cells, key=lambda c: (not c.control, c.variant, c.fix or "")):
        rows.setdefault((cell.variant, cell.fix or ""), []).append(cell)
    return tuple(_variant_row(document, alike) for alike in rows.values())


def _variant_row(document: Results, cells: Sequence[CellResult]) -> VariantRow:
    tested = [document.stacks[cell.stack].trl for cell in cells]
    found = []
    for outcome in sorted({cell.outcome for cell in cells}, key=tables.WORST_FIRST.index):
        chosen = {document.stacks[cell.stack].trl for cell in cells if cell.outcome is outcome}
        found.append((outcome, fold(tested, chosen)))
    first = cells[0]
    return VariantRow(first.variant, first.fix, first.control, first.wrong_fix, tuple(found))


def _reasons(cells: Sequence[CellResult], outcome: Outcome) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.reason for c in cells if c.outcome is outcome and c.reason))
