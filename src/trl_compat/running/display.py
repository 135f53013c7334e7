"""What the user sees while cells run: a live display on a terminal, plain lines elsewhere.

One line per finished cell, and three more for a cell that deviates: expected and actual outcome,
the exception and its location, and the command that runs it again.  The log stays in the reports.
:mod:`trl_compat.report.conclusion` prints the end of the run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import pytest
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.cells.observation import Observation, left_running
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cells.rerun import PLAINLY, Again
from trl_compat.cells.verdict import Verdict
from trl_compat.report import conclusion
from trl_compat.text import streams
from trl_compat.text.console import escape

Describe = Callable[[str], tuple[Cell, Verdict, Observation, bool]]
QUIET, NORMAL, VERBOSE = -1, 0, 1


class Display:
    """Shows a campaign; also a pytest plugin, fed by the reports of the workers.

    Args:
        total: cells of the selection.
        reused: how many of them are known already.
        describe: from a cell's id to its cell, verdict, latest run, and whether it agrees.
        verbosity: ``QUIET`` shows deviations only, ``VERBOSE`` also beginnings and what was raised.
        reports: where the reports are written.
        again: how a cell of this run is run again.
        room: what is downloaded and held, in a sentence; empty if nothing is.
        console: where to print; the standard output by default.
    """

    def __init__(
        self,
        *,
        total: int,
        reused: int,
        describe: Describe,
        verbosity: int = NORMAL,
        reports: Path = Path("reports"),
        again: Again = PLAINLY,
        not_contained: Sequence[str] = (),
        room: str = "",
        console: Console | None = None,
    ) -> None:
        self.console = console or console_of(sys.stdout)
        self._total, self._reused, self._describe = total, reused, describe
        self._verbosity, self._reports, self._again = verbosity, reports, again
        self._not_contained, self._room = not_contained, room
        self._done = 0
        self._begun = time.monotonic()
        self._running: dict[str, float] = {}
        self._ready: set[str] = set()
        self._announced: set[str] = set()
        self._not_preloaded: set[str] = set()
        self._live: Live | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self) -> Display:
        if self._verbosity > QUIET:
            reused = f" ({self._reused} unchanged since an earlier run)" if self._reused else ""
            self.console.print(f"{self._total} cells{reused}")
            if self._room:
                self.console.print(self._room, soft_wrap=True)
            for sentence in self._not_contained:
                self.console.print(f"not isolated on this machine: {sentence}", soft_wrap=True)
        if self.console.is_terminal and not os.environ.get("NO_COLOR"):
            self._task = self._progress.add_task("cells", total=self._total - self._reused)
            self._live = Live(
                console=self.console,
                get_renderable=self._picture,
                transient=True,
                refresh_per_second=2,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _picture(self) -> RenderableType:
        """The bar, and a line for each cell that runs now."""
        now = time.monotonic()
        lines = []
        for name, since in self._running.items():
            stack, _, rest = name.partition("__")
            # The first cell of a stack waits until its environment is there.
            what = rest.replace("__", " · ") if stack in self._ready else "preparing the stack"
            line = f"  {now - since:3.0f} s  {stack}  {what}"
            lines.append(Text(line, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(self._progress, *lines)

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        """A cell begins, as pytest says it."""
        # A node is ``path::cell@stack``; stacks have no '@'.
        name = nodeid.rpartition("::")[2].rpartition("@")[0]
        if name:
            self.begins(name)

    def begins(self, name: str) -> None:
        """A cell begins; with the first of a stack its environment is made ready."""
        self._running[name] = time.monotonic()
        stack = name.partition("__")[0]
        if self._live is not None:
            self._live.refresh()
        elif stack not in self._announced and self._verbosity > QUIET:
            self.console.print(f"[dim]stack {escape(stack)}: preparing its environment[/]")
        if self._live is None and self._verbosity >= VERBOSE:
            self.console.print(f"[dim]starting {escape(name)}[/]", soft_wrap=True)
        self._announced.add(stack)

    def confirming(self, count: int) -> None:
        """Says that cells which surprised are now run once more, alone."""
        self.console.print(
            f"{count} cells deviate from their advisory: each runs again alone, with torchrun"
        )
        self._done -= count
        if self._live is not None:
            self._progress.update(self._task, completed=self._done)

    def say(self, sentence: str) -> None:
        """Prints a sentence about the run."""
        self.console.print(escape(sentence), soft_wrap=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A cell is over, as pytest says it."""
        if report.when != "call" and not (report.when == "setup" and report.failed):
            return
        cell_id = dict(report.user_properties).get("cell")
        if isinstance(cell_id, str):
            self.ends(cell_id, report.longrepr)
            return
        self._count_one()
        self._print_end_of(report.longrepr)

    def _count_one(self) -> None:
        self._done += 1
        if self._live is not None:
            self._progress.advance(self._task)

    def ends(self, cell_id: str, said: object = "") -> None:
        """One line per cell, when it is over.

        Args:
            said: what the engine says of it; printed if there is no record.
        """
        self._count_one()
        self._running.pop(cell_id, None)
        self._ready.add(cell_id.partition("__")[0])
        try:
            cell, verdict, seen, agreed = self._describe(cell_id)
        except LookupError:
            self.console.print(f"[red]no record[/] {escape(cell_id)}")
            self._print_end_of(said)
            return
        self._print_if_not_preloaded(cell.stack, seen.not_preloaded)
        if self._verbosity > QUIET or not agreed:
            self._print_cell(cell, verdict, seen.seconds)
        if not agreed:
            for line in what_matters(cell, verdict, self._again):
                self.console.print(f"      {escape(line)}", soft_wrap=True)
        elif seen.leftovers and self._verbosity > QUIET:
            self.console.print(f"      {left_running(seen.leftovers)}", soft_wrap=True)
        elif self._verbosity >= VERBOSE and verdict.error is not None:
            self.console.print(f"      [dim]{escape(raised(verdict))}[/]", soft_wrap=True)

    def _print_if_not_preloaded(self, stack: str, reason: str) -> None:
        if reason and stack not in self._not_preloaded and self._verbosity > QUIET:
            self._not_preloaded.add(stack)
            self.console.print(
                f"stack {escape(stack)}: its cells are started with torchrun, which is slower: "
                f"{escape(reason)}",
                soft_wrap=True,
            )

    def _print_cell(self, cell: Cell, verdict: Verdict, seconds: float) -> None:
        place = f"[{self._reused + self._done}/{self._total}]"
        mark = verdict.outcome.mark
        self.console.print(
            f"[dim]{escape(place)}[/] {mark} [{conclusion.STYLE[mark]}]{verdict.outcome}[/]  "
            f"{escape(label(cell))}  [dim]{seconds:.1f} s[/]",
            soft_wrap=True,
        )

    def _print_end_of(self, text: object, lines: int = 3) -> None:
        for line in str(text).rstrip().splitlines()[-lines:]:
            self.console.print(f"      {escape(line)}")

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
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        counts = results.summary(cells)
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        if self._verbosity > QUIET and cells:
            self.console.print()
            self.console.print(
                "does it work?  (*: each failing cell has a proven fix; —: not applicable)"
            )
            self.console.print(conclusion.table(document, cells))
        self.console.print(
            f"{len(cells)} of {self._total} cells in {minutes} min {seconds} s "
            f"({self._reused} reused): {said or 'nothing was run'}"
        )
        for line in conclusion.summary_lines(document, cells, catalogue):
            self.console.print(line, soft_wrap=True)
        for line in conclusion.what_next(cells, self._reports, interrupted=interrupted):
            self.console.print(line, soft_wrap=True)


