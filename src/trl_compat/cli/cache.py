"""``trl-compat cache``: what is held on the disk by what, and making room."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.errors import BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat.stacks.held.inventory import Inventory
    from trl_compat.stacks.held.pruning import Removal, Wanted

EMPTY = "nothing is held: {root} is empty"


@click.group(
    invoke_without_command=True,
    epilog="Example: trl-compat cache prune --unused-for 30d",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON; sizes are in bytes.")
@click.pass_context
def cache(context: click.Context, as_json: bool) -> None:
    """Show what the harness holds on this disk: environments, builds of torch, uv's cache."""
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("put --json behind prune")
        return
    from trl_compat.stacks.held import render

    held = _taken()
    if as_json:
        click.echo(json.dumps(render.document(held), indent=1))
    elif not held.things:
        click.echo(EMPTY.format(root=held.root))
    else:
        for line in render.lines(held, time.time()):
            click.echo(terminal.line(line))


@cache.command(epilog="Example: trl-compat cache prune --stack trl-0.9.6 --yes")
@click.option(
    "--unused-for",
    metavar="TIME",
    help="Also remove environments that were not used for this long, e.g. 30d, 12h, 2w.",
)
@click.option(
    "--stack", "stacks", multiple=True, help="Remove only the environments of it; repeatable."
)
@click.option(
    "--uv",
    "uv_too",
    is_flag=True,
    help="Also remove from uv's cache the builds of torch that no environment has, and run "
    "'uv cache prune'.",
)
@click.option("--matrix", "matrix_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Remove it; without this nothing is removed.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON; sizes are in bytes.")
@click.pass_obj
def prune(
    root: Path,
    unused_for: str | None,
    stacks: tuple[str, ...],
    uv_too: bool,
    matrix_file: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the environments of stacks that matrix.yaml does not have, and what only they needed.

    Nothing is removed without --yes.  What a run uses is kept, as are locks, git clones and
    everything that the harness did not put there.
    """
    from trl_compat.stacks.held import pruning, render

    held_for = pruning.age(unused_for) if unused_for is not None else None
    wanted = _wanted(root, matrix_file, optional=bool(stacks) or held_for is not None)
    held = _taken()
    if not held.things and not uv_too:
        click.echo(json.dumps([]) if as_json else EMPTY.format(root=held.root))
        return
    request = pruning.Request(wanted, held_for, stacks, uv_too)
    found = pruning.plan(held, request, time.time())
    kept: dict[str, str] = {}

    def said(removal: Removal, why_not: str) -> None:
        if why_not:
            kept[removal.what] = why_not
        if not as_json:
            state = f"kept ({why_not})" if why_not else "removed"
            click.echo(terminal.line(f"{state}: {removal.what}"))

    if yes:
        pruning.remove(found, held, said)
    freed = sum(one.freed for one in found if one.what not in kept)
    if as_json:
        rows = [
            {**row, "removed": yes and row["what"] not in kept, "kept": kept.get(row["what"])}
            for row in render.removals(found)
        ]
        click.echo(json.dumps(rows, indent=1))
    elif not found:
        click.echo("nothing to remove")
    elif yes:
        click.echo(f"freed: {render.size(freed)}")
    else:
        for one in found:
            line = f"would remove {one.what} ({one.why}): frees {render.size(one.freed)}"
            click.echo(terminal.line(line))
        click.echo(f"would free {render.size(freed)}; to remove it, add --yes")


def _taken() -> Inventory:
    from trl_compat.stacks.environments import cache as harness_cache
    from trl_compat.stacks.held import inventory, uv_cache

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[Kmeasuring {name[:60]}\r", err=True, nl=False)

    held = inventory.take(harness_cache.root(), uv_cache.folder(), progress)
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    return held


def _wanted(root: Path, matrix_file: Path | None, *, optional: bool) -> Wanted | None:
    """What the matrix needs; None where there is none and something else says what to remove."""
    from trl_compat.stacks import matrix
    from trl_compat.stacks.held import pruning

    path = matrix_file or root / "matrix.yaml"
    if not path.is_file() and matrix_file is None:
        if optional:
            return None
        raise BadInput(
            f"{path}: no such file; run this in a checkout of trl-compat, or say what to remove "
            "with --stack or --unused-for"
        )
    return pruning.wanted_by(matrix.load(path).stacks)
