"""``trl-compat advisories new`` and ``finish``: from the files of a failure to what is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.cli import extra
from trl_compat.cli.device import choose_device
from trl_compat.cli.matrix import conduct, memory_share
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat.advisories import Catalogue
    from trl_compat.cells.plan import Selection
    from trl_compat.files.project import Project
    from trl_compat.publishing.adding.observed import Observed
    from trl_compat.results import Results
    from trl_compat.running.matrix_run import Options


@click.command(epilog="Example: trl-compat advisories new dpo-save-hangs --trainer DPO")
@click.argument("failure", metavar="ID")
@click.option("--trainer", default="", help="The trainer in which it occurs.")
@click.option(
    "--violates",
    default="",
    metavar="INVARIANT",
    help="It raises nothing and violates this invariant, whose cells show it.",
)
@click.option("--setting", is_flag=True, help="The fix is another setting, not code.")
@click.option("--masks", is_flag=True, help="It stops the reproductions of other failures.")
@click.pass_obj
def new(root: Path, failure: str, trainer: str, violates: str, setting: bool, masks: bool) -> None:
    """Write the files of a new failure, to be filled in.

    ID is lower-case words with hyphens. There is an advisory, a reproduction, a fix and a module of
    sabotages; without a reproduction and sabotages for --violates, without a fix for --setting, the
    advisory alone for --masks. Each place to fill in says TODO and what belongs there.

    Exit code 0: all files were written; 2: wrong usage or bad input, and nothing was written.
    """
    import datetime

    from trl_compat.files import project
    from trl_compat.publishing.adding import starting, todo

    where = project.at(root)
    shape = starting.Shape(trainer=trainer, violates=violates, setting=setting, masks=masks)
    today = datetime.datetime.now(datetime.UTC).date()
    paths = starting.start(where, failure, shape, today)
    for path in paths:
        click.echo(f"wrote {path.relative_to(where.root).as_posix()}")
    click.echo("to fill in:")
    for one in todo.left(paths):
        click.echo(f"  {one.place(where.root)}: {one.sentence}")
    click.echo(f"then run: trl-compat advisories finish {failure}")


@click.command(epilog="Example: trl-compat advisories finish ppo-zero3-save --stack trl-0.12.2")
@click.argument("failure", metavar="ID")
@click.option("--profile", help="Run what this profile of the matrix has of it.")
@click.option("--stack", "stacks", multiple=True, help="Run only this stack; repeatable.")
@click.option("--model", "models", multiple=True, help="Run only this tiny model; repeatable.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of stacks to run in parallel; default: as many as fit.",
)
@click.option("--fresh", is_flag=True, help="Run all cells again, including unchanged ones.")
@click.pass_obj
def finish(
    root: Path,
    failure: str,
    profile: str | None,
    stacks: tuple[str, ...],
    models: tuple[str, ...],
    device: str,
    jobs: int | None,
    fresh: bool,
) -> None:
    """Run the cells of a record that is filled in, and say what is still missing.

    By default the stacks of matrix.yaml that the record covers are run, and those next to them that
    it does not cover, with controls and fixes. What was raised is written in place of 'observe';
    what no symptom describes is printed as lines for the record. Then the record is compiled and
    linted, and the reports are rendered.

    Exit code 0: all is in order; 1: a cell deviates, or the lint has an error; 2: wrong usage or
    bad input; 70: the harness failed; 130: interrupted.
    """
    extra.require("advisories finish")
    from trl_compat import advisories as records
    from trl_compat.cells import rerun
    from trl_compat.files import project
    from trl_compat.machine.host import stacks_at_a_time
    from trl_compat.publishing import compiled
    from trl_compat.publishing.adding import brackets, finishing
    from trl_compat.running import matrix_run
    from trl_compat.running.execution.watch import Limits
    from trl_compat.stacks import matrix as tables

    if profile is not None and stacks:
        raise BadInput("--profile and --stack: both say which stacks to run; leave one out")
    where = project.at(root)
    compiled.folder_in(where.root)
    finishing.require_filled_in(where, failure)
    table = tables.load(where.matrix_file)
    catalogue = records.load(where.advisories, where.reproductions)
    finishing.require_filled_in_modules(where, catalogue.records[failure])
    chosen = choose_device(device, 2)
    selection = brackets.select(
        table, catalogue, failure, profile=profile, stacks=stacks, models=models, device=chosen
    )
    jobs = jobs or stacks_at_a_time(chosen, 2)
    options = matrix_run.Options(
        jobs=jobs,
        fresh=fresh,
        limits=Limits(memory=memory_share(jobs)),
        command=rerun.this_command(),
        start=rerun.start("matrix", root),
    )
    code, catalogue, document, found = _learn(where, failure, selection, options)
    for one in found:
        for line in one.lines():
            click.echo(terminal.line(line))
    conclusion = finishing.conclude(where, catalogue, document, failure)
    for complaint in conclusion.complaints:
        click.echo(terminal.line(f"{complaint.level}: {failure}: {complaint.text}"))
    if conclusion.contradictions:
        said = f"{conclusion.contradictions} contradictions between results and record"
        click.echo(f"{said}; see: trl-compat advisories check --failure {failure}")
    click.echo(f"compiled and rendered; {conclusion.sentence(failure)}")
    sys.exit(EXIT_OK if code == EXIT_OK and conclusion.in_order else EXIT_FINDINGS)


def _learn(
    where: Project, failure: str, selection: Selection, options: Options
) -> tuple[int, Catalogue, Results, list[Observed]]:
    """Runs the cells, and writes into the record what they are to tell it.

    Returns:
        The exit code of the run, the records as they are now, all results, and what no symptom
        describes.
    """
    from trl_compat import advisories as records
    from trl_compat.publishing.adding import finishing

    written = False
    while True:
        code = conduct(where, selection, options)
        if code not in (EXIT_OK, EXIT_FINDINGS):
            sys.exit(code)  # interrupted, or nothing could be run
        catalogue = records.load(where.advisories, where.reproductions)
        document = _results(where)
        found = _observed(where, catalogue, selection, document, failure)
        lines = [] if written else finishing.fill_in(where, catalogue.records[failure], found)
        if not lines:
            return code, catalogue, document, found
        for line in lines:
            click.echo(terminal.line(f"wrote into advisories/{failure}.yaml: {line}"))
        click.echo("the cells are judged again by this record")
        # What they did is kept; only the verdicts are new.
        written, options = True, options.model_copy(update={"fresh": False, "verbosity": -1})


def _results(where: Project) -> Results:
    from trl_compat import results

    document = results.read(where.reports / "results.json")
    assert document is not None, "the run has written them"
    return document


def _observed(
    where: Project, catalogue: Catalogue, selection: Selection, document: Results, failure: str
) -> list[Observed]:
    from trl_compat.cells.plan import plan
    from trl_compat.publishing.adding import observed
    from trl_compat.stacks import matrix as tables

    table = tables.load(where.matrix_file)
    planned = plan(table, catalogue, selection).cells
    by_id = {cell.id: cell for cell in document.cells}
    return observed.observed(planned, by_id, table, catalogue, failure)