def console_of(stream: TextIO) -> Console:
    """The console of the standard output, or of the standard error."""
    if not stream.isatty():
        # A pipe has no width; CI logs are wide.
        return Console(highlight=False, width=132, file=stream)
    # A descriptor of our own: pytest takes the other one while a cell runs, and the live display
    # goes on then.
    return Console(highlight=False, file=streams.outliving(os.dup(stream.fileno()), lines=True))


def label(cell: Cell) -> str:
    """A cell in one short line."""
    fix = f" + {cell.fix}" if cell.fix else ""
    return f"{cell.stack} · {cell.failure}/{cell.variant} · {cell.model}{fix}"


def raised(verdict: Verdict) -> str:
    """What was raised and where, in one line."""
    if verdict.error is None:
        return "nothing was raised"
    message = " ".join(str(verdict.error["message"]).split())
    short = message if len(message) <= 160 else f"{message[:159]}…"
    return f"{verdict.error['exception']}: {short} ({verdict.error['where']})"


def what_matters(cell: Cell, verdict: Verdict, again: Again) -> list[str]:
    """The three lines of a cell that deviates."""
    predicted = cell.expectation
    more = predicted.symptom or predicted.masked_by
    wanted = predicted.outcome or "nothing"
    expected = f"expected {wanted}{f' ({more})' if more else ''}"
    seen = verdict.symptom or verdict.masked_by
    reason = f": {verdict.reason}" if verdict.reason else f" ({seen})" if seen else ""
    if verdict.outcome is Outcome.OTHER_FAILURE:
        reason = ", which no advisory records"  # the next line says what it is
    return [
        f"{expected}, is {verdict.outcome}{reason}",
        raised(verdict),
        f"again: {cell.command(again)}",
    ]
