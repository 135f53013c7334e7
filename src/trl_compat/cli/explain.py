"""``trl-compat explain``: print an advisory."""

from __future__ import annotations

from pathlib import Path

import click

from trl_compat.text import terminal


@click.command(epilog="Example: trl-compat explain ppo-zero3-save")
@click.argument("failure")
@click.pass_obj
def explain(root: Path, failure: str) -> None:
    """Explain FAILURE: symptoms, affected setups, cause, affected releases, fix and proof.

    Proofs are taken from reports/results.json, or, outside a checkout, from the results shipped
    with the package; nothing is run.
    """
    from trl_compat import advisories, results
    from trl_compat.files.names import require_known
    from trl_compat.report import account, explanation

    catalogue = advisories.load_available(root)
    require_known("failure", [failure], sorted(catalogue.records))
    advisory = catalogue[failure]
    # Outside a checkout, a file of that name is not ours.
    checkout = any((root / "advisories").glob("*.yaml"))
    document = results.read(root / "reports" / "results.json") if checkout else None
    told = account.of(document, advisory) if document else account.shipped(failure)
    click.echo(click.style(advisory.title, bold=True))
    click.echo(f"{advisory.id} · {advisory.severity.replace('-', ' ')}")
    for heading, text in explanation.sections(advisory, told, checkout=checkout):
        click.echo(f"\n{click.style(heading, bold=True)}\n{terminal.lines(text)}")
