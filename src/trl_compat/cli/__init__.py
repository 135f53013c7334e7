"""The console script: every subcommand, each with help and an example, a module for each.

Modules of commands import what they need when they run, so that a quick command stays quick.
"""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import click

from trl_compat import __version__
from trl_compat.cli.advisories import advisories
from trl_compat.cli.bench import bench
from trl_compat.cli.constraints import constraints
from trl_compat.cli.doctor import doctor
from trl_compat.cli.explain import explain
from trl_compat.cli.fix import fix
from trl_compat.cli.gate import gate
from trl_compat.cli.matrix import matrix
from trl_compat.cli.plan import plan
from trl_compat.cli.report import report
from trl_compat.cli.schema import schema
from trl_compat.errors import EXIT_HARNESS, EXIT_OK, EXIT_USAGE, BadInput, HarnessError
from trl_compat.escaping import terminal


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


for command in (
    advisories,
    bench,
    constraints,
    doctor,
    explain,
    fix,
    gate,
    matrix,
    plan,
    report,
    schema,
):
    cli.add_command(command)


def main() -> None:
    """Runs the command line; every expected error is one sentence and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files are bytes, and not all are text
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(file=said)
        click.echo(terminal.lines(said.getvalue()), err=True, nl=False)
        sys.exit(EXIT_USAGE)
    except BadInput as error:
        click.echo(terminal.lines(f"trl-compat: {error}"), err=True)
        sys.exit(EXIT_USAGE)
    except HarnessError as error:
        click.echo(terminal.lines(f"trl-compat: the harness failed: {error}"), err=True)
        sys.exit(EXIT_HARNESS)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; free some space and run the same command again, finished cells are kept"
        click.echo(f"trl-compat: {error.strerror or error}{hint if full else ''}", err=True)
        sys.exit(EXIT_USAGE if full else EXIT_HARNESS)
    sys.exit(code if isinstance(code, int) else EXIT_OK)
