"""``trl-compat explain``: an advisory, for people."""

from __future__ import annotations

from pathlib import Path

import click

from trl_compat.text import terminal


@click.command(epilog="Example: trl-compat explain ppo-zero3-save")
@click.argument("failure")
@click.pass_obj
def explain(root: Path, failure: str) -> None:
    """Explain FAILURE: what is seen, who is hit, why, since when, the fix and its proof.

    Proofs are those of reports/results.json, or, outside a checkout, of the results that the
    package came with; nothing is run.
    """
    from trl_compat import advisories, results
    from trl_compat.files.names import require_known
    from trl_compat.report import account, explanation

    catalogue = advisories.at_hand(root)
    require_known("failure", [failure], sorted(catalogue.records))
    advisory = catalogue[failure]
    # Elsewhere a file of that name is somebody else's.
    checkout = any((root / "advisories").glob("*.yaml"))
    document = results.read(root / "reports" / "results.json") if checkout else None
    told = account.of(document, advisory) if document else account.shipped(failure)
    click.echo(click.style(advisory.title, bold=True))
    click.echo(f"{advisory.id} · {advisory.severity.replace('-', ' ')}")
    for heading, text in explanation.sections(advisory, told, checkout=checkout):
        click.echo(f"\n{click.style(heading, bold=True)}\n{terminal.lines(text)}")
