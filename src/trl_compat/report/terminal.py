"""What the user sees while cells run and afterwards: live on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import pytest
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.cells import Cell
from trl_compat.outcomes import Outcome, Verdict
from trl_compat.report import tables

Describe = Callable[[str], tuple[Cell, Verdict, float, bool]]
STYLE = {"✅": "green", "❌": "red", "⚠️": "yellow", "—": "dim"}


class Display:
    """Shows a campaign; also a pytest plugin, fed by the reports of the workers.

    Args:
        total: cells of the selection.
        reused: how many of them are known already.
        describe: from a cell's id to its cell, verdict, seconds, and whether it agrees.
    """

    def __init__(self, *, total: int, reused: int, describe: Describe) -> None:
        # A pipe has no width of its own; CI logs are wide.
        width = None if sys.stdout.isatty() else 132
        self.console = Console(highlight=False, width=width)
        self._total, self._reused, self._describe = total, reused, describe
        self._done = 0
        self._begun = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> Display:
        reused = f" ({self._reused} unchanged since an earlier run)" if self._reused else ""
        self.console.print(f"{self._total} cells{reused}")
        if self.console.is_terminal and not os.environ.get("NO_COLOR"):
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("cells", total=self._total - self._reused)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def confirming(self, count: int) -> None:
        """Says that cells which surprised are now run once more, alone."""
        self.console.print(
            f"{count} cells are not as their advisories say: each runs again alone, by torchrun"
        )
        self._done -= count
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line per cell, when it is over."""
        if report.when != "call" and not (report.when == "setup" and report.failed):
            return
        self._done += 1
        if self._progress is not None:
            self._progress.advance(self._task)
        cell_id = dict(report.user_properties).get("cell")
        if not isinstance(cell_id, str):
            self.console.print(escape(str(report.longrepr)))
            return
        try:
            cell, verdict, seconds, agreed = self._describe(cell_id)
        except LookupError:
            self.console.print(
                f"[red]no record[/] {escape(cell_id)}: {escape(str(report.longrepr))}"
            )
            return
        place = f"[{self._reused + self._done}/{self._total}]"
        mark = verdict.outcome.folded
        line = (
            f"[dim]{escape(place)}[/] {mark} [{STYLE[mark]}]{verdict.outcome}[/]  "
            f"{escape(label(cell))}  [dim]{seconds:.1f} s[/]"
        )
        self.console.print(line)
        if not agreed:
            reason = f": {verdict.reason}" if verdict.reason else ""
            self.console.print(
                f"      [bold]expected {cell.expectation.outcome}[/]{escape(reason)}"
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be collected is the harness's own failure; say it."""
        if report.failed:
            self.console.print(escape(str(report.longrepr)))

    def finish(
        self,
        document: results.Results,
        cells: Sequence[results.CellResult],
        catalogue: Catalogue,
        interrupted: bool,
    ) -> None:
        """The table, what to look at, and what to do next."""
        console = self.console
        console.print()
        console.print(_table(document, cells, catalogue))
        counts = results.summary(cells)
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        console.print(
            f"{len(cells)} of {self._total} cells in {minutes} min {seconds} s "
            f"({self._reused} reused): {said}"
        )
        fixes = [c for c in cells if c.fixed and not c.wrong_fix]
        proven = sum(c.outcome is Outcome.PASS for c in fixes)
        wrong = sum(c.outcome is Outcome.REPRODUCED for c in cells if c.wrong_fix)
        console.print(
            f"fixes proven: {proven} of {len(fixes)} tried; wrong fixes shown wrong: {wrong}"
        )
        if document.not_run:
            console.print(
                f"{len(document.not_run)} combinations left out by the matrix, with reasons"
            )
        repeated = [c for c in cells if len(c.attempts) > 2]
        if repeated:
            runs = sum(len(c.attempts) for c in repeated)
            steady = sum(c.outcome is not Outcome.UNSTABLE for c in repeated)
            console.print(
                f"repeated: {runs} runs of {len(repeated)} cells; {steady} of {len(repeated)} gave "
                "the same outcome every time"
            )
        deviations = [c for c in cells if not c.agrees]
        unreached = sorted({c.stack for c in cells if c.outcome is Outcome.UNAVAILABLE})
        if unreached:
            why = next(c.reason for c in cells if c.outcome is Outcome.UNAVAILABLE)
            console.print(f"not run, out of reach: {', '.join(unreached)} ({escape(why)})")
        by_reason: dict[str, list[results.CellResult]] = {}
        for cell in deviations:
            by_reason.setdefault(cell.reason, []).append(cell)
        for reason, alike in list(by_reason.items())[:10]:
            cell, more = alike[0], len(alike) - 1
            console.print(
                f"[bold red]deviates[/] {escape(cell.id)}: expected {cell.expected}, is "
                f"{cell.outcome}{f' (and {more} more cells)' if more else ''}. {escape(reason)}\n"
                f"         again: {escape(cell.command)}"
            )
        if interrupted:
            console.print(
                "interrupted; finished cells are kept, the same command goes on from here"
            )
        elif deviations:
            console.print(
                f"{len(deviations)} cells are not as the advisories say: read their logs under "
                "reports/evidence, then run them again by the command beside them"
            )
        elif cells and len(unreached) == len({c.stack for c in cells}):
            console.print("nothing was run: see to the network (or a mirror), then run this again")
        elif cells:
            console.print(
                "every cell that ran is as its advisory says; next: read reports/compatibility.md"
            )


def label(cell: Cell) -> str:
    """A cell in one short line."""
    fix = f" + {cell.fix}" if cell.fix else ""
    return f"{cell.stack} · {cell.failure}/{cell.variant} · {cell.model}{fix}"


def _table(
    document: results.Results, cells: Sequence[results.CellResult], catalogue: Catalogue
) -> Table:
    failures = sorted({cell.failure for cell in cells})
    title = "does it work?  (* every failing cell has a fix that was proven)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("stack", no_wrap=True)
    for failure in failures:
        table.add_column(failure, overflow="fold", min_width=9)
    for stack in tables.stacks_of(document, cells):
        row = [tables.summary_of(cells, stack, failure) for failure in failures]
        table.add_row(stack, *(_short(s) if s else "[dim]not run[/]" for s in row))
    return table


def _short(summary: tables.Summary) -> str:
    word = "fails" if summary.outcome is Outcome.REPRODUCED else str(summary.outcome)
    word = "n/a" if summary.outcome is Outcome.NOT_APPLICABLE else word
    return f"[{STYLE[summary.mark]}]{summary.mark} {word}{'*' if summary.fixed else ''}[/]"
