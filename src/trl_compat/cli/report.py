"""``trl-compat report``: render again."""

from __future__ import annotations

from pathlib import Path

import click

from trl_compat.errors import BadInput


@click.command(epilog="Example: trl-compat report")
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def report(root: Path, reports: Path | None) -> None:
    """Render every report again from reports/results.json; run nothing."""
    from trl_compat import advisories, project, results
    from trl_compat import report as reporting

    where = project.at(root, reports=reports)
    path = where.reports / "results.json"
    document = results.read(path)
    if document is None:
        raise BadInput(f"{path}: no such file; make it with: nox -s matrix")
    reporting.render_all(
        where.reports, document, advisories.load(where.advisories, where.reproductions)
    )
    click.echo(f"rendered {len(document.cells)} cells into {where.reports}")
