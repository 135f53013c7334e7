"""``trl-compat matrix``: plan, run what is not known yet, write results and reports.

The exit code says whether every cell is as the advisories predict.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

import filelock
import psutil
import pytest
from pydantic import BaseModel, ConfigDict

from trl_compat import advisories, host, matrix, project, report, results
from trl_compat.campaign import Campaign, Order, agrees
from trl_compat.cells import Cell, Plan, Selection, plan
from trl_compat.errors import (
    EXIT_FINDINGS,
    EXIT_HARNESS,
    EXIT_OK,
    EXIT_USAGE,
    BadInput,
    HarnessError,
)
from trl_compat.execution.watch import Limits
from trl_compat.outcomes import Observation, Outcome, Verdict
from trl_compat.project import Project
from trl_compat.pytest_plugin import BAD_INPUT
from trl_compat.report import terminal
from trl_compat.store import CellRecord


class Options(BaseModel):
    """How to run, as opposed to what (:class:`~trl_compat.cells.Selection`)."""

    model_config = ConfigDict(frozen=True)

    jobs: int
    fresh: bool = False
    limits: Limits = Limits()
    preload: bool = True
    repeat: int = 1
    command: str = "nox -s matrix"
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
        raise BadInput("nothing is selected: no failure of this selection has such a variant")
    models = project.check_models(where, table.models)
    results.read(where.reports / "results.json")  # a broken one is said before anything is run
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
    )
    campaign = Campaign(order)
    again = options.fresh or options.repeat > 1
    todo = [cell for cell in planned.cells if again or campaign.known(cell) is None]
    display = terminal.Display(
        total=len(planned.cells),
        reused=len(planned.cells) - len(todo),
        describe=_describer(campaign, planned.cells),
        verbosity=options.verbosity,
        reports=where.reports,
    )
    begun = results.now()
    # A polite end is one like Ctrl-C: what is finished is kept and reported.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
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
        if (record := campaign.reportable(cell, begun)) is not None
    ]
    with filelock.FileLock(where.state / "reports.lock"):
        # Another run may have written meanwhile: what it found is kept.
        previous = results.read(where.reports / "results.json")
        document = _document(campaign, planned, finished, previous, selection, options)
        report.write_all(where.reports, document, campaign.catalogue)
    ours = {cell.id for cell, _ in finished}
    shown = [cell for cell in document.cells if cell.id in ours]
    if options.summary or interrupted:
        display.finish(document, shown, campaign.catalogue, interrupted)
    if interrupted:
        return EXIT_FINDINGS
    if lost := len(planned.cells) - len(finished):
        raise HarnessError(
            f"{lost} of {len(planned.cells)} cells have no record (a worker died?); run the same "
            "command again, the others are kept"
        )
    return _exit_code(shown)


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
            raise HarnessError(f"pytest ended with {status!r}; the results so far are kept")


def _forget_old_orders(state: Path) -> None:
    """Removes what runs left that were killed."""
    state.mkdir(parents=True, exist_ok=True)
    for folder in state.glob("order-*-*"):
        if not psutil.pid_exists(int(folder.name.split("-")[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _empty_configuration() -> Path:
    """A pytest configuration of our own, so that the project's own options do not apply."""
    return Path(__file__).with_name("pytest_cells.ini")


def _document(
    campaign: Campaign,
    planned: Plan,
    finished: Iterable[tuple[Cell, CellRecord]],
    previous: results.Results | None,
    selection: Selection,
    options: Options,
) -> results.Results:
    """The results of this run, over those of earlier runs on stacks that are still the same."""
    stacks = {
        name: stack
        for name, stack in (previous.stacks if previous else {}).items()
        if name in campaign.matrix.stacks and _same(stack, campaign.matrix.stacks[name])
    }
    cells = {
        old.id: old
        for old in (previous.cells if previous else ())
        if old.stack in stacks
        and old.failure in campaign.catalogue.failures
        and not _left_out(campaign.matrix, old)
    }
    for cell, record in finished:
        cells[cell.id] = _cell_result(campaign, cell, record)
        if record.surroundings is not None or cell.stack not in stacks:
            stacks[cell.stack] = _stack_result(campaign, cell.stack, record)
    order = {name: place for place, name in enumerate(campaign.matrix.stacks)}
    ordered = sorted(cells.values(), key=lambda c: (order[c.stack], c.failure, c.variant, c.id))
    return results.Results(
        generated_at=results.now(),
        command=options.command,
        profile=selection.profile,
        host=host.describe(),
        stacks={name: stacks[name] for name in order if name in stacks},
        cells=ordered,
        not_run=[results.NotRunResult(**n.model_dump()) for n in planned.not_run],
        summary=results.summary(ordered),
    )


