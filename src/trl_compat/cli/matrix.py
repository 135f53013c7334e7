"""``trl-compat matrix``: run cells."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.cli import extra
from trl_compat.cli.renamed import Renamed
from trl_compat.errors import EXIT_INTERRUPTED, BadInput

if TYPE_CHECKING:
    from trl_compat.cells.plan import Selection
    from trl_compat.files.project import Project
    from trl_compat.running.matrix_run import Options


@click.command(epilog="Example: trl-compat matrix --stack trl-0.12.2 --failure ppo-zero3-save")
@click.option("--profile", default="default", show_default=True, help="Profile of the matrix.")
@click.option("--stack", "stacks", multiple=True, help="Run only this stack; repeatable.")
@click.option("--failure", "failures", multiple=True, help="Run only this failure; repeatable.")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    help="Run only this variant and its control; repeatable.",
)
@click.option("--model", "models", multiple=True, help="Run only this tiny model; repeatable.")
@click.option(
    "--fix", "fixes", multiple=True, help="Run only this fix; 'none' for unfixed; repeatable."
)
@click.option("--world-size", type=int, help="Ranks per cell, 2 to 8.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of stacks to run in parallel; default: as many as fit.",
)
@click.option(
    "--timeout",
    cls=Renamed,
    old="--limit",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="Stop a cell after this many seconds, as a hang.",
)
@click.option(
    "--idle-timeout",
    cls=Renamed,
    old="--silence",
    type=click.FloatRange(min=1),
    default=45.0,
    show_default=True,
    help="Stop a cell that was idle for this many seconds.",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, help="Run each cell this many times."
)
@click.option("--fresh", is_flag=True, help="Run all cells again, including unchanged ones.")
@click.option("--torchrun", is_flag=True, help="Start every cell with plain torchrun.")
@click.option("--matrix", "matrix_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="Also print cell starts and exceptions.")
@click.option("-q", "--quiet", is_flag=True, help="Print only deviations and the conclusion.")
@click.pass_obj
def matrix(
    root: Path,
    profile: str,
    stacks: tuple[str, ...],
    failures: tuple[str, ...],
    variants: tuple[str, ...],
    models: tuple[str, ...],
    fixes: tuple[str, ...],
    world_size: int | None,
    device: str,
    jobs: int | None,
    timeout: float,
    idle_timeout: float,
    repeat: int,
    fresh: bool,
    torchrun: bool,
    matrix_file: Path | None,
    reports: Path | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Run the cells of the matrix, write reports/ and print the table.

    Exit code 0: every cell matches its advisory; 1: a cell deviates; 2: wrong usage or bad input;
    70: the harness failed; 130: interrupted.
    """
    extra.require("matrix")
    from trl_compat.cells import rerun
    from trl_compat.cells.plan import Selection
    from trl_compat.files import project
    from trl_compat.machine.host import stacks_at_a_time
    from trl_compat.running import matrix_run
    from trl_compat.running.execution.watch import Limits

    if world_size is not None and not 2 <= world_size <= 8:
        raise BadInput(f"--world-size {world_size}: a cell has 2 to 8 ranks")
    ranks = world_size or 2
    chosen = choose_device(device, ranks)
    selection = Selection(
        profile=profile,
        stacks=stacks,
        failures=failures,
        variants=variants,
        models=models,
        fixes=fixes,
        world_size=world_size,
        device=chosen,
    )
    jobs = jobs or stacks_at_a_time(chosen, ranks)
    options = matrix_run.Options(
        jobs=jobs,
        fresh=fresh,
        limits=Limits(seconds=timeout, idle=idle_timeout, memory=memory_share(jobs)),
        repeat=repeat,
        preload=not torchrun,
        verbosity=int(verbose) - int(quiet),
        command=rerun.this_command(),
        start=rerun.start("matrix", root),
    )
    where = project.at(root, matrix=matrix_file, reports=reports)
    sys.exit(conduct(where, selection, options))


def conduct(where: Project, selection: Selection, options: Options) -> int:
    """Runs a selection, writes its reports, prints its end, and gives the exit code.

    Raises:
        BadInput: anything wrong in the files or names that were given.
        HarnessError: pytest itself failed, or cells have no record.
    """
    from trl_compat import advisories, results
    from trl_compat.running import matrix_run
    from trl_compat.stacks import matrix as tables

    table = tables.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    results.read(where.reports / "results.json")  # a broken one is said before anything is run
    ran = matrix_run.run(where, table, catalogue, selection, options)
    document = matrix_run.write(ran)
    ran.show_end(document)
    if ran.interrupted:
        return EXIT_INTERRUPTED
    ran.check_complete()
    return matrix_run.exit_code(ran.cells(document))


def memory_share(jobs: int) -> int:
    """Bytes that a cell may use: its share of four fifths of the machine's memory."""
    import psutil

    return int(psutil.virtual_memory().total * 0.8 / jobs)


def choose_device(wanted: str, ranks: int) -> str:
    """``cuda`` if it is requested, or if the device is free and the GPUs suffice, else ``cpu``.

    Raises:
        BadInput: ``cuda`` is requested and a cell has more ranks than there are GPUs.
    """
    from trl_compat.machine.host import visible_gpus

    if wanted == "cpu":
        return "cpu"
    count = len(visible_gpus())
    if wanted == "cuda" and count < ranks:
        raise BadInput(f"--device cuda: {ranks} ranks need {ranks} GPUs, this machine has {count}")
    return "cuda" if count >= ranks else "cpu"
