"""``trl-compat report``: render reports, check the committed ones, compare two runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.errors import EXIT_FINDINGS, BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat import results

# The names of trl_compat.report.formats.FORMATS, here so that --help needs no renderer.
FORMATS = (
    "html",
    "markdown",
    "known-good",
    "trains-right",
    "junit",
    "badge",
    "badge-json",
    "sarif",
    "ctrf",
)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog="Example: trl-compat report --diff reports/results.json new/results.json")
@click.option(
    "--reports", type=click.Path(file_okay=False, path_type=Path), help="Folder of the reports."
)
@click.option(
    "--results",
    "source",
    type=FILE,
    help="Read this results.json; default: the one in the reports folder.",
)
@click.option("--format", "name", type=click.Choice(FORMATS), help="Print only this format.")
@click.option("--output", type=FILE, help="With --format: write it to this file.")
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 if a report is out of date."
)
@click.option(
    "--diff", type=FILE, nargs=2, help="Compare two results.json; exit with 1 if a cell got worse."
)
@click.pass_obj
def report(
    root: Path,
    reports: Path | None,
    source: Path | None,
    name: str | None,
    output: Path | None,
    check: bool,
    diff: tuple[Path, Path] | None,
) -> None:
    """Render all reports from reports/results.json; nothing is run.

    --format prints a single format, including those not written by default; --check tells whether
    the reports are up to date with results.json, and which cells belong to no failure, variant or
    fix any more; --diff OLD NEW compares two runs.
    """
    if sum((name is not None, check, diff is not None)) > 1:
        raise click.UsageError("--format, --check and --diff are mutually exclusive")
    if output is not None and name is None:
        raise click.UsageError("--output requires --format")
    if diff is not None:
        _compare(*diff)
        return

    from trl_compat import advisories, results
    from trl_compat import report as reporting
    from trl_compat.files import project
    from trl_compat.report.formats import FORMATS as KNOWN

    where = project.at(root, reports=reports)
    path = source or where.reports / "results.json"
    document = _read(path)
    catalogue = advisories.load(where.advisories, where.reproductions)
    if name is not None:
        text = KNOWN[name].render(document, catalogue)
        if output is None:
            sys.stdout.buffer.write(text.encode())
        else:
            output.write_bytes(text.encode())
    elif check:
        stale = reporting.outdated(where.reports, document, catalogue)
        if source is None and _is_old(path):
            stale = [path.name, *stale]
        strays = results.without_owner(document, catalogue)
        for line in strays:
            click.echo(terminal.line(f"belongs to nothing: {line}; the next run removes it"))
        if stale:
            click.echo(
                f"out of date in {where.reports}: {', '.join(stale)}; "
                "update them with: trl-compat report"
            )
        if stale or strays:
            sys.exit(EXIT_FINDINGS)
        click.echo(f"every report in {where.reports} is up to date with results.json")
    else:
        where.reports.mkdir(parents=True, exist_ok=True)
        if source is None and _is_old(path):
            document = reporting.upgrade(where.reports, document)
        reporting.render_all(where.reports, document, catalogue)
        click.echo(f"rendered {len(document.cells)} cells into {where.reports}")
    if document.unread:
        raise BadInput("; ".join(document.unread.values()))


def _is_old(path: Path) -> bool:
    """Whether results are of an older schema than is written today."""
    from trl_compat import results

    return results.version_of(path) != results.SCHEMA_VERSION


def _compare(old: Path, new: Path) -> None:
    from trl_compat.report import changes

    before, after = (_read(path) for path in (old, new))
    if unread := [*before.unread.values(), *after.unread.values()]:
        raise BadInput("; ".join(unread))
    found = changes.compare(before, after)
    for line in changes.lines(found):
        click.echo(terminal.line(line))
    if changes.regressed(found):
        sys.exit(EXIT_FINDINGS)


def _read(path: Path) -> results.Results:
    from trl_compat import results

    document = results.read_leniently(path)
    if document is None:
        raise BadInput(f"{path}: no such file; create it with: nox -s matrix")
    return document
