"""``trl-compat matrix``: plan, run what is not known yet, write results and reports.

The exit code says whether every cell matches its advisory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import filelock
import psutil
import pytest
from pydantic import BaseModel, ConfigDict

from trl_compat import advisories, matrix, merging, project, report, rerun, results, runs
from trl_compat.campaign import Campaign, Order, agrees
from trl_compat.cells import Cell, Selection, plan
from trl_compat.errors import (
    EXIT_FINDINGS,
    EXIT_HARNESS,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    BadInput,
    HarnessError,
)
from trl_compat.execution import isolation
from trl_compat.execution.parts import missing
from trl_compat.execution.watch import Limits
from trl_compat.outcomes import Observation, Outcome, Verdict
from trl_compat.project import Project
from trl_compat.pytest_plugin import BAD_INPUT
from trl_compat.report import terminal
from trl_compat.rerun import Again


class Options(BaseModel):
    """How to run, as opposed to what (:class:`~trl_compat.cells.Selection`).

    Attributes:
        command: the line that started this run.
        start: the words that start another one, see :mod:`trl_compat.rerun`.
    """

    model_config = ConfigDict(frozen=True)

    jobs: int
    fresh: bool = False
    limits: Limits = Limits()
    preload: bool = True
    repeat: int = 1
    command: str = "nox -s matrix"
    start: str = Again.start
    summary: bool = True
    verbosity: int = 0


def run(where: Project, selection: Selection, options: Options) -> int:
    """Runs a selection to its end and gives the exit code.

    Raises:
        BadInput: anything wrong in the files or names that were given.
        HarnessError: pytest itself failed.
    """
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    planned = plan(table, catalogue, selection)
    if not planned.cells:
        raise BadInput("nothing selected: no selected failure has such a variant")
    models = project.check_models(where, table.models)
    results.read(where.reports / "results.json")  # a broken one is said before anything is run
    this = runs.begin(options.command, selection.profile)
    again = _again(where, table, selection, options)
    order = Order(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        models=models,
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
    display = terminal.Display(
        total=len(planned.cells),
        reused=len(planned.cells) - len(todo),
        describe=_describer(campaign, planned.cells),
        verbosity=options.verbosity,
        reports=where.reports,
        again=again,
        not_contained=missing(isolation.available()) if todo else (),
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
    with filelock.FileLock(where.state / "reports.lock"):
        # Another run may have written meanwhile: what it found is kept.
        previous = results.read(where.reports / "results.json")
        document = merging.document(campaign, planned, finished, previous, this, again)
        report.write_all(where.reports, document, campaign.catalogue)
    ours = {cell.id for cell, _ in finished}
    shown = [cell for cell in document.cells if cell.id in ours]
    if options.summary or interrupted:
        display.finish(document, shown, campaign.catalogue, interrupted)
    if interrupted:
        return EXIT_INTERRUPTED
    if lost := len(planned.cells) - len(finished):
        raise HarnessError(
            f"{lost} of {len(planned.cells)} cells have no record (a worker may have died); run "
            "the same command again; the other cells are kept"
        )
    return _exit_code(shown)


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
        ("--limit", options.limits.seconds, Limits().seconds),
        ("--silence", options.limits.silence, Limits().silence),
    ):
        if limit != normal:
            more += [option, f"{limit:g}"]
    return Again(options.start, " ".join(more), torchrun=not options.preload)


def _describer(campaign: Campaign, cells: list[Cell]) -> terminal.Describe:
    by_id = {cell.id: cell for cell in cells}

    def describe(cell_id: str) -> tuple[Cell, Verdict, Observation, bool]:
        cell, record = by_id[cell_id], campaign.store.read(cell_id)
        if record is None:
            raise LookupError(cell_id)
        verdict = campaign.verdict(cell, record)
        return cell, verdict, record.attempts[-1], agrees(cell.expectation, verdict)

    return describe


def execute(order: Order, todo: list[Cell], jobs: int, display: object) -> bool:
    """Runs cells through pytest; True if the user interrupted it.

    Args:
        display: a pytest plugin that is told of each cell.
    """
    _forget_old_orders(order.state)
    with tempfile.TemporaryDirectory(prefix=f"order-{os.getpid()}-", dir=order.state) as folder:
        path = Path(folder) / "order.json"
        path.write_text(order.model_copy(update={"cells": todo}).model_dump_json(), "utf-8")
        arguments = [
            str(order.project.reproductions),
            f"--campaign={path}",
            "-c",
            str(_empty_configuration()),
            f"--rootdir={order.project.root}",
            "-p",
            "trl_compat.pytest_plugin",
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


def _exit_code(cells: list[results.CellResult]) -> int:
    if any(cell.outcome is Outcome.HARNESS_ERROR for cell in cells):
        return EXIT_HARNESS
    if any(not cell.agrees for cell in cells):
        return EXIT_FINDINGS
    if not any(cell.outcome in (Outcome.PASS, Outcome.REPRODUCED) for cell in cells):
        # Nothing was really run: staying green here is how gates rot.
        unreachable = all(cell.outcome is Outcome.UNAVAILABLE for cell in cells)
        return EXIT_USAGE if unreachable else EXIT_FINDINGS
    return EXIT_OK
