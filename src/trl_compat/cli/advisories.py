"""``trl-compat advisories``: add records, check them, compile them for shipping, export them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.cli.adding import finish, new
from trl_compat.errors import EXIT_FINDINGS, EXIT_OK, BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat.publishing.checking.proposals import Edit


@click.group(epilog="Example: trl-compat advisories lint")
def advisories() -> None:
    """Add, check, compile and export the advisories of a checkout."""


for command in (new, finish):
    advisories.add_command(command)


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


@advisories.command(epilog="Example: trl-compat advisories check --failure ppo-zero3-save")
@click.option("--failure", "failures", multiple=True, help="Check only this record; repeatable.")
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with the results; default: reports.",
)
@click.option("--all", "every", is_flag=True, help="Also list edges that no cell comes near to.")
@click.option("--write", is_flag=True, help="Apply the proposed edits to the records.")
@click.pass_obj
def check(
    root: Path, failures: tuple[str, ...], reports: Path | None, every: bool, write: bool
) -> None:
    """Compare the ranges of every record with every executed cell of the results.

    Prints cells that contradict a range, ends of ranges that were never executed on both sides with
    the command that would prove them, and as a diff the ranges that the results support.  Only what
    executed cells show is edited: masked and not applicable cells prove nothing.

    Exit code 0: no contradictions; 1: a cell contradicts a record; 2: wrong usage or bad input.
    """
    from trl_compat import advisories as records
    from trl_compat import results
    from trl_compat.files import project
    from trl_compat.files.names import require_known
    from trl_compat.publishing.checking import check as checking
    from trl_compat.publishing.checking import text
    from trl_compat.shipped import releases

    where = project.at(root, reports=reports)
    catalogue = records.load(where.advisories, where.reproductions)
    require_known("failure", failures, catalogue.records)
    document = results.read(where.reports / "results.json")
    if document is None:
        raise BadInput(f"{where.reports / 'results.json'}: not found; run: nox -s matrix")
    known = releases.known()
    found = checking.check(document, catalogue, known, failures)
    for line in text.lines(found, catalogue, known, every=every):
        click.echo(terminal.line(line))
    _edit(where.advisories, [edit for one in found for edit in one.edits], write=write)
    sys.exit(EXIT_FINDINGS if any(one.contradictions for one in found) else EXIT_OK)


def _edit(folder: Path, edits: Sequence[Edit], *, write: bool) -> None:
    """Shows edits of records as a diff; writes them only when each of them could be made."""
    from itertools import groupby

    from trl_compat.files.reading import text_of
    from trl_compat.files.writing import write_atomically
    from trl_compat.publishing.checking import yaml_edit
    from trl_compat.text import diff

    changed = {}
    for failure, mine in groupby(edits, key=lambda edit: edit.failure):
        path = folder / f"{failure}.yaml"
        before, of_this = text_of(path), list(mine)
        changed[path] = after = yaml_edit.with_edits(before, path, of_this)
        for edit in of_this:
            click.echo(terminal.line(f"edit: {failure}, affected {edit.scope}: {edit.why}"))
        click.echo(terminal.lines(diff.unified(f"advisories/{path.name}", before, after)), nl=False)
    for path, after in changed.items() if write else ():
        write_atomically(path, after)
    if changed and write:
        click.echo(f"wrote {len(changed)} records; run: trl-compat advisories compile")
    elif changed:
        click.echo("nothing was written; --write applies these edits")


@advisories.command("compile", epilog="Example: trl-compat advisories compile")
@click.pass_obj
def compile_(root: Path) -> None:
    """Write what doctor reads, src/trl_compat/shipped/, from advisories/ and results.json."""
    from trl_compat import advisories as records
    from trl_compat import results
    from trl_compat.files import project
    from trl_compat.publishing import compiled

    where = project.at(root)
    document = results.read(where.reports / "results.json")
    if document is None:
        missing = where.reports / "results.json"
        raise BadInput(f"{missing}: not found; run this command in a checkout")
    folder = compiled.folder_in(where.root)
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
