"""``trl-compat refresh``: new releases, the stacks that they make, and what is new in them."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.cli import extra
from trl_compat.cli.device import choose_device
from trl_compat.cli.matrix import memory_share
from trl_compat.errors import BadInput

if TYPE_CHECKING:
    from trl_compat.running.matrix_run import Options

DAY = click.DateTime(["%Y-%m-%d"])


@click.command(epilog="Example: trl-compat refresh --run --report new-releases.md")
@click.option("--run", "run_", is_flag=True, help="Run the proposed stacks and compare them.")
@click.option("--write", is_flag=True, help="Add the proposed stacks to the matrix file.")
@click.option(
    "--replay",
    nargs=2,
    type=DAY,
    metavar="FROM TO",
    help="Do it for each day of the past on which something was released.",
)
@click.option(
    "--step",
    type=click.IntRange(1, 31),
    default=1,
    show_default=True,
    help="Take so many days of a replay together; run each only where something newly fails.",
)
@click.option(
    "--hold",
    "holds",
    multiple=True,
    metavar="PACKAGE[==V,...]",
    help="Take only these versions; for torch alone, the builds in the cache. Repeatable.",
)
@click.option("--failure", "failures", multiple=True, help="Run only this failure; repeatable.")
@click.option("--model", "models", multiple=True, default=("tiny-qwen2",), show_default=True)
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the Markdown to this file.",
)
@click.option("--matrix", "matrix_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--index", metavar="URL", help="Another package index, with {package} in its place.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option("--jobs", type=click.IntRange(min=1), help="Number of stacks to run in parallel.")
@click.pass_obj
def refresh(
    root: Path,
    run_: bool,
    write: bool,
    replay: tuple[datetime.datetime, datetime.datetime] | None,
    step: int,
    holds: tuple[str, ...],
    failures: tuple[str, ...],
    models: tuple[str, ...],
    report_file: Path | None,
    matrix_file: Path | None,
    index: str | None,
    device: str,
    jobs: int | None,
) -> None:
    """Ask the package index for new releases, propose stacks for them, and say what is new.

    Updates the shipped lists of releases and their requirements.  Proposes for each release that
    the matrix does not know the newest stack with that package moved alone, and one stack with
    everything newest; --write adds them to the matrix, --run runs them.  Prints Markdown.

    --replay runs everything newest on each day of the past, and compares what would have been
    flagged with what the advisories know today.  It needs no index, only its packages.

    Exit code 0: nothing newly fails, or nothing was run; 1: something newly fails or cannot be
    installed; 2: wrong usage or bad input, nothing was written; 70: the harness failed; 130:
    interrupted, the same command goes on.
    """
    from trl_compat.files import project
    from trl_compat.refresh import index as indexes
    from trl_compat.shipped.releases import INDEX

    if replay and (run_ or write):
        raise BadInput("--replay is about the past; leave out --run and --write")
    if index is not None and "{package}" not in index:
        raise BadInput(f"--index {index}: write {{package}} where the name of the package belongs")
    if not replay:
        indexes.lists(root)
    if run_ or replay:
        extra.require("refresh")
    from trl_compat.refresh import run

    where = project.at(root, matrix=matrix_file)
    request = run.Request(
        holds=holds,
        failures=failures,
        models=models,
        device=choose_device(device, 2) if run_ or replay else "cpu",
        index=index or INDEX,
        write=write,
        step=step,
    )
    if replay:
        first, last = (day.date() for day in replay)
        try:
            told = run.replayed(where, first, last, request, _options(root, request.device, jobs))
        except run.Stopped as stopped:
            _say(stopped.text, report_file)
            raise
    else:
        options = _options(root, request.device, jobs) if run_ else None
        told = run.refresh(where, request, options)
    _say(told.text, report_file)
    sys.exit(told.exit_code)


def _say(text: str, path: Path | None) -> None:
    click.echo(text, nl=False)
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from None


def _options(root: Path, device: str, jobs: int | None) -> Options:
    from trl_compat.cells import rerun
    from trl_compat.machine.host import stacks_at_a_time
    from trl_compat.running.execution.watch import Limits
    from trl_compat.running.matrix_run import Options

    jobs = jobs or stacks_at_a_time(device, 2)
    return Options(
        jobs=jobs,
        limits=Limits(memory=memory_share(jobs)),
        command=rerun.this_command(),
        start=rerun.start("matrix", root),
    )
