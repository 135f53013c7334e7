"""``trl-compat plan``: the shortest safe upgrade path to a release."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import click

from trl_compat.cli import extra, have
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK
from trl_compat.text import terminal


@click.command(epilog='Example: trl-compat plan --from uv.lock --to "trl==1.12.*" --trainer GRPO')
@click.option(
    "--from", "file", metavar="FILE", help="Lock or requirements file in use, or 'current'."
)
@click.option(
    "--python",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Start from the environment of this interpreter.",
)
@click.option("--to", "want", required=True, metavar="REQUIREMENT", help="Target, e.g. trl==1.12.*")
@click.option("--trainer", "trainers", multiple=True, help="Trainer in use, or several: GRPO,SFT.")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    help="Strategy in use: ddp, zero1 to zero3, deepspeed, fsdp, fsdp1, fsdp2, none.",
)
@click.option("--peft/--no-peft", default=None, help="Whether PEFT adapters are used.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]))
@click.option("--offline", is_flag=True, help="Do not check the steps with the package index.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def plan(
    file: str | None,
    python: Path | None,
    want: str,
    trainers: tuple[str, ...],
    strategies: tuple[str, ...],
    peft: bool | None,
    device: str | None,
    offline: bool,
    form: str,
) -> None:
    """Find the shortest upgrade path to a release in which every step is safe.

    A step moves one package to a later release. It is safe if it brings no known failure that did
    not apply before, and if the requirements of all releases are met.

    Exit code 0: a path exists; 1: none exists; 2: wrong usage or bad input.
    """
    from trl_compat.matching import nearest_run
    from trl_compat.shipped import records
    from trl_compat.upgrade import plan as planning
    from trl_compat.upgrade.render import render
    from trl_compat.usage.conditions import UsageBuilder
    from trl_compat.usage.strategies import conditions_of

    conditions = UsageBuilder()
    if trainers:
        conditions.say("trainer", trainers, "--trainer")
    for name, values in conditions_of(strategies).items():
        conditions.say(name, values, "--strategy")
    if peft is not None:
        conditions.say("peft", (peft,), "--peft")
    if device is not None:
        conditions.say("device", (device,), "--device")
    if file is None and python is None:
        raise click.UsageError("Missing option '--from' or '--python'.")
    source = have.source_of(None if file == "current" else file, python)
    goal = planning.goal_of(want, source)
    its_python = ".".join((source.python or platform.python_version()).split(".")[:2])
    ask = None if offline or _not_installed() else planning.resolver(its_python)
    found = planning.make(
        source, goal, conditions.values, records.shipped(), nearest_run.shipped(), ask
    )
    text = render(found, form)
    click.echo(text if form == "json" else terminal.lines(text), nl=False)
    sys.exit(EXIT_FINDINGS if found.stages is None else EXIT_OK)


def _not_installed() -> bool:
    """Whether the resolver cannot be asked for want of the extra, which is then said."""
    lacking = extra.missing()
    if lacking:
        click.echo(
            f"trl-compat: not installed: {', '.join(lacking)}; so the package index is not asked "
            "about the steps, as with --offline",
            err=True,
        )
    return bool(lacking)
