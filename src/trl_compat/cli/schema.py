"""``trl-compat schema``: the JSON Schema of results.json."""

from __future__ import annotations

import click


@click.command(epilog="Example: trl-compat schema > results.schema.json")
def schema() -> None:
    """Print the JSON Schema of results.json."""
    import json

    from trl_compat import results

    click.echo(json.dumps(results.json_schema(), indent=1))
