"""``trl-compat doctor``: known failures of an environment or a lock, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat.shipped.records import CompiledAdvisory, Use
    from trl_compat.stacks.sources import Source
    from trl_compat.usage.conditions import UsageBuilder
    from trl_compat.usage.vocabulary import Vocabulary

FILE = click.Path(path_type=Path)


@click.command(epilog="Example: trl-compat doctor uv.lock --script train.py --ds-config zero3.json")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--python", type=FILE, help="Examine the environment of this interpreter.")
@click.option("--config", type=FILE, help="Configuration written by `accelerate config`.")
@click.option("--ds-config", type=FILE, help="DeepSpeed configuration.")
@click.option("--script", type=FILE, help="Training script; it is read, not run.")
@click.option("--trainer", multiple=True, help="Trainer in use, or several: GRPO,SFT.")
@click.option(
    "--strategy",
    multiple=True,
    help="Strategy in use: ddp, zero1 to zero3, deepspeed, fsdp, fsdp1, fsdp2, none.",
)
@click.option("--zero-stage", type=click.IntRange(0, 3))
@click.option("--fsdp-version", type=click.IntRange(1, 2))
@click.option("--peft/--no-peft", default=None, help="Whether PEFT adapters are used.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]))
@click.option("--world-size", type=click.IntRange(min=1))
@click.option(
    "--set", "options", multiple=True, metavar="NAME=VALUE", help="Any other option, by name."
)
@click.option(
    "--advisories",
    "folder",
    type=FILE,
    help="Folder with your own advisories, in addition to those shipped.",
)
@click.option(
    "--pyproject",
    type=FILE,
    default=Path("pyproject.toml"),
    show_default=True,
    help="File whose [tool.trl-compat] lists the failures to ignore.",
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
    """List the known failures of an environment, a lock or a requirements file, with fixes.

    FILE is requirements.txt, uv.lock, pylock.toml, poetry.lock, or - for the output of pip freeze.
    Without FILE and --python, the current environment is examined.  Options, configuration files
    and the script narrow the answer; unspecified conditions are reported as "applies if".  Unknown
    names and values are rejected.

    Exit code 0: nothing applies; 1: something applies, may apply, or cannot be determined; 2: wrong
    usage or bad input (the other files are still examined).
    """
    from trl_compat.doctor.diagnosis import Known, examine
    from trl_compat.doctor.render import render
    from trl_compat.matching import nearest_run
    from trl_compat.shipped import records
    from trl_compat.usage import vocabulary

    if files and python:
        raise BadInput("give either a file or --python, not both")
    own, more_uses, broken = _own(folder)
    known = {**records.shipped(), **own}
    uses = (*records.shipped_uses(), *more_uses)
    words = vocabulary.of(known, uses)
    conditions = _named(words, named, options)
    _read(conditions, config, ds_config, script)
    have, refused = _sources(files, python, words)
    ignored, expired = _accepted(pyproject, known)
    notes = [*conditions.notes, *broken, *expired]
    all_of_it = Known(known, nearest_run.shipped(), uses, words)
    reports = [examine(s, conditions.values, all_of_it, notes, ignored) for s in have]
    click.echo(render(reports, form, refused), nl=False)
    for sentence in refused:
        click.echo(f"trl-compat: {terminal.line(sentence)}", err=True)
    if refused:
        sys.exit(EXIT_USAGE)
    sys.exit(EXIT_OK if all(report.clear for report in reports) else EXIT_FINDINGS)


def _own(folder: Path | None) -> tuple[dict[str, CompiledAdvisory], tuple[Use, ...], list[str]]:
    """The user's own records, and a sentence for each that is left out."""
    if folder is None:
        return {}, (), []
    from trl_compat.advisories import compiling

    return compiling.of_folder(folder)


def _named(words: Vocabulary, named: Mapping[str, object], options: Sequence[str]) -> UsageBuilder:
    """The conditions that the command line names."""
    from trl_compat.usage.conditions import UsageBuilder

    conditions = UsageBuilder(words)
    for name, value in named.items():
        values = value if isinstance(value, tuple) else (value,)
        given = [v for v in values if isinstance(v, str | int | bool)]
        if given:
            conditions.say(name, given, f"--{name.replace('_', '-')}")
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"--set {option[:100]}: write NAME=VALUE")
        conditions.say(name.strip(), (text,), f"--set {option[:100]}")
    return conditions


def _read(
    conditions: UsageBuilder, config: Path | None, ds_config: Path | None, script: Path | None
) -> None:
    """Adds what the user's files say."""
    if config:
        from trl_compat.usage import configs

        configs.read_accelerate(config, conditions)
    if ds_config:
        from trl_compat.usage import configs

        configs.read_deepspeed(ds_config, conditions)
    if script:
        from trl_compat.usage import scripts

        scripts.read(script, conditions)


def _meant(file: str | None, words: Vocabulary) -> str:
    """A hint for a user who wrote ``--trainer GRPO SFT``."""
    if file is None or Path(file).suffix or words.trainer(file) is None:
        return ""
    return "; to name several trainers, separate them by commas: --trainer GRPO,SFT"


def _sources(
    files: Sequence[str], python: Path | None, words: Vocabulary
) -> tuple[list[Source], list[str]]:
    """The sources to examine, and a sentence for each file that cannot be read.

    Raises:
        BadInput: no source is left.
    """
    from trl_compat.stacks import sources

    have, refused = [], []
    for file in files or (None,):
        try:
            source = sources.installed(python) if file is None else sources.read(file)
            sources.refuse_doubtful(source)
            have.append(source)
        except BadInput as error:
            if len(files) < 2:
                raise BadInput(f"{error}{_meant(file, words)}") from None
            refused.append(f"{error}{_meant(file, words)}")
    return have, refused


def _accepted(pyproject: Path, known: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """The failures that a project ignores, with the reason; a sentence for each that expired."""
    import datetime

    from trl_compat.files import reading

    if not pyproject.exists():
        return {}, []
    if "trl-compat" not in reading.text_of(pyproject):
        return {}, []  # and the reader of the table is not imported
    from trl_compat.usage import ignores

    today = datetime.datetime.now(datetime.UTC).date()
    read = ignores.read(pyproject, known)
    holding = [ignore for ignore in read if not ignore.expired(today)]
    expired = [
        f"the ignore of {i.failure} expired on {i.expires} ({i.reason})"
        for i in read
        if i.expired(today)
    ]
    return {i.failure: f"until {i.expires}: {i.reason}" for i in holding}, expired
