"""The releases that the package index has, and what they require of each other.

Everything is read before anything is written: an index that stops answering in the middle leaves
the shipped lists as they are.
"""

from __future__ import annotations

import http.client
import json
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from trl_compat.errors import BadInput
from trl_compat.files.writing import write_atomically
from trl_compat.packages import PACKAGES
from trl_compat.publishing import index_metadata
from trl_compat.shipped import releases as known
from trl_compat.shipped import requires
from trl_compat.shipped.releases import Releases

TIMEOUT = 60
NO_ANSWER = (
    AttributeError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    http.client.HTTPException,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@dataclass(frozen=True)
class Found:
    """What the index has.

    Attributes:
        silent: releases whose files declare no requirements.
    """

    releases: Releases
    requires: requires.Requires
    silent: tuple[str, ...]


def lists(root: Path) -> Path:
    """The folder of the shipped lists.

    Raises:
        BadInput: the project is no checkout.
    """
    folder = root / "src" / "trl_compat" / "shipped"
    if not (folder / "releases.json").is_file():
        raise BadInput(f"{folder}: no releases.json found; run this command in a checkout")
    return folder


def ask(today: str, index: str = known.INDEX) -> Found:
    """Asks the index; the requirements of a release never change, so only new ones are fetched.

    Raises:
        BadInput: it does not answer, or not as an index does; says which package it was asked for.
    """
    documents: dict[str, Any] = {package: {"releases": {}} for package in PACKAGES}
    required = {package: dict(by) for package, by in requires.known().items()}
    silent: list[str] = []
    for package in PACKAGES:
        address = index.format(package=package)
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
                documents[package] = json.load(answer)
            listed = documents[package]["releases"]
            for version in requires.missing(package, listed, required):
                files = [{**f, "url": urljoin(address, f["url"])} for f in listed[version]]
                python = next((f["requires_python"] for f in files if f["requires_python"]), "")
                lines = _requirements(files)
                silent += [f"{package} {version}"] if lines is None else []
                found = requires.of_release(lines or [], python)
                required.setdefault(package, {})[version] = found
            releases = known.fetched(documents, today)
        except NO_ANSWER as error:
            said = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise BadInput(f"{address}: cannot be read ({said}); nothing was changed") from None
        if not releases.final(package):
            raise BadInput(f"{address}: lists no release; nothing was changed")
    return Found(releases, required, tuple(silent))


def _requirements(files: list[dict[str, Any]]) -> list[str] | None:
    """The requirements of a release, as its metadata has them; None if it declares none."""
    try:
        return index_metadata.requirements(files)
    except index_metadata.NoMetadata:
        return None


def write(folder: Path, found: Found) -> None:
    """Writes both lists."""
    write_atomically(folder / "releases.json", known.written(found.releases))
    write_atomically(folder / "requires.json", requires.written(found.requires))
