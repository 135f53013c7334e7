"""The results of a run, merged with the results of earlier runs.

Cells of earlier runs stay as long as the matrix has their stack unchanged, and the catalogue their
failure, variant and fix; each cell names by ``run`` the run in which it was observed, and runs
without cells are removed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from trl_compat import results
from trl_compat.cells import devices
from trl_compat.cells.observation import Launch, left_running
from trl_compat.cells.plan import Cell, CellPlan, NotRun
from trl_compat.cells.rerun import Again
from trl_compat.cells.verdict import Verdict
from trl_compat.packages import PACKAGES
from trl_compat.results import Belonging, CellResult, NotRunResult, Results, RunResult
from trl_compat.running import runs
from trl_compat.running.campaign import Campaign, agrees
from trl_compat.running.store import CellRecord
from trl_compat.stacks import matrix

# How the stacks of `trl-compat check` are called.
AS_IT_IS = "installed-trl-"
# Of a content key, in results: enough to tell two apart.
KEY_LENGTH = 16


def document(
    campaign: Campaign,
    planned: CellPlan,
    finished: Sequence[tuple[Cell, CellRecord]],
    previous: Results | None,
    run: RunResult,
    again: Again,
) -> Results:
    """The results of this run, over those of earlier runs on stacks that are still the same.

    Args:
        campaign: the run's, with the matrix and the advisories of its end.
        planned: the run's cells, and what the matrix left out of them.
        finished: the cells of which there is a record to report.
        previous: what was reported before; None if nothing was.  Of stacks whose results could not
            be read, what it knows stays, unless this run has results of them.
        run: this run, as it ended.
        again: how its cells are run again.
    """
    stacks = {
        name: stack
        for name, stack in (previous.stacks if previous else {}).items()
        if _still_there(campaign, name, stack)
    }
    before = {cell.id: cell for cell in _earlier(campaign, previous, stacks)}
    cells = dict(before)
    made_by = {earlier.id: earlier for earlier in (previous.all_runs if previous else ())}
    made_by[run.id] = run
    for cell, record in finished:
        if record.run and record.run not in made_by:
            made_by |= {r.id: r for r in [runs.read(campaign.project.state, record.run)] if r}
        of = record.run if record.run in made_by else _same_run(record, before.get(cell.id))
        cells[cell.id] = _cell_result(campaign, cell, record, again, of)
        if record.surroundings is not None or cell.stack not in stacks:
            stacks[cell.stack] = _stack_result(campaign, cell.stack, record)
    present = {cell.stack for cell in cells.values()}
    unread = {
        name: why
        for name, why in (previous.unread if previous else {}).items()
        if name in stacks and name not in present
    }
    names = list(dict.fromkeys([*campaign.matrix.stacks, *stacks]))
    order = {name: place for place, name in enumerate(names)}
    ordered = sorted(cells.values(), key=lambda c: (order[c.stack], c.failure, c.variant, c.id))
    not_run = list(_not_run(campaign, planned, previous, run, ordered))
    shown = [*ordered, *(side for cell in ordered for side in cell.sides)]
    named = {cell.run for cell in shown} | {left.run for left in not_run}
    return Results(
        generated_at=results.now(),
        command=run.command,
        profile=run.profile,
        host=run.host,
        harness_version=run.harness_version,
        stacks={name: stacks[name] for name in names if name in stacks},
        cells=ordered,
        not_run=not_run,
        summary=results.summary(ordered),
        runs=sorted((r for r in made_by.values() if r.id in named), key=lambda r: r.started_at),
        unread=unread,
    )


def _still_there(campaign: Campaign, name: str, stack: results.StackResult) -> bool:
    """Whether earlier results of a stack still count.

    The project's own matrix says which stacks there are; a run with another matrix file says
    nothing of stacks that this one does not have.  Environments that were checked as they are are
    in no matrix; their results come from ``trl-compat merge``.
    """
    wanted = campaign.matrix.stacks.get(name)
    if wanted is None:
        if name.startswith(AS_IT_IS):
            return True
        return campaign.project.matrix_file != campaign.project.root / "matrix.yaml"
    return _same(stack, wanted)


def _earlier(
    campaign: Campaign, previous: Results | None, stacks: Container[str]
) -> Iterator[CellResult]:
    """The cells of earlier runs that still count, each with the run that it is of."""
    belonging = Belonging(campaign.catalogue)
    for cell in previous.cells if previous else ():
        left_out = cell.stack in campaign.matrix.stacks and _left_out(campaign.matrix, cell)
        if cell.stack in stacks and not belonging.lacks(cell) and not left_out:
            assert previous is not None
            of = previous.run_of(cell)
            yield cell.model_copy(update={"run": of and of.id})


def _same_run(record: CellRecord, before: CellResult | None) -> str | None:
    """The run of a record that does not say it, from the same observation in earlier results."""
    if before is not None and before.started_at == record.observations[0].started_at:
        return before.run
    return None


def _not_run(
    campaign: Campaign,
    planned: CellPlan,
    previous: Results | None,
    run: RunResult,
    cells: Sequence[CellResult],
) -> Iterator[NotRunResult]:
    """What the matrix leaves out: of this run, and of earlier ones as far as it still does.

    What an earlier run left out for the same reason stays that run's: nothing about it is new.
    """
    said = {
        (_place(old), old.reason): of.id
        for old in (previous.not_run if previous else ())
        if previous and (of := previous.run_of(old))
    }
    mine = [
        NotRunResult(**left.model_dump(), run=said.get((_place(left), left.reason), run.id))
        for left in planned.not_run
    ]
    yield from mine
    told = {_place(left) for left in mine} | {_place(cell) for cell in cells}
    belonging = Belonging(campaign.catalogue)
    for old in previous.not_run if previous else ():
        if belonging.lacks(old):
            continue
        elsewhere = old.stack not in campaign.matrix.stacks
        stays = elsewhere and any(cell.stack == old.stack for cell in cells)
        if _place(old) not in told and (stays or _left_out(campaign.matrix, old)):
            assert previous is not None
            of = previous.run_of(old)
            yield old.model_copy(update={"run": of and of.id})


def _place(part: CellResult | NotRunResult | NotRun) -> tuple[str, str, str, str]:
    return part.stack, part.failure, part.variant, part.model


def _left_out(table: matrix.Matrix, part: CellResult | NotRunResult) -> bool:
    place = part.model_dump(include={"stack", "failure", "variant", "model"})
    return table.excluded(**place) is not None


def _same(old: results.StackResult, stack: matrix.Stack) -> bool:
    """Whether earlier results are about the very versions that the matrix has now."""
    versions = (*PACKAGES, "python")
    same = all(getattr(old, name) == getattr(stack, name) for name in versions)
    return same and old.as_of == stack.as_of.isoformat()


def _stack_result(campaign: Campaign, name: str, record: CellRecord) -> results.StackResult:
    stack = campaign.matrix.stacks[name]
    surroundings = record.surroundings
    return results.StackResult(
        **{p: getattr(stack, p) for p in (*PACKAGES, "python")},
        as_of=stack.as_of.isoformat(),
        lock_sha256=surroundings.lock_sha256 if surroundings else None,
        grid=getattr(stack, "grid", ""),
        packages=surroundings.packages if surroundings else {},
    )


def _cell_result(
    campaign: Campaign, cell: Cell, record: CellRecord, again: Again, run: str | None
) -> CellResult:
    verdict = campaign.verdict(cell, record)
    first = record.observations[0]
    ranks = first.ranks.values()
    leftovers = max(seen.leftovers for seen in record.attempts)
    hanging = next((seen.hanging for seen in record.attempts if seen.hanging), {})
    return CellResult(
        id=cell.id,
        stack=cell.stack,
        failure=cell.failure,
        variant=cell.variant,
        model=cell.model,
        world_size=cell.world_size,
        backend=devices.BACKENDS[cell.device],
        fixed=cell.fix is not None,
        fix=cell.fix,
        wrong_fix=cell.wrong_fix,
        control=cell.is_control,
        outcome=verdict.outcome,
        expected=cell.expectation.outcome,
        agrees=agrees(cell.expectation, verdict),
        reason=verdict.reason or left_running(leftovers),
        symptom=verdict.symptom,
        masked_by=verdict.masked_by,
        resembles=verdict.resembles,
        signature=_signature(verdict),
        traceback=_traceback(verdict),
        checks=sorted({check.name for rank in ranks for check in rank.checks}),
        measured=first.measured,
        stand_ins=sorted({name for rank in ranks for name in rank.stand_ins}),
        evidence=devices.evidence(cell.device, cell.world_size) if first.ranks else "none",
        started_at=first.started_at,
        seconds=first.seconds,
        peak_memory=first.peak_memory,
        leftovers=leftovers,
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
        log=None,
        command=cell.command(again, torchrun=_by_torchrun(record)),
        run=run,
        key=record.key[:KEY_LENGTH],
    )


def log_of(record: CellRecord) -> str:
    """What the ranks of a cell printed, run by run; empty if its first run printed nothing."""
    printed = bool(record.observations[0].output)
    return "\n".join(seen.output for seen in record.attempts) if printed else ""


def _by_torchrun(record: CellRecord) -> bool:
    """Whether ``torchrun`` started the ranks because that was asked for, not for want of better."""
    first = record.observations[0]
    return first.launch is Launch.TORCHRUN and not first.not_preloaded


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
