"""A run of the matrix: plan, run what is not known yet, say what came of it.

:func:`run` gives its results back; who called it decides what is printed, written and returned.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import psutil
import pytest
from pydantic import BaseModel, ConfigDict
from rich.console import Console

from trl_compat import report, results
from trl_compat.advisories import Catalogue
from trl_compat.cells import rerun
from trl_compat.cells.outcomes import Observation, Outcome, Verdict
from trl_compat.cells.plan import Cell, CellPlan, Selection, plan
from trl_compat.cells.rerun import Again
from trl_compat.errors import (
    EXIT_FINDINGS,
    EXIT_HARNESS,
    EXIT_OK,
    EXIT_USAGE,
    BadInput,
    HarnessError,
)
from trl_compat.files import project
from trl_compat.files.project import Project
from trl_compat.machine import isolation
from trl_compat.machine.parts import missing
from trl_compat.report import logs
from trl_compat.running import merging, runs
from trl_compat.running.campaign import Campaign, RunSpec, agrees
from trl_compat.running.display import Describe, Display
from trl_compat.running.execution.watch import Limits
from trl_compat.running.pytest_plugin import BAD_INPUT
from trl_compat.running.store import CellRecord
from trl_compat.stacks import matrix


class Options(BaseModel):
    """How to run, as opposed to what (:class:`~trl_compat.cells.plan.Selection`).

    Attributes:
        command: the line that started this run.
        start: the words that start another one, see :mod:`trl_compat.cells.rerun`.
    """

    model_config = ConfigDict(frozen=True)

    jobs: int
    fresh: bool = False
    limits: Limits = Limits()
    preload: bool = True
    repeat: int = 1
    command: str = "nox -s matrix"
    start: str = Again.start
    verbosity: int = 0


@dataclass(frozen=True)
class Ran:
    """A run that is over, or that was interrupted: what came of it, before anything is written.

    Attributes:
        campaign: with the matrix and the advisories of its beginning.
        planned: its cells, and what the matrix left out of them.
        finished: the cells of which there is a record to report.
        result: the run itself, as it ended.
        again: how its cells are run again.
        interrupted: whether the user interrupted it.
        display: what has shown it, and can show its end.
    """

    campaign: Campaign
    planned: CellPlan
    finished: Sequence[tuple[Cell, CellRecord]]
    result: results.RunResult
    again: Again
    interrupted: bool
    display: Display

    def over(self, previous: results.Results | None) -> results.Results:
        """Its results, over those of earlier runs."""
        return merging.document(
            self.campaign, self.planned, self.finished, previous, self.result, self.again
        )

    def cells(self, document: results.Results) -> list[results.CellResult]:
        """Its own cells among those of a document."""
        ours = {cell.id for cell, _ in self.finished}
        return [cell for cell in document.cells if cell.id in ours]

    def write_logs(self, document: results.Results) -> None:
        """Writes the logs that its cells in a document name, beside the reports."""
        places = {cell.id: cell.log for cell in document.cells}
        for cell, record in self.finished:
            if place := places.get(cell.id):
                logs.write(self.campaign.project.reports, place, merging.log_of(record))

    def show_end(self, document: results.Results) -> None:
        """Prints the table, what to look at, and what to do next."""
        cells = self.cells(document)
        self.display.finish(document, cells, self.campaign.catalogue, self.interrupted)

    def check_complete(self) -> None:
        """Refuses a run that was not interrupted and has lost cells.

        Raises:
            HarnessError: cells have no record.
        """
        if lost := len(self.planned.cells) - len(self.finished):
            raise HarnessError(
                f"{lost} of {len(self.planned.cells)} cells have no record (a worker may have "
                "died); run the same command again; the other cells are kept"
            )


def run(
    where: Project,
    table: matrix.Matrix,
    catalogue: Catalogue,
    selection: Selection,
    options: Options,
    console: Console | None = None,
) -> Ran:
    """Runs a selection to its end, or until it is interrupted; writes no results.

    Args:
        where: the project; only its state is written.
        table: the stacks and profiles.
        catalogue: the advisories.
        selection: what to run.
        options: how.
        console: where progress is shown; on the standard output if left out.

    Raises:
        BadInput: anything wrong in the files or names that were given.
        HarnessError: pytest itself failed.
    """
    planned = plan(table, catalogue, selection)
    if not planned.cells:
        raise BadInput("nothing selected: no selected failure has such a variant")
    models = project.check_models(where, table.models)
    this = runs.begin(options.command, selection.profile)
    again = _again(where, table, selection, options)
    order = RunSpec(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        models=models,
        matrix=table,
        catalogue=catalogue,
        cells=planned.cells,
        limits=options.limits,
        preload=options.preload,
        repeat=options.repeat,
        run=this.id,
    )
    campaign = Campaign(order)
    everything = options.fresh or options.repeat > 1
    todo = [cell for cell in planned.cells if everything or campaign.known(cell) is None]
    if todo:
        runs.keep(where.state, this)
    display = Display(
        total=len(planned.cells),
        reused=len(planned.cells) - len(todo),
        describe=_describer(campaign, planned.cells),
        verbosity=options.verbosity,
        reports=where.reports,
        again=again,
        not_contained=missing(isolation.available()) if todo else (),
        console=console,
    )
    with display:
        interrupted = bool(todo) and execute(order, todo, options.jobs, display)
        campaign = Campaign(order)  # the locks of new stacks are there only now
        surprising = [cell for cell in planned.cells if campaign.unconfirmed(cell)]
        if surprising and not interrupted:
            # Alone: nothing else runs that could be to blame for what is seen.
            display.confirming(len(surprising))
            confirmation = order.model_copy(update={"confirm": True})
            interrupted = execute(confirmation, surprising, 1, display)
            campaign = Campaign(order)
    finished = [
        (cell, record)
        for cell in planned.cells
        if (record := campaign.reportable(cell, this.started_at)) is not None
    ]
    this = this.model_copy(update={"ended_at": results.now()})
    if todo:
        runs.keep(where.state, this)
    return Ran(campaign, planned, finished, this, again, interrupted, display)


def write(ran: Ran) -> results.Results:
    """Writes the results of a run over those in its reports folder, and every report of them.

    Another run may have written meanwhile: what it found is kept.
    """
    where = ran.campaign.project
    with filelock.FileLock(where.state / "reports.lock"):
        document = ran.over(results.read(where.reports / "results.json"))
        ran.write_logs(document)
        report.write_all(where.reports, document, ran.campaign.catalogue)
    return document


def _again(where: Project, table: matrix.Matrix, selection: Selection, options: Options) -> Again:
    """How the cells of this run are run again: what is not as it would be without being named."""
    more = []
    usual = project.at(where.root)
    # A cell that is named in full is found whatever the profile, but there has to be one.
    if Selection().profile not in table.profiles:
        more += ["--profile", selection.profile]
    if where.matrix_file != usual.matrix_file:
        more += ["--matrix", rerun.shown(where.matrix_file)]
    if where.reports != usual.reports:
        more += ["--reports", rerun.shown(where.reports)]
    for option, limit, normal in (
        ("--timeout", options.limits.seconds, Limits().seconds),
        ("--idle-timeout", options.limits.idle, Limits().idle),
    ):
        if limit != normal:
            more += [option, f"{limit:g}"]
    return Again(options.start, " ".join(more), torchrun=not options.preload)


def _describer(campaign: Campaign, cells: list[Cell]) -> Describe:
    by_id = {cell.id: cell for cell in cells}

    def describe(cell_id: str) -> tuple[Cell, Verdict, Observation, bool]:
        cell, record = by_id[cell_id], campaign.store.read(cell_id)
        if record is None:
            raise LookupError(cell_id)
        verdict = campaign.verdict(cell, record)
        return cell, verdict, record.attempts[-1], agrees(cell.expectation, verdict)

    return describe


def execute(order: RunSpec, todo: list[Cell], jobs: int, display: object) -> bool:
    """Runs cells through pytest; True if the user interrupted it.

    Args:
        display: a pytest plugin that is told of each cell.
    """
    _forget_old_orders(order.state)
    with tempfile.TemporaryDirectory(prefix=f"order-{os.getpid()}-", dir=order.state) as folder:
        path = Path(folder) / "order.json"
        path.write_text(
            order.model_copy(update={"cells": todo}).model_dump_json(by_alias=True), "utf-8"
        )
        arguments = [
            str(order.project.reproductions),
            f"--campaign={path}",
            "-c",
            str(_empty_configuration()),
            f"--rootdir={order.project.root}",
            "-p",
            "trl_compat.running.pytest_plugin",
            "-p",
            "no:terminal",
            "-p",
            "no:cacheprovider",
        ]
        if jobs > 1:
            arguments += ["-p", "xdist", "-n", str(jobs), "--dist", "loadgroup"]
            arguments += ["--max-worker-restart", "2"]
        status = pytest.main(arguments, plugins=[display])
        said = path.with_name(BAD_INPUT)
        if said.is_file():
            raise BadInput(said.read_text(encoding="utf-8"))
    match status:
        case pytest.ExitCode.OK | pytest.ExitCode.TESTS_FAILED:
            return False
        case pytest.ExitCode.INTERRUPTED:
            return True
        case _:
            raise HarnessError(f"pytest exited with {status!r}; the results so far are kept")


def _forget_old_orders(state: Path) -> None:
    """Removes what runs left that were killed."""
    state.mkdir(parents=True, exist_ok=True)
    for folder in state.glob("order-*-*"):
        pid = folder.name.split("-")[1]
        if not pid.isdecimal() or not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _empty_configuration() -> Path:
    """A pytest configuration of our own, so that the project's own options do not apply."""
    return Path(__file__).with_name("pytest_cells.ini")


def exit_code(cells: list[results.CellResult]) -> int:
    """What a run of these cells ends with: whether each is as the advisories predict."""
    if any(cell.outcome is Outcome.HARNESS_ERROR for cell in cells):
        return EXIT_HARNESS
    if any(not cell.agrees for cell in cells):
        return EXIT_FINDINGS
    if not any(cell.outcome in (Outcome.PASS, Outcome.REPRODUCED) for cell in cells):
        # Nothing was really run: staying green here is how gates rot.
        unreachable = all(cell.outcome is Outcome.UNAVAILABLE for cell in cells)
        return EXIT_USAGE if unreachable else EXIT_FINDINGS
    return EXIT_OK
