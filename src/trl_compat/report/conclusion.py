"""The end of a run: the table, the findings by importance, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.cells.outcome import Outcome
from trl_compat.report import counts, tables
from trl_compat.report.release_summary import failing
from trl_compat.text.console import escape

STYLE = {"✅": "green", "❌": "red", "⚠️": "yellow", "—": "dim"}
MOST = 10


def table(document: results.Results, cells: Sequence[results.CellResult]) -> Table:
    """Stacks × failures, the newest stack first."""
    failures = sorted({cell.failure for cell in cells})
    shown = Table(box=box.SIMPLE_HEAD)
    shown.add_column("stack", no_wrap=True)
    for failure in failures:
        shown.add_column(failure, overflow="fold", min_width=9)
    present = {cell.stack for cell in cells}
    summaries = tables.summaries_of(cells)
    for stack in tables.newest_first(document):
        if stack in present:
            row = [summaries.get((stack, failure)) for failure in failures]
            shown.add_row(stack, *(_short(s) if s else "[dim]not run[/]" for s in row))
    return shown


def summary_lines(
    document: results.Results, cells: Sequence[results.CellResult], catalogue: Catalogue
) -> Iterator[str]:
    """What was found, the most important first, as lines of rich markup.

    Deviations come before everything, then what could not be run, then the known failures.
    """
    yield from _deviations(cells)
    repeated = [c for c in cells if len(c.attempts) > 2]
    if repeated:
        runs = sum(len(c.attempts) for c in repeated)
        steady = sum(c.outcome is not Outcome.UNSTABLE for c in repeated)
        yield (
            f"repeated: {runs} runs of {len(repeated)} cells; {steady} of {len(repeated)} gave the "
            "same outcome every time"
        )
    unreached = sorted({c.stack for c in cells if c.outcome is Outcome.UNAVAILABLE})
    if unreached:
        why = next(c.reason for c in cells if c.outcome is Outcome.UNAVAILABLE)
        yield f"[yellow]not run, out of reach[/]: {', '.join(unreached)} ({escape(why)})"
    broken = [c for c in cells if c.outcome is Outcome.REPRODUCED and not c.fixed]
    for failure in sorted({cell.failure for cell in broken}):
        yield _known_failure(document, cells, failure, catalogue)
    wrong = [c for c in cells if c.wrong_fix]
    if wrong:
        found = counts.count(wrong, Outcome.REPRODUCED)
        yield f"wrong fixes: {found.words('shown to be wrong')}"
    unexpected = [c for c in cells if c.expected is None and c.outcome.ran]
    if unexpected:
        stacks = ", ".join(sorted({cell.stack for cell in unexpected}))
        yield (
            f"{len(unexpected)} cells without an expectation (version ranges name releases, and no "
            f"record names the git commit of {escape(stacks)}): check their outcomes"
        )
    if document.not_run:
        yield f"{len(document.not_run)} combinations left out by the matrix, with reasons"


def _deviations(cells: Sequence[results.CellResult]) -> Iterator[str]:
    deviating = [cell for cell in cells if not cell.agrees]
    alike: dict[tuple[int, str, str], list[results.CellResult]] = {}
    for cell in deviating:
        key = (tables.WORST_FIRST.index(cell.outcome), cell.reason, cell.failure)
        alike.setdefault(key, []).append(cell)
    groups = sorted(alike.items())
    for _, group in groups[:MOST]:
        cell, more = group[0], len(group) - 1
        others = f" (and {more} more {'cell' if more == 1 else 'cells'})" if more else ""
        yield (
            f"[bold red]deviates[/] {escape(cell.id)}: expected {tables.expected(cell)}, is "
            f"{cell.outcome}{others}. {escape(cell.reason)}"
        )
        if cell.signature is not None:
            seen = cell.signature
            yield f"         {escape(f'{seen.exception}: {seen.message[:160]} ({seen.where})')}"
        yield f"         again: {escape(cell.command)}"
    if len(groups) > MOST:
        yield f"and {len(groups) - MOST} more kinds of deviation, listed in the reports"


def _known_failure(
    document: results.Results,
    cells: Sequence[results.CellResult],
    failure: str,
    catalogue: Catalogue,
) -> str:
    mine = [cell for cell in cells if cell.failure == failure]
    fixes = [cell for cell in mine if cell.fixed and not cell.wrong_fix]
    if not catalogue[failure].fixes:
        said = "no fix is known"
    elif not fixes:
        said = "its fix was not run in this selection"
    else:
        proven = counts.proven(counts.count(fixes, Outcome.PASS))
        # An invariant has no fix of its own: what violates it has.
        shown = [cell for cell in mine if cell.outcome is Outcome.REPRODUCED]
        found = sorted({name for cell in shown if (name := results.found_in(cell))})
        commands = [f"trl-compat fix {name}" for name in found if catalogue[name].fixes]
        said = f"fix {proven}: {', '.join(commands)}".removesuffix(": ")
    word = "known failure" if failure in catalogue.records else "violated invariant"
    return f"[red]{word}[/] {failure}: TRL {failing(document, mine)}; {said}"


def what_next(
    cells: Sequence[results.CellResult], reports: Path, *, interrupted: bool
) -> Iterator[str]:
    """What to do now, and where the reports are."""
    deviating = sum(not cell.agrees for cell in cells)
    unreached = all(cell.outcome is Outcome.UNAVAILABLE for cell in cells)
    if interrupted:
        yield "interrupted; finished cells are kept, and the same command continues from here"
    elif cells and unreached:
        yield "nothing was run: check the network (or use a mirror), then run this again"
    elif deviating:
        word = "cell deviates from its" if deviating == 1 else "cells deviate from their"
        yield (
            f"{deviating} {word} advisory: read the logs under {_near(reports / 'evidence')}, then "
            "run the cells again with the printed commands"
        )
    elif cells:
        green = any(c.outcome in (Outcome.PASS, Outcome.REPRODUCED) for c in cells)
        rest = "" if green else "; nothing passed or failed as recorded, so this proves nothing"
        yield f"every cell that ran matches its advisory{rest}"
    if cells:
        yield f"reports: {_near(reports / 'compatibility.html')} (to read), results.json (the data)"


def _near(path: Path) -> str:
    """The path as it is typed from the current folder, if it is below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _short(summary: tables.Summary) -> str:
    # "not applicable" does not fit into a column; the table's title says what the dash means.
    word = "" if summary.outcome is Outcome.NOT_APPLICABLE else f" {summary.word}"
    return f"[{STYLE[summary.mark]}]{summary.mark}{word}{'*' if summary.fixed else ''}[/]"
