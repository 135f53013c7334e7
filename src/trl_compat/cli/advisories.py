"""``trl-compat advisories``: check the records, compile them for shipping, export them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput
from trl_compat.text import terminal


@click.group(epilog="Example: trl-compat advisories lint")
def advisories() -> None:
    """Check, compile and export the advisories of a checkout."""


@advisories.command(epilog="Example: trl-compat advisories lint")
@click.pass_obj
def lint(root: Path) -> None:
    """Check every record beyond its schema: ranges, versions, references, open ends.

    Unreadable records are named; the others are still checked.

    Exit code 0: no errors (there may be warnings); 1: a record has an error; 2: a record cannot be
    read.
    """
    from trl_compat import advisories as records
    from trl_compat import results
    from trl_compat.files import project
    from trl_compat.publishing import lint as rules
    from trl_compat.shipped import releases

    where = project.at(root)
    catalogue, broken = records.load_leniently(where.advisories, where.reproductions)
    document = results.read(where.reports / "results.json")
    complaints = rules.lint(catalogue, releases.known(), document, where.reproductions)
    for complaint in complaints:
        said = f"{complaint.level}: {complaint.failure}: {complaint.text}"
        click.echo(terminal.line(said))
    errors = sum(complaint.level == "error" for complaint in complaints)
    click.echo(
        f"{len(catalogue.records)} records, {errors} errors, {len(complaints) - errors} warnings"
    )
    if broken:
        raise BadInput("; ".join(broken))
    sys.exit(EXIT_FINDINGS if errors else EXIT_OK)


@advisories.command("compile", epilog="Example: trl-compat advisories compile")
@click.pass_obj
def compile_(root: Path) -> None:
    """Write what doctor reads, src/trl_compat/shipped/, from advisories/ and results.json."""
    from trl_compat import advisories as records
    from trl_compat import results
    from trl_compat.files import project
    from trl_compat.publishing import compiled

    where = project.at(root)
    folder = where.root / "src" / "trl_compat" / "shipped"
    document = results.read(where.reports / "results.json")
    if document is None or not folder.is_dir():
        missing = folder if document else where.reports / "results.json"
        raise BadInput(f"{missing}: not found; run this command in a checkout")
    catalogue = records.load(where.advisories, where.reproductions)
    compiled.write(folder, catalogue, document)
    click.echo(f"compiled {len(catalogue.records)} advisories into {folder}")


@advisories.command(epilog="Example: trl-compat advisories export --osv osv/")
@click.option(
    "--osv",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Output folder; one OSV record per advisory.",
)
@click.pass_obj
def export(root: Path, folder: Path) -> None:
    """Export the advisories in the OSV format."""
    from trl_compat import advisories as records
    from trl_compat import results
    from trl_compat.files import project
    from trl_compat.publishing import osv
    from trl_compat.shipped import releases

    where = project.at(root)
    catalogue, broken = records.load_leniently(where.advisories, where.reproductions)
    document = results.read(where.reports / "results.json")
    written = osv.export(folder, catalogue, releases.known(), document)
    for sentence in broken:
        click.echo(terminal.line(sentence), err=True)
    click.echo(f"wrote {len(written)} records into {folder}")


@advisories.command(hidden=True)
@click.pass_context
def releases(context: click.Context) -> None:
    """The old name of ``trl-compat refresh``, for one release."""
    from trl_compat.cli.refresh import refresh

    context.invoke(refresh)
