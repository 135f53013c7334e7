"""``trl-compat schema``: the JSON Schemas of the project's files."""

from __future__ import annotations

import click


@click.command(epilog="Example: trl-compat schema > results.schema.json")
@click.option("--advisory", is_flag=True, help="Print the schema of an advisory.")
@click.option("--gate", is_flag=True, help="Print the schema of a gate report.")
@click.option("--stack-results", is_flag=True, help="Print the schema of results/<stack>.json.")
def schema(advisory: bool, gate: bool, stack_results: bool) -> None:
    """Print the JSON Schema of results.json, a stack's results, an advisory or a gate report."""
    import json

    if advisory:
        from trl_compat.advisories import Advisory

        click.echo(json.dumps(Advisory.model_json_schema(), indent=1))
        return
    if gate:
        from trl_compat.gate.report import GateReport

        click.echo(json.dumps(GateReport.model_json_schema(mode="serialization"), indent=1))
        return
    from trl_compat import results

    of = results.StackFile if stack_results else results.Head
    click.echo(json.dumps(of.model_json_schema(mode="serialization"), indent=1))
