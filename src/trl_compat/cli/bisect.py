"""``trl-compat bisect``: find the release at which a failure appears or disappears."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trl_compat.cli import extra
from trl_compat.cli.device import choose_device
from trl_compat.cli.matrix import memory_share
from trl_compat.errors import BadInput


@click.command(
    epilog="Example: trl-compat bisect online-dpo-ref-none --package trl --good 0.13.0 --bad 0.11.0"
)
@click.argument("failure")
@click.option("--package", help="The package that is moved: trl, transformers, deepspeed …")
@click.option("--good", metavar="V", help="A release that passes; may be newer than --bad.")
@click.option("--bad", metavar="V", help="A release that fails.")
@click.option(
    "--hold",
    "holds",
    multiple=True,
    metavar="PKG==V",
    help="Keep another package at this release; repeatable.",
)
@click.option(
    "--stack",
    metavar="BASE",
    help="Stack of matrix.yaml whose other packages are used; 'nearest': for each release the stack"
    " with the nearest one.",
)
@click.option("--variant", help="Variant of the failure; default: one that tells the ends apart.")
@click.option("--model", help="Tiny model; default: tiny-qwen2.")
@click.option("--fix", help="Apply this fix in every cell.")
@click.option("--world-size", type=click.IntRange(2, 8), default=2, show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option(
    "--outcome",
    default="reproduced",
    show_default=True,
    help="Outcome of the bad end, e.g. reproduced:SYMPTOM or masked:FAILURE.",
)
@click.option(
    "--good-outcome", default="pass", show_default=True, help="Outcome of the good end, likewise."
)
@click.option("--index", is_flag=True, help="Ask the package index for releases, not the list.")
@click.option(
    "--commits", is_flag=True, help="Go on over the commits between the two releases of the edge."
)
@click.option(
    "--clone",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Clone of the package's repository; default: the one in the cache.",
)
@click.option(
    "--minimal",
    is_flag=True,
    help="Find the smallest set of package moves from --good-stack to --bad-stack that causes it.",
)
@click.option("--good-stack", metavar="STACK", help="Stack of matrix.yaml that passes.")
@click.option("--bad-stack", metavar="STACK", help="Stack of matrix.yaml that fails.")
@click.option("--fresh", is_flag=True, help="Run all cells again, including unchanged ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.pass_obj
def bisect(
    root: Path,
    failure: str,
    package: str | None,
    good: str | None,
    bad: str | None,
    holds: tuple[str, ...],
    stack: str | None,
    variant: str | None,
    model: str | None,
    fix: str | None,
    world_size: int,
    device: str,
    outcome: str,
    good_outcome: str,
    index: bool,
    commits: bool,
    clone: Path | None,
    minimal: bool,
    good_stack: str | None,
    bad_stack: str | None,
    fresh: bool,
    as_json: bool,
) -> None:
    """Find the release at which a failure appears or disappears, by running.

    Both ends are run first, then a binary search over the final releases between them.  Releases
    that cannot be judged are skipped and named.  The rest of the stack stays as in BASE; where a
    release requires other packages, they move to the nearest release that it allows.  Interrupted,
    the same command goes on where it stopped.

    Exit code 0: the advisory agrees with the edge; 1: it differs; 2: wrong usage or bad input;
    70: the harness failed; 130: interrupted.
    """
    extra.require("bisect")
    from trl_compat.bisect import answer, minimal_answer, run
    from trl_compat.bisect import minimal as isolation
    from trl_compat.cells import rerun
    from trl_compat.files import project
    from trl_compat.results import scrub_command
    from trl_compat.running import matrix_run
    from trl_compat.running.execution.watch import Limits

    axis = {"--package": package, "--good": good, "--bad": bad}
    stacks = {"--good-stack": good_stack, "--bad-stack": bad_stack}
    only_axis = {"--hold": holds, "--stack": stack, "--index": index, "--commits": commits}
    _require("bisect --minimal" if minimal else "bisect", stacks if minimal else axis)
    _refuse(
        "with --minimal" if minimal else "without --minimal",
        {**axis, **only_axis, "--clone": clone} if minimal else stacks,
    )
    where = project.at(root)
    options = matrix_run.Options(
        jobs=1,
        fresh=fresh,
        limits=Limits(memory=memory_share(1)),
        verbosity=-1,
        command=rerun.this_command(),
        start=rerun.start("matrix", root),
    )
    common: dict[str, Any] = {
        "failure": failure,
        "variant": variant,
        "model": model,
        "world_size": world_size,
        "device": choose_device(device, world_size),
        "fix": fix,
        "good_outcome": good_outcome,
        "bad_outcome": outcome,
    }
    found: answer.Answer | minimal_answer.Minimal
    if minimal:
        asked = isolation.Request(good_stack=str(good_stack), bad_stack=str(bad_stack), **common)
        found = isolation.run(where, asked, options, _say)
        text = minimal_answer.text(found)
    else:
        request = run.Request(
            package=str(package),
            good=str(good),
            bad=str(bad),
            holds=holds,
            stack=stack,
            index=index,
            commits=commits or clone is not None,
            clone=clone,
            **common,
        )
        found = run.run(where, request, options, _say)
        text = answer.text(found)
    said = found.model_dump_json(indent=1) + "\n" if as_json else text
    click.echo(scrub_command(said), nl=False)
    sys.exit(found.exit_code)


def _say(line: str) -> None:
    """What a user redirects is the answer; progress is said beside it."""
    click.echo(line, err=True)


def _require(command: str, options: Mapping[str, object]) -> None:
    if missing := [name for name, value in options.items() if not value]:
        raise BadInput(f"{command} requires {' and '.join(missing)}")


def _refuse(when: str, options: Mapping[str, object]) -> None:
    if given := [name for name, value in options.items() if value]:
        raise BadInput(f"{' and '.join(given)}: no use {when}")
