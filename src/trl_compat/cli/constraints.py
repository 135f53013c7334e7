"""``trl-compat constraints``: pip constraints that avoid a failure."""

from __future__ import annotations

import click

from trl_compat.errors import BadInput


@click.command(
    epilog="Example: trl-compat constraints --avoid online-dpo-ref-none > constraints.txt"
)
@click.option(
    "--avoid", "failures", multiple=True, required=True, help="Failure to avoid; repeatable."
)
@click.option(
    "--given", multiple=True, metavar="NAME==VERSION", help="Version to keep; repeatable."
)
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Condition of your setup; repeatable.",
)
def constraints(
    failures: tuple[str, ...], given: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Print pip constraints that avoid known failures, for pip install -c.

    Comments name the patch that needs no constraints, and everything that constraints cannot
    express.

    Exit code 0: constraints exist, or none are needed; 2: bad input, or pip constraints cannot
    express it.
    """
    from trl_compat.shipped import records
    from trl_compat.upgrade import constraints as ways
    from trl_compat.usage.conditions import UsageBuilder

    versions = _versions(given)
    conditions = UsageBuilder()
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {option}: write NAME=VALUE")
        conditions.say(name.strip(), (value,), f"--set {option}")
    wanted = [records.shipped_record(failure) for failure in failures]
    known = records.shipped()
    found = [ways.avoid(record, versions, conditions.values, known) for record in wanted]
    for avoidance in found:
        if avoidance.concerned and not avoidance.ways:
            kept = f" with {', '.join(given)}" if given else ""
            patch = ways.patch(avoidance.record, versions)
            instead = f"{patch}; or" if patch else "give other versions with --given, or"
            raise BadInput(
                f"{avoidance.record.id}: pip constraints cannot express it{kept}: no releases of a "
                f"single package avoid it and bring no other failure; {instead} run: trl-compat "
                "doctor FILE"
            )
    for avoidance in found:
        click.echo(ways.text(avoidance, versions), nl=False)


def _versions(given: tuple[str, ...]) -> dict[str, str]:
    from packaging.version import InvalidVersion, Version

    from trl_compat.packages import PACKAGES

    versions = {}
    for text in given:
        name, _, version = text.partition("==")
        if name.strip().lower() not in PACKAGES:
            raise BadInput(f"--given {text}: '{name}' is not one of {', '.join(PACKAGES)}")
        try:
            versions[name.strip().lower()] = str(Version(version))
        except InvalidVersion:
            raise BadInput(f"--given {text}: write NAME==VERSION") from None
    return versions
