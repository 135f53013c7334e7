"""``trl-compat refresh``: bring the shipped list of releases up to date."""

from __future__ import annotations

from pathlib import Path

import click

from trl_compat.errors import BadInput


@click.command(epilog="Example: trl-compat refresh")
@click.pass_obj
def refresh(root: Path) -> None:
    """Update the list of releases and their requirements from the package index.

    Needs the network. The requirements of a release never change, so only new ones are fetched.
    """
    import datetime
    import json
    import urllib.request
    from urllib.parse import urljoin

    from trl_compat.packages import PACKAGES
    from trl_compat.publishing import index_metadata
    from trl_compat.shipped import releases as known
    from trl_compat.shipped import requires

    folder = root / "src" / "trl_compat" / "shipped"
    if not (folder / "releases.json").is_file():
        raise BadInput(f"{folder}: no releases.json found; run this command in a checkout")
    documents, required = {}, {p: dict(by) for p, by in requires.known().items()}
    for package in PACKAGES:
        address = known.INDEX.format(package=package)
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                documents[package] = json.load(answer)
            listed = documents[package]["releases"]
            for version in requires.missing(package, listed, required):
                files = [{**f, "url": urljoin(address, f["url"])} for f in listed[version]]
                python = next((f["requires_python"] for f in files if f["requires_python"]), "")
                try:
                    lines = index_metadata.requirements(files)
                except index_metadata.NoMetadata:
                    click.echo(f"{package} {version}: declares no requirements", err=True)
                    lines = []
                required.setdefault(package, {})[version] = requires.of_release(lines, python)
        except (OSError, ValueError) as error:
            raise BadInput(f"{address}: cannot be read ({error}); nothing was changed") from None
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    found = known.fetched(documents, today)
    (folder / "releases.json").write_text(known.written(found), encoding="utf-8")
    (folder / "requires.json").write_text(requires.written(required), encoding="utf-8")
    said = ", ".join(f"{package} {found.newest(package)}" for package in PACKAGES)
    click.echo(f"newest as of {today}: {said}")
