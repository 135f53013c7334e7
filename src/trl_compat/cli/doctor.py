"""``trl-compat doctor``: known failures of what someone has, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput

FILE = click.Path(path_type=Path)


@click.command(epilog="Example: trl-compat doctor uv.lock --script train.py --ds-config zero3.json")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--python", type=FILE, help="Look at the environment of this interpreter.")
@click.option("--config", type=FILE, help="What `accelerate config` wrote.")
@click.option("--ds-config", type=FILE, help="A DeepSpeed configuration.")
@click.option("--script", type=FILE, help="A training script; it is read, not run.")
@click.option("--trainer", multiple=True, help="A trainer that you use, e.g. GRPO; repeatable.")
@click.option("--strategy", type=click.Choice(["deepspeed", "fsdp", "ddp", "none"]))
@click.option("--zero-stage", type=click.IntRange(0, 3))
@click.option("--fsdp-version", type=click.IntRange(1, 2))
@click.option("--peft/--no-peft", default=None, help="Whether the model has adapters.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]))
@click.option("--world-size", type=click.IntRange(min=1))
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE", help="Any other option.")
@click.option(
    "--advisories",
    "folder",
    type=FILE,
    help="A folder of records of your own, beside those that are shipped.",
)
@click.option(
    "--pyproject",
    type=FILE,
    default=Path("pyproject.toml"),
    show_default=True,
    help="Where [tool.trl-compat] says which failures to ignore.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json", "github", "sarif"]),
    default="text",
    show_default=True,
)
def doctor(
    files: tuple[str, ...],
    python: Path | None,
    config: Path | None,
    ds_config: Path | None,
    script: Path | None,
    folder: Path | None,
    pyproject: Path,
    form: str,
    options: tuple[str, ...],
    **named: object,
) -> None:
    """Which known failures apply to an environment, a lock or a requirements file, and the fix.

    FILE is requirements.txt, uv.lock, pylock.toml, poetry.lock, or - for the output of pip freeze;
    without one, and without --python, this environment is looked at.  What you name, or what your
    configuration and script say, narrows the answer; the rest is listed as "applies if".

    Exit code 0: nothing applies; 1: something does or may, or it cannot be told; 2: wrong usage or
    bad input.
    """
    from trl_compat import sources
    from trl_compat.doctor import configs, evidence, records, scripts
    from trl_compat.doctor.conditions import Conditions
    from trl_compat.doctor.diagnosis import examine
    from trl_compat.doctor.render import render

    if files and python:
        raise BadInput("a file and --python: name one of the two")
    conditions = Conditions()
    for name, value in named.items():
        _say(conditions, name, value)
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {option}: write NAME=VALUE")
        conditions.say(name.strip(), (value,), f"--set {option}")
    if config:
        configs.read_accelerate(config, conditions)
    if ds_config:
        configs.read_deepspeed(ds_config, conditions)
    if script:
        scripts.read(script, conditions)
    have = [sources.read(file) for file in files] or [sources.installed(python)]
    for source in have:
        sources.refuse_doubtful(source)
    own, broken = records.of_folder(folder) if folder else ({}, [])
    known = {**records.shipped(), **own}
    ignored, expired = _accepted(pyproject, known)
    notes = [*conditions.notes, *broken, *expired]
    reports = [
        examine(s, conditions.values, known, evidence.shipped(), notes, ignored) for s in have
    ]
    click.echo(render(reports, form), nl=False)
    sys.exit(EXIT_OK if all(report.clear for report in reports) else EXIT_FINDINGS)


def _accepted(pyproject: Path, known: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """The failures that a project accepts, with the reason; a sentence for each that expired."""
    import datetime

    try:
        if "[tool.trl-compat]" not in pyproject.read_text(encoding="utf-8"):
            return {}, []  # and the reader of the table is not imported
    except (OSError, UnicodeDecodeError):
        return {}, []
    from trl_compat.gate import ignores

    today = datetime.datetime.now(datetime.UTC).date()
    read = ignores.read(pyproject, known)
    holding = [ignore for ignore in read if not ignore.expired(today)]
    expired = [
        f"the ignore of {i.failure} expired on {i.expires} ({i.reason})"
        for i in read
        if i.expired(today)
    ]
    return {i.failure: f"until {i.expires}: {i.reason}" for i in holding}, expired


def _say(conditions: object, name: str, value: object) -> None:
    from trl_compat.doctor.conditions import Conditions

    assert isinstance(conditions, Conditions)
    values = value if isinstance(value, tuple) else (value,)
    given = [v for v in values if isinstance(v, str | int | bool)]
    if given:
        conditions.say(name, given, f"--{name.replace('_', '-')}")
