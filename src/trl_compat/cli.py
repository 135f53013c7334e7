"""The console script: every subcommand, each with help and an example."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from pathlib import Path

import click

from trl_compat import __version__
from trl_compat.errors import EXIT_HARNESS, EXIT_OK, EXIT_USAGE, BadInput, HarnessError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="trl-compat")
@click.option(
    "--project",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="A checkout of trl-compat; the current folder by default.",
)
@click.pass_context
def cli(context: click.Context, project: Path) -> None:
    """Which releases of the LLM post-training stack work together, found by running them."""
    context.obj = project


@cli.command(epilog="Example: trl-compat matrix --stack trl-0.12.2 --failure ppo-zero3-save")
@click.option("--profile", default="default", show_default=True, help="A profile of the matrix.")
@click.option("--stack", "stacks", multiple=True, help="Only this stack; may be given again.")
@click.option("--failure", "failures", multiple=True, help="Only this failure.")
@click.option("--variant", "variants", multiple=True, help="Only this variant (and its control).")
@click.option("--model", "models", multiple=True, help="Only this tiny model.")
@click.option("--fix", "fixes", multiple=True, help="Only this fix; 'none' for unfixed.")
@click.option("--world-size", type=int, help="Ranks of a cell, 2 to 8.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option("--jobs", type=click.IntRange(min=1), help="Stacks at a time.")
@click.option("--limit", type=click.FloatRange(min=1), default=300.0, show_default=True)
@click.option("--fresh", is_flag=True, help="Run cells again that are known and unchanged.")
@click.option("--torchrun", is_flag=True, help="Start every cell by plain torchrun.")
@click.option("--matrix", "matrix_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path))
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
    limit: float,
    fresh: bool,
    torchrun: bool,
    matrix_file: Path | None,
    reports: Path | None,
) -> None:
    """Run cells, write reports/, print the table.

    Exit code 0: every cell is as its advisory says; 1: one deviates; 2: wrong usage or bad input;
    70: the harness failed.
    """
    from trl_compat import matrix_run, project
    from trl_compat.cells import Selection

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
    options = matrix_run.Options(
        jobs=jobs or default_jobs(chosen, ranks),
        fresh=fresh,
        limit=limit,
        preload=not torchrun,
        command=shlex.join(["trl-compat", *sys.argv[1:]]),
    )
    where = project.at(root, matrix=matrix_file, reports=reports)
    sys.exit(matrix_run.run(where, selection, options))


def default_jobs(device: str, ranks: int) -> int:
    """Stacks at a time: as many as there are cores, or sets of GPUs for a cell's ranks."""
    from trl_compat.host import visible_gpus

    if device == "cuda":
        return max(1, len(visible_gpus()) // ranks)
    return max(1, min(os.cpu_count() or 1, 8))


def choose_device(wanted: str, ranks: int) -> str:
    """``cuda`` where GPUs are asked for, or not excluded and enough for the ranks, else ``cpu``.

    Raises:
        BadInput: ``cuda`` is asked for and a cell's ranks outnumber the GPUs.
    """
    from trl_compat.host import visible_gpus

    if wanted == "cpu":
        return "cpu"
    count = len(visible_gpus())
    if wanted == "cuda" and count < ranks:
        raise BadInput(
            f"--device cuda: {ranks} ranks need {ranks} GPUs, this machine shows {count}"
        )
    return "cuda" if count >= ranks else "cpu"


@cli.command(epilog="Example: trl-compat report")
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def report(root: Path, reports: Path | None) -> None:
    """Render every report again from reports/results.json; run nothing."""
    from trl_compat import advisories, project, results
    from trl_compat import report as reporting

    where = project.at(root, reports=reports)
    path = where.reports / "results.json"
    document = results.read(path)
    if document is None:
        raise BadInput(f"{path}: no such file; make it with: nox -s matrix")
    reporting.render_all(
        where.reports, document, advisories.load(where.advisories, where.reproductions)
    )
    click.echo(f"rendered {len(document.cells)} cells into {where.reports}")


@cli.command(epilog="Example: trl-compat schema > results.schema.json")
def schema() -> None:
    """Print the JSON Schema of results.json."""
    import json

    from trl_compat import results

    click.echo(json.dumps(results.json_schema(), indent=1))


def main() -> None:
    """Runs the command line; every expected error is one sentence and its exit code."""
    try:
        code = cli(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except BadInput as error:
        click.echo(f"trl-compat: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except HarnessError as error:
        click.echo(f"trl-compat: the harness failed: {error}", err=True)
        sys.exit(EXIT_HARNESS)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; free some space and run the same command again, finished cells are kept"
        click.echo(f"trl-compat: {error.strerror or error}{hint if full else ''}", err=True)
        sys.exit(EXIT_USAGE if full else EXIT_HARNESS)
    sys.exit(code if isinstance(code, int) else EXIT_OK)
