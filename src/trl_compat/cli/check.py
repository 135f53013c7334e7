"""``trl-compat check``: run cells in an environment as it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trl_compat.cli import extra
from trl_compat.cli.matrix import matrix, memory_share
from trl_compat.errors import BadInput
from trl_compat.text import terminal

# Those of ``matrix`` that mean the same here; each is declared there.
AS_IN_MATRIX = (
    *("failures", "variants", "models", "fixes", "world_size", "device", "share_gpu"),
    *("timeout", "idle_timeout", "repeat", "fresh", "torchrun", "verbose", "quiet"),
)
# Names of trl_compat.checking.run.PROFILES, here so that --help needs nothing that runs cells.
PROFILES = ("default", "full")
REPORTS = Path("trl-compat-check")


@click.command(epilog="Example: trl-compat check --python venv/bin/python --failure ppo-zero3-save")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    help="Interpreter of the environment; default: the one that runs trl-compat.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default=PROFILES[0],
    show_default=True,
    help="Which variants and models.",
)
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=REPORTS,
    show_default=True,
    help="Folder for the results and reports.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of cells to run in parallel; default: as many as fit.",
)
@click.pass_obj
def check(
    root: Path,
    python: Path | None,
    profile: str,
    reports: Path,
    failures: tuple[str, ...],
    variants: tuple[str, ...],
    models: tuple[str, ...],
    fixes: tuple[str, ...],
    world_size: int | None,
    device: str,
    share_gpu: bool,
    jobs: int | None,
    timeout: float,
    idle_timeout: float,
    repeat: int,
    fresh: bool,
    torchrun: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Run known failures in an environment as it is: does what I have work?

    Nothing is resolved, installed or downloaded, nothing in the environment is changed, and no
    network is needed. Cells whose packages are not installed are not applicable.

    Exit code 0: every cell matches its advisory; 1: a cell deviates; 2: wrong usage or bad input;
    70: the harness failed, or the environment changed meanwhile; 130: interrupted.
    """
    extra.require("check", to_build=False)
    from trl_compat.cells import rerun
    from trl_compat.cells.plan import Selection
    from trl_compat.checking import run
    from trl_compat.machine.host import stacks_at_a_time
    from trl_compat.running import matrix_run
    from trl_compat.running.execution.watch import Limits

    if world_size is not None and not 2 <= world_size <= 8:
        raise BadInput(f"--world-size {world_size}: a cell has 2 to 8 ranks")
    # Beside a stack, plugins of somebody else's pytest are not asked to take part.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    ranks = world_size or 2
    # The zip application may have been handed over to a newer Python than the one that was called.
    own = Path(os.environ.get("TRL_COMPAT_CALLED_PYTHON") or sys.executable)
    ready = run.prepare(python or own, root, reports, with_gpus=device != "cpu")
    chosen = ready.device(device, ranks, share=share_gpu)
    selection = Selection(
        profile=profile,
        failures=failures,
        variants=variants,
        models=models,
        fixes=fixes,
        world_size=world_size,
        device=chosen,
    )
    jobs = jobs or stacks_at_a_time(chosen, ranks)
    limits = Limits(seconds=timeout, idle=idle_timeout, memory=memory_share(jobs))
    more = " ".join(
        [
            *("--python", rerun.shown(ready.found.record.python)),
            *("--reports", rerun.shown(reports)),
            *matrix_run.limit_options(limits),
        ]
    )
    options = matrix_run.Options(
        jobs=jobs,
        fresh=fresh,
        limits=limits,
        repeat=repeat,
        preload=not torchrun,
        verbosity=int(verbose) - int(quiet),
        command=rerun.this_command(),
        again=rerun.Again(rerun.start("check", root), more, torchrun=torchrun, one_stack=True),
        by_failure=True,
    )
    if not quiet:
        for line in ready.lines():
            click.echo(terminal.line(line))
    sys.exit(run.run(ready, selection, options, click.echo))


check.params += [option for option in matrix.params if option.name in AS_IN_MATRIX]
