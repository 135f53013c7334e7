"""``trl-compat matrix``: run cells."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.cli import extra
from trl_compat.cli.device import choose_device
from trl_compat.cli.renamed import Renamed
from trl_compat.errors import EXIT_INTERRUPTED, BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat.cells.plan import Selection
    from trl_compat.cells.shards import Shard
    from trl_compat.files.project import Project
    from trl_compat.running.engines.ray_engine import RayEngine
    from trl_compat.running.matrix_run import Options


@click.command(epilog="Example: trl-compat matrix --stack trl-0.12.2 --failure ppo-zero3-save")
@click.option("--profile", default="default", show_default=True, help="Profile of the matrix.")
@click.option("--stack", "stacks", multiple=True, help="Run only this stack; repeatable.")
@click.option("--grid", "grids", multiple=True, help="Run only this grid's stacks; repeatable.")
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
@click.option("--share-gpu", is_flag=True, help="Run all ranks of a cell on one GPU, over gloo.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of stacks to run in parallel; default: as many as fit.",
)
@click.option(
    "--engine",
    type=click.Choice(["pytest", "ray"]),
    default="pytest",
    show_default=True,
    help="What runs the cells: workers on this machine, or a Ray cluster (extra 'ray').",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="With --engine ray: the cluster's address, or 'auto'; default: start Ray for this run.",
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
@click.option(
    "--shard",
    "shard_text",
    metavar="K/N",
    help="Run only this part of the cells, for example 1/4; put the parts together with merge.",
)
@click.option(
    "--list-stacks",
    is_flag=True,
    help="Print the selected stacks with their versions; run nothing.",
)
@click.option("--matrix", "matrix_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path))
@click.option("-v", "--verbose", is_flag=True, help="Also print cell starts and exceptions.")
@click.option("-q", "--quiet", is_flag=True, help="Print only deviations and the conclusion.")
@click.pass_obj
def matrix(
    root: Path,
    profile: str,
    stacks: tuple[str, ...],
    grids: tuple[str, ...],
    failures: tuple[str, ...],
    variants: tuple[str, ...],
    models: tuple[str, ...],
    fixes: tuple[str, ...],
    world_size: int | None,
    device: str,
    share_gpu: bool,
    jobs: int | None,
    engine: str,
    address: str | None,
    timeout: float,
    idle_timeout: float,
    repeat: int,
    fresh: bool,
    torchrun: bool,
    shard_text: str | None,
    list_stacks: bool,
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
    from trl_compat.cells.shards import Shard
    from trl_compat.files import project
    from trl_compat.machine.host import stacks_at_a_time
    from trl_compat.running import matrix_run
    from trl_compat.running.execution.watch import Limits

    if world_size is not None and not 2 <= world_size <= 8:
        raise BadInput(f"--world-size {world_size}: a cell has 2 to 8 ranks")
    shard = Shard.parse(shard_text) if shard_text is not None else None
    ranks = world_size or 2
    if share_gpu and engine == "ray":
        raise BadInput("--share-gpu is for the GPUs of this machine; leave out --engine ray")
    with open_engine(engine, address, jobs) as cluster:
        of_a_node = cluster.most_gpus if cluster else None
        chosen = choose_device(device, ranks, share=share_gpu, of_a_node=of_a_node)
        selection = Selection(
            profile=profile,
            stacks=stacks,
            grids=grids,
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
            shard=shard,
            verbosity=int(verbose) - int(quiet),
            command=rerun.this_command(),
            start=rerun.start("matrix", root),
        )
        where = project.at(root, matrix=matrix_file, reports=reports)
        if list_stacks:
            print_stacks(where, selection, shard)
            return
        sys.exit(conduct(where, selection, options, cluster))


def open_engine(
    name: str, address: str | None, jobs: int | None
) -> contextlib.AbstractContextManager[RayEngine | None]:
    """The engine of that name, to be closed at the end; None for pytest on this machine.

    Raises:
        BadInput: an address without Ray, Ray is not installed, or nothing answers at the address.
    """
    if name != "ray":
        if address is not None:
            raise BadInput("--address is the address of a Ray cluster; add --engine ray")
        return contextlib.nullcontext()
    from trl_compat.running.engines.ray_engine import RayEngine

    return RayEngine(address or "", jobs)


def print_stacks(where: Project, selection: Selection, shard: Shard | None = None) -> None:
    """Prints the stacks that a selection means; resolves and runs nothing.

    Raises:
        BadInput: anything wrong in the files or names that were given.
    """
    from trl_compat import advisories
    from trl_compat.cells import shards
    from trl_compat.cells.plan import plan
    from trl_compat.cli import stack_list
    from trl_compat.shipped import seconds
    from trl_compat.stacks import matrix as tables

    table = tables.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    planned = plan(table, catalogue, selection)
    if shard is not None:
        click.echo(shards.sentence(planned, shard, seconds.known()))
        planned = shards.part(planned, shard, seconds.known())
    click.echo("\n".join(stack_list.lines(table, planned)))


def conduct(
    where: Project, selection: Selection, options: Options, engine: RayEngine | None = None
) -> int:
    """Runs a selection, writes its reports, prints its end, and gives the exit code.

    Args:
        where: the project.
        selection: what to run.
        options: how.
        engine: what runs the cells; pytest on this machine if left out.

    Raises:
        BadInput: anything wrong in the files or names that were given.
        HarnessError: pytest itself failed, or cells have no record.
    """
    from trl_compat import advisories, results
    from trl_compat.running import matrix_run
    from trl_compat.stacks import matrix as tables

    table = tables.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    # What is broken is said before anything is run.
    before = results.read_leniently(where.reports / "results.json")
    for sentence in before.unread.values() if before else ():
        click.echo(terminal.line(sentence), err=True)
    ran = matrix_run.run(where, table, catalogue, selection, options, engine=engine)
    document = matrix_run.write(ran)
    ran.show_end(document)
    if ran.interrupted:
        return EXIT_INTERRUPTED
    ran.check_complete()
    return matrix_run.exit_code(ran.cells(document), shard=options.shard)


def memory_share(jobs: int) -> int:
    """Bytes that a cell may use: its share of four fifths of the machine's memory."""
    import psutil

    return int(psutil.virtual_memory().total * 0.8 / jobs)
