"""A run of the matrix: plan, run what is not known yet, say what came of it.

:func:`run` gives its results back; who called it decides what is printed, written and returned.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import psutil
import pytest
from pydantic import BaseModel, ConfigDict
from rich.console import Console

from trl_compat import report, results
from trl_compat.advisories import Catalogue
from trl_compat.cells import rerun, shards
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell, CellPlan, Selection, plan
from trl_compat.cells.rerun import Again
from trl_compat.cells.shards import Shard
from trl_compat.cells.verdict import Verdict
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
from trl_compat.running import merging, placement, resolving_ahead, runs
from trl_compat.running.campaign import Campaign, RunSpec, agrees
from trl_compat.running.display import QUIET, Describe, Display, console_of
from trl_compat.running.engines import Engine
from trl_compat.running.execution.watch import Limits
from trl_compat.running.pytest_plugin import BAD_INPUT
from trl_compat.running.store import CellRecord
from trl_compat.shipped import seconds
from trl_compat.stacks import matrix
from trl_compat.stacks.held import needs


class Options(BaseModel):
    """How to run, as opposed to what (:class:`~trl_compat.cells.plan.Selection`).

    Attributes:
        command: the line that started this run.
        start: the words that start another one, see :mod:`trl_compat.cells.rerun`.
        again: how cells are run again, where it is not by the matrix.
        by_failure: whether the cells of a stack are shared out, failure by failure.
        shard: the part of the cells to run; None runs all.
    """

    model_config = ConfigDict(frozen=True)

    jobs: int
    fresh: bool = False
    limits: Limits = Limits()
    preload: bool = True
    repeat: int = 1
    command: str = "nox -s matrix"
    start: str = Again.start
    again: Again | None = None
    by_failure: bool = False
    shard: Shard | None = None
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

    def with_logs(self, document: results.Results) -> results.Results:
        """A document whose cells name their logs, which are written beside the reports."""
        said = {cell.id: merging.log_of(record) for cell, record in self.finished}
        return logs.keep(self.campaign.project.reports, document, said)

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
    engine: Engine | None = None,
) -> Ran:
    """Runs a selection to its end, or until it is interrupted; writes no results.

    Args:
        where: the project; only its state is written.
        table: the stacks and profiles.
        catalogue: the advisories.
        selection: what to run.
        options: how.
        console: where progress is shown; on the standard output if left out.
        engine: what runs the cells; pytest on this machine if left out.

    Raises:
        BadInput: anything wrong in the files or names that were given.
        HarnessError: pytest itself failed.
    """
    planned = plan(table, catalogue, selection)
    if not planned.cells:
        raise BadInput("nothing selected: no selected failure has such a variant")
    console = console or console_of(sys.stdout)
    if options.shard is not None:
        if options.verbosity > QUIET:
            console.print(shards.sentence(planned, options.shard, seconds.known()), soft_wrap=True)
        planned = shards.part(planned, options.shard, seconds.known())
    models = project.check_models(where, table.models)
    jobs = placement.workers(planned.cells, options.jobs) if engine is None else options.jobs
    this = runs.begin(options.command, selection.profile)
    again = options.again or _again(where, table, selection, options)
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
        by_failure=options.by_failure,
        run=this.id,
    )
    campaign = Campaign(order)
    everything = options.fresh or options.repeat > 1
    todo = planned.cells if everything else campaign.unknown(planned.cells)
    room = ""
    if todo:
        stacks = {cell.stack for cell in todo}
        in_order = [n for n, s in table.stacks.items() if n in stacks and s.in_place is None]
        quiet = options.verbosity == QUIET
        resolving_ahead.show(table.stacks, in_order, console, quiet=quiet)
        if engine is None:  # else each node looks at its own disk
            room = needs.check({name: table.stacks[name] for name in in_order})
        runs.keep(where.state, this)
    display = Display(
        total=len(planned.cells),
        reused=len(planned.cells) - len(todo),
        describe=_describer(campaign, planned.cells),
        verbosity=options.verbosity,
        reports=where.reports,
        again=again,
        not_contained=missing(isolation.available()) if todo and engine is None else (),
        room=room,
        console=console,
    )
    with display:

        def go(part: RunSpec, cells: list[Cell], *, alone: bool = False) -> bool:
            if engine is not None:
                return engine.execute(part, cells, display, alone=alone)
            return execute(part, cells, 1 if alone else jobs, display)

        interrupted = bool(todo) and go(order, todo)
        campaign = Campaign(order, campaign.store)  # the locks of new stacks are there only now
        surprising = [cell for cell in planned.cells if campaign.unconfirmed(cell)]
        if surprising and not interrupted:
            # Alone: nothing else runs that could be to blame for what is seen.
            display.confirming(len(surprising))
            confirmation = order.model_copy(update={"confirm": True})
            interrupted = go(confirmation, surprising, alone=True)
            campaign = Campaign(order, campaign.store)
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
        document = ran.over(results.read_leniently(where.reports / "results.json"))
        document = ran.with_logs(document)
        note = where.state / "reports-made.json"
        report.write_all(where.reports, document, ran.campaign.catalogue, note=note)
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
    more += limit_options(options.limits)
    return Again(options.start, " ".join(more), torchrun=not options.preload)


def limit_options(limits: Limits) -> list[str]:
    """The options that say of limits what is not as usual."""
    more = []
    for option, limit, normal in (
        ("--timeout", limits.seconds, Limits().seconds),
        ("--idle-timeout", limits.idle, Limits().idle),
    ):
        if limit != normal:
            more += [option, f"{limit:g}"]
    return more


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
        with _without_options_of_another_pytest():
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


@contextlib.contextmanager
def _without_options_of_another_pytest() -> Iterator[None]:
    """The block in which the options that the caller's shell gives every pytest do not apply."""
    given = {n: os.environ.pop(n, None) for n in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    try:
        yield
    finally:
        os.environ.update({name: value for name, value in given.items() if value is not None})


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


def exit_code(cells: list[results.CellResult], *, shard: Shard | None = None) -> int:
    """What a run of these cells ends with: whether each is as the advisories predict.

    A shard may have no cell, or none that applies to its stacks.
    """
    if shard is not None and not cells:
        return EXIT_OK
    if any(cell.outcome is Outcome.HARNESS_ERROR for cell in cells):
        return EXIT_HARNESS
    if any(not cell.agrees for cell in cells):
        return EXIT_FINDINGS
    if not any(cell.outcome in (Outcome.PASS, Outcome.REPRODUCED) for cell in cells):
        # Nothing was really run: staying green here is how gates rot.
        unreachable = all(cell.outcome is Outcome.UNAVAILABLE for cell in cells)
        if unreachable:
            return EXIT_USAGE
        return EXIT_OK if shard is not None else EXIT_FINDINGS
    return EXIT_OK
