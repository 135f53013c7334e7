"""The console script: every subcommand, each with help and an example, a module for each.

Modules of commands import what they need when they run, so that a quick command stays quick.
"""

from __future__ import annotations

from pathlib import Path

import click

from trl_compat import __version__
from trl_compat.cli import endings
from trl_compat.cli.advisories import advisories
from trl_compat.cli.bench import bench
from trl_compat.cli.bisect import bisect
from trl_compat.cli.cache import cache
from trl_compat.cli.check import check
from trl_compat.cli.constraints import constraints
from trl_compat.cli.doctor import doctor
from trl_compat.cli.explain import explain
from trl_compat.cli.fix import fix
from trl_compat.cli.gate import gate
from trl_compat.cli.matrix import matrix
from trl_compat.cli.merge import merge
from trl_compat.cli.nodes import nodes
from trl_compat.cli.plan import plan
from trl_compat.cli.refresh import refresh
from trl_compat.cli.report import report
from trl_compat.cli.schema import schema
from trl_compat.errors import HarnessError


class Commands(click.Group):
    """The commands; a broken pipe inside a command is an error of the harness."""

    def invoke(self, context: click.Context) -> object:
        """Runs a command."""
        try:
            return super().invoke(context)
        except BrokenPipeError as error:  # click would end with 1, which means findings
            raise HarnessError("a process that it was connected to ended unexpectedly") from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="trl-compat")
@click.option(
    "--project",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Checkout of trl-compat; default: the current folder.",
)
@click.pass_context
def cli(context: click.Context, project: Path) -> None:
    """Test which releases of the LLM post-training stack work together."""
    context.obj = project


for command in (
    advisories,
    bench,
    bisect,
    cache,
    check,
    constraints,
    doctor,
    explain,
    fix,
    gate,
    matrix,
    merge,
    nodes,
    plan,
    refresh,
    report,
    schema,
):
    cli.add_command(command)


def main() -> None:
    """Runs the command line; it ends as :mod:`trl_compat.cli.endings` says."""
    endings.end(lambda: cli(standalone_mode=False))
