"""``trl-compat fix``: the smallest fix of a failure, as text to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trl_compat.cli import have
from trl_compat.errors import BadInput
from trl_compat.packages import SHOWN_PACKAGES

if TYPE_CHECKING:
    from trl_compat.advisories import Advisory, Catalogue, Fix
    from trl_compat.advisories.remedies import FixAnswer, KnownVersions


def version_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option per package, for a version other than the installed one."""
    for package in reversed(SHOWN_PACKAGES):
        add = click.option(
            f"--{package}", metavar="VERSION", help=f"Assume this version of {package}."
        )
        command = add(command)
    return command


@click.command(epilog="Example: trl-compat fix ppo-zero3-save --trl 0.12.2")
@click.argument("failure", required=False)
@click.argument("file", required=False)
@click.option(
    "--python",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Use the versions in the environment of this interpreter.",
)
@version_options
@click.option("--fix", "name", help="Name of the fix; default: the first of --list.")
@click.option("--standalone", is_flag=True, help="Print code that does not import trl_compat.")
@click.option(
    "--list", "listing", is_flag=True, help="List the fixes of FAILURE, or of all failures."
)
@click.pass_obj
def fix(
    root: Path,
    /,
    failure: str | None,
    file: str | None,
    python: Path | None,
    name: str | None,
    standalone: bool,
    listing: bool,
    **given: str | None,
) -> None:
    """Print the smallest fix of FAILURE for the installed versions, those of FILE, or given ones.

    The output is Python code: paste it into the training script before the trainer is created.
    """
    from trl_compat import advisories
    from trl_compat.advisories import remedies
    from trl_compat.files.names import require_known

    catalogue = advisories.load_available(root)
    if failure is not None:
        require_known("failure", [failure], sorted(catalogue.records))
    if listing:
        _list(catalogue, [failure] if failure else sorted(catalogue.records))
        return
    if failure is None:
        raise click.UsageError("name a FAILURE; --list shows all of them")
    advisory = catalogue[failure]
    versions = {**_versions(file, python), **remedies.named(given)}
    found = remedies.remedy(advisory, versions, name)
    text = (
        _text(found.fix, [f for f in advisory.fixes if remedies.suits(f, versions)], standalone)
        if found.fix
        else ""
    )
    click.echo(_comment(f"{advisory.id}: {advisory.title}."))
    click.echo(_comment(_situation(advisory, found, versions)))
    if found.hit and found.fix is None:
        for sentence in _instead(advisory, catalogue, versions):
            click.echo(_comment(sentence))
    if found.fix is not None and found.fix.cost:
        click.echo(_comment(f"Cost: {found.fix.cost}"))
    if text:
        click.echo(text.rstrip())


def _versions(file: str | None, python: Path | None) -> KnownVersions:
    """The versions of what is named; of this environment if nothing is."""
    from trl_compat.advisories import remedies
    from trl_compat.packages import PACKAGES

    if file is None and python is None:
        return remedies.installed()
    source = have.source_of(file, python)
    found = {package: source.version(package) for package in PACKAGES}
    return {package: version for package, version in found.items() if version is not None}


def _text(fix: Fix, others: Sequence[Fix], standalone: bool) -> str:
    """What to paste.

    Raises:
        BadInput: the standalone form is requested and there is none.
    """
    if not standalone:
        return fix.snippet
    if not fix.standalone:
        names = [other.name for other in others if other.standalone]
        hint = f"; a fix that has one: --fix {names[0]}" if names else ""
        raise BadInput(f"{fix.name} has no standalone form{hint}")
    return fix.standalone


def _situation(advisory: Advisory, found: FixAnswer, versions: KnownVersions) -> str:
    """Whether these versions are hit, and under which conditions."""
    from trl_compat.report import wording

    counted = {package for scope in advisory.affected for package in scope.versions}
    have = ", ".join(f"{p} {versions[p]}" for p in SHOWN_PACKAGES if p in versions and p in counted)
    if not found.hit:
        ranges = dict.fromkeys(wording.releases(s) for s in advisory.affected if s.versions)
        return f"Not needed with {have}; affected: {'; '.join(ranges)}."
    if found.fix is None and advisory.fixes:
        return f"Affected with {have}, but this fix does not support these versions; see --list."
    if found.fix is None:
        return f"Affected with {have}; no patch is known." if have else "No patch is known."
    scopes = (wording.when(advisory, scope) or "always" for scope in found.hit)
    when = "; or ".join(dict.fromkeys(scopes))
    if found.certain:
        return f"Needed with {have} ({when})."
    known = f" with {have}" if have else ""
    missing = ", ".join(p for p in SHOWN_PACKAGES if p in counted and p not in versions)
    return (
        f"May be needed{known} ({when}); versions not installed and not given: {missing}. The fix "
        "changes affected releases only."
    )


def _instead(advisory: Advisory, catalogue: Catalogue, versions: KnownVersions) -> Iterator[str]:
    """What helps these versions without a patch, each release checked against all records."""
    from trl_compat.advisories import compiling
    from trl_compat.stacks.sources.source import Source
    from trl_compat.upgrade.recommend import Adviser, options

    given = {package: str(version) for package, version in versions.items()}
    source = Source("the versions", "environment", versions=given, complete=False)
    records = compiling.records(catalogue)
    found = Adviser(records, source, {}).ways(records[advisory.id])
    yield from (way.text for way in found.ways)
    for option in options(records[advisory.id], source):
        yield f"Set {option.option}.{option.note and ' ' + option.note}"
    yield from filter(None, (found.none, " ".join(advisory.advice.split())))


def _comment(text: str) -> str:
    return textwrap.fill(
        text, 96, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def _list(catalogue: Catalogue, failures: list[str]) -> None:
    for failure in failures:
        advisory = catalogue[failure]
        click.echo(f"{failure}: {advisory.title}")
        for known in advisory.fixes:
            click.echo(f"  {known.name}: {known.summary}")
        if not advisory.fixes:
            click.echo(f"  no patch; see trl-compat explain {failure}")