def _left_out(table: matrix.Matrix, cell: results.CellResult) -> bool:
    place = cell.model_dump(include={"stack", "failure", "variant", "model"})
    return any(exclude.covers(**place) for exclude in table.excludes)


def _same(old: results.StackResult, stack: matrix.Stack) -> bool:
    """Whether earlier results are about the very versions that the matrix has now."""
    versions = (*matrix.PACKAGES, "python")
    same = all(getattr(old, name) == getattr(stack, name) for name in versions)
    return same and old.as_of == stack.as_of.isoformat()


def _stack_result(campaign: Campaign, name: str, record: CellRecord) -> results.StackResult:
    stack = campaign.matrix.stacks[name]
    surroundings = record.surroundings
    return results.StackResult(
        **{p: getattr(stack, p) for p in (*matrix.PACKAGES, "python")},
        as_of=stack.as_of.isoformat(),
        lock_sha256=surroundings.lock_sha256 if surroundings else None,
        packages=surroundings.packages if surroundings else {},
    )


def _cell_result(campaign: Campaign, cell: Cell, record: CellRecord) -> results.CellResult:
    verdict = campaign.verdict(cell, record)
    first = record.observations[0]
    ranks = first.ranks.values()
    hanging = next((seen.hanging for seen in record.attempts if seen.hanging), {})
    backend = "gloo" if cell.device == "cpu" else "nccl"
    log = f"evidence/{cell.id}.log" if first.output else None
    if log is not None:
        # What went as it should is of little interest; the end of it is enough.
        limit = 2_000 if verdict.outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE) else None
        text = "\n".join(o.output if limit is None else o.output[-limit:] for o in record.attempts)
        report.write_log(campaign.project.reports / log, text)
    return results.CellResult(
        id=cell.id,
        stack=cell.stack,
        failure=cell.failure,
        variant=cell.variant,
        model=cell.model,
        world_size=cell.world_size,
        backend=backend,
        fixed=cell.fix is not None,
        fix=cell.fix,
        wrong_fix=cell.wrong_fix,
        control=cell.is_control,
        outcome=verdict.outcome,
        expected=cell.expectation.outcome,
        agrees=agrees(cell.expectation, verdict),
        reason=verdict.reason,
        symptom=verdict.symptom,
        masked_by=verdict.masked_by,
        resembles=verdict.resembles,
        signature=_signature(verdict),
        traceback=_traceback(verdict),
        checks=sorted({check["name"] for rank in ranks for check in rank["checks"]}),
        stand_ins=sorted({name for rank in ranks for name in rank["stand_ins"]}),
        evidence=f"{cell.device}-{backend} × {cell.world_size}" if first.ranks else "none",
        started_at=first.started_at,
        seconds=first.seconds,
        peak_memory=first.peak_memory,
        hanging={
            rank: state.model_copy(update={"stack": state.stack[-6_000:]})
            for rank, state in hanging.items()
        },
        launch=first.launch,
        attempts=[
            results.Attempt(
                launch=seen.launch,
                outcome=judged.outcome,
                seconds=seen.seconds,
                signature=_signature(judged),
            )
            for seen, judged in zip(record.attempts, campaign.judge_each(cell, record), strict=True)
        ],
        log=log,
        command=cell.command(),
    )


def _signature(verdict: Verdict) -> results.Signature | None:
    if verdict.error is None:
        return None
    message = " ".join(verdict.error["message"].split())
    return results.Signature(
        exception=verdict.error["exception"],
        message=message[:500],
        where=verdict.error["where"],
    )


def _traceback(verdict: Verdict, limit: int = 12) -> str:
    """The last lines of what the rank raised; all of it is in the log."""
    text = str((verdict.error or {}).get("traceback", ""))
    lines = text.rstrip().splitlines()
    if len(lines) > limit:
        lines = ["...", *lines[-limit:]]
    return "\n".join(line[:300] for line in lines)


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
