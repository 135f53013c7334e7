"""``trl-compat gate``: decide whether an upgrade is safe."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path

import click

from trl_compat.cli import extra
from trl_compat.cli.device import choose_device
from trl_compat.cli.matrix import memory_share
from trl_compat.cli.renamed import Renamed

FORMATS = ("text", "json", "markdown", "sarif", "github")


@click.command(epilog='Example: trl-compat gate --from uv.lock --to "trl==0.18.2 transformers<5"')
@click.option(
    "--from",
    "reference",
    cls=Renamed,
    old="--reference",
    required=True,
    metavar="STACK",
    help="The stack in use: the reference.",
)
@click.option(
    "--to",
    "candidate",
    cls=Renamed,
    old="--candidate",
    required=True,
    metavar="STACK",
    help="The stack to upgrade to: the candidate.",
)
@click.option("--failure", "failures", multiple=True, help="Run only this failure; repeatable.")
@click.option("--trainer", "trainers", multiple=True, help="Trainer in use, or several: GRPO,SFT.")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    help="Strategy in use: ddp, zero1 to zero3, deepspeed, fsdp, fsdp1, fsdp2, none.",
)
@click.option("--model", "models", multiple=True, default=("tiny-qwen2",), show_default=True)
@click.option("--world-size", type=click.IntRange(2, 8), help="Ranks per cell.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option(
    "--build",
    "builds",
    multiple=True,
    metavar="PACKAGE",
    callback=lambda _, __, names: _packages(names),
    help="Allow building this package from source if it has no wheel or comes from git. This runs"
    " its build code, contained like a cell.",
)
@click.option("--python", help="Python version for resolved stacks, e.g. 3.12; default: this one.")
@click.option(
    "--current",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Interpreter whose environment 'current' refers to; default: this one.",
)
@click.option(
    "--as-of",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Resolve requirements as of this date; default: today.",
)
@click.option(
    "--pyproject",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("pyproject.toml"),
    show_default=True,
    help="File whose [tool.trl-compat] lists the failures to ignore.",
)
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "--summary",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write Markdown for a pull request comment to this file.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Number of stacks to run in parallel.")
@click.option("--fresh", is_flag=True, help="Run all cells again, including unchanged ones.")
@click.pass_obj
def gate(
    root: Path,
    reference: str,
    candidate: str,
    failures: tuple[str, ...],
    trainers: tuple[str, ...],
    strategies: tuple[str, ...],
    models: tuple[str, ...],
    world_size: int | None,
    device: str,
    builds: frozenset[str],
    python: str | None,
    current: Path | None,
    as_of: datetime.datetime | None,
    pyproject: Path,
    format_: str,
    summary: Path | None,
    jobs: int | None,
    fresh: bool,
) -> None:
    """Decide whether an upgrade is safe: run both stacks against every known failure and compare.

    A STACK is the name of a stack in matrix.yaml, a lock or requirements file (requirements.txt,
    uv.lock, pylock.toml, poetry.lock), 'current' for the installed packages, or requirements, which
    are resolved.  A failure on the candidate blocks only if the reference passes.  Only wheels are
    installed, and DeepSpeed, which publishes none; other packages are built only with --build.

    Exit code 0: you may upgrade; 1: a regression, a candidate that cannot be installed, or no
    result where the reference passes; 2: wrong usage or bad input; 70: the harness failed; 130:
    interrupted.
    """
    extra.require("gate")
    from trl_compat.cells import rerun
    from trl_compat.files import project
    from trl_compat.gate import output, run, sides
    from trl_compat.machine.host import stacks_at_a_time
    from trl_compat.running import matrix_run
    from trl_compat.running.execution.watch import Limits

    today = datetime.date.today()
    where = project.at(root)
    ranks = world_size or 2
    chosen = choose_device(device, ranks)
    asked = sides.SideOptions(
        folder=where.state / "gate" / "locks",
        python=python or sides.THIS_PYTHON,
        as_of=as_of.date() if as_of else today,
        current=current,
        build=builds,
    )
    request = run.Request(
        reference=reference,
        candidate=candidate,
        failures=failures,
        trainers=trainers,
        strategies=strategies,
        models=models,
        world_size=world_size,
        device=chosen,
        asked=asked,
        pyproject=pyproject,
        today=today,
    )
    jobs = jobs or stacks_at_a_time(chosen, ranks)
    options = matrix_run.Options(
        jobs=jobs,
        fresh=fresh,
        limits=Limits(memory=memory_share(jobs)),
        command=rerun.this_command(),
        start=rerun.start("matrix", root),
    )
    found = run.run(where, request, options)
    click.echo(output.render(found, format_), nl=False)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    for path in filter(None, (summary, Path(step_summary) if step_summary else None)):
        output.summarise(found, path, append=path != summary)
    sys.exit(found.exit_code)


def _packages(names: tuple[str, ...]) -> frozenset[str]:
    from packaging.utils import InvalidName, canonicalize_name

    try:
        return frozenset(canonicalize_name(name, validate=True) for name in names)
    except InvalidName as error:
        raise click.BadParameter(f"{error}; give a package name") from None
