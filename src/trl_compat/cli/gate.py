"""``trl-compat gate``: may I upgrade?"""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path

import click

from trl_compat.cli import extra
from trl_compat.cli.matrix import choose_device, memory_share

FORMATS = ("text", "json", "markdown", "sarif", "github")


@click.command(
    epilog='Example: trl-compat gate --reference uv.lock --candidate "trl==0.18.2 transformers<5"'
)
@click.option("--reference", required=True, metavar="STACK", help="What you have.")
@click.option("--candidate", required=True, metavar="STACK", help="What you want.")
@click.option("--failure", "failures", multiple=True, help="Only this failure.")
@click.option("--trainer", "trainers", multiple=True, help="You use this trainer, e.g. GRPO.")
@click.option("--strategy", "strategies", multiple=True, help="You use this, e.g. zero3 or fsdp2.")
@click.option("--model", "models", multiple=True, default=("tiny-qwen2",), show_default=True)
@click.option("--world-size", type=click.IntRange(2, 8), help="Ranks of a cell.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option(
    "--build",
    "builds",
    multiple=True,
    metavar="PACKAGE",
    callback=lambda _, __, names: _packages(names),
    help="Build this package from its source where it has no wheel or comes from git. That runs its"
    " build's code, contained as cells are.",
)
@click.option("--python", help="Python of stacks that are made, e.g. 3.12; by default this one's.")
@click.option(
    "--current",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="The interpreter whose packages 'current' means; by default this one.",
)
@click.option(
    "--as-of",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Resolve requirements with the releases of that day; by default today's.",
)
@click.option(
    "--pyproject",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("pyproject.toml"),
    show_default=True,
    help="Where [tool.trl-compat] says which failures to ignore.",
)
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "--summary",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the Markdown for a pull request's comment to this file, too.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Stacks at a time.")
@click.option("--fresh", is_flag=True, help="Run cells again that are known and unchanged.")
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
    """May I upgrade? Run both stacks on what is known to fail, and compare.

    A STACK is the name of one in matrix.yaml, a lock or requirements file (requirements.txt,
    uv.lock, pylock.toml, poetry.lock), 'current' for what is installed, or requirements, which are
    resolved.  What fails on the candidate blocks only where the reference passes.  Only wheels are
    installed, and DeepSpeed, which has none; anything else is built only if --build names it.

    Exit code 0: you may upgrade; 1: a regression, no such candidate, or no answer where the
    reference passes; 2: wrong usage or bad input; 70: the harness failed; 130: interrupted.
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
    asked = sides.Asked(
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
        raise click.BadParameter(f"{error}; give the name of a package") from None
