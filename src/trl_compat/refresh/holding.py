"""Packages that are held: they take only versions that were named, whatever is released.

A build of torch is gigabytes: who refreshes on a small machine holds it to builds that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.version import InvalidVersion, Version

from trl_compat.errors import BadInput
from trl_compat.files.names import require_known
from trl_compat.packages import PACKAGES
from trl_compat.shipped.releases import Releases
from trl_compat.stacks.environments import cache

Holds = Mapping[str, tuple[Version, ...]]
"""The versions that each held package may take, oldest first."""


def parse(texts: Iterable[str], releases: Releases) -> dict[str, tuple[Version, ...]]:
    """What ``--hold`` says: ``torch=2.13.0,2.15.0``, or ``torch`` for the builds in the cache.

    Raises:
        BadInput: an unknown package, a version that was never released or was yanked, or no
            version at all.
    """
    held: dict[str, tuple[Version, ...]] = {}
    for text in texts:
        package, _, versions = text.partition("=")
        require_known("package", [package.strip()], PACKAGES)
        package = package.strip()
        named = [word.strip() for word in versions.strip("= ").split(",") if word.strip()]
        found = {_version(package, word, releases) for word in named} or builds(package)
        if not found:
            raise BadInput(
                f"--hold {text}: no environment in {cache.root()} has a build of {package}; name "
                f"versions, e.g. --hold {package}={releases.newest(package)}"
            )
        held[package] = tuple(sorted(found))
    return held


def _version(package: str, text: str, releases: Releases) -> Version:
    try:
        version = Version(text)
    except InvalidVersion:
        raise BadInput(f"--hold {package}: '{text}' is not a version") from None
    if version > releases.newest(package):
        raise BadInput(
            f"--hold {package}: {version} is newer than the list of releases, which ends with "
            f"{releases.newest(package)} (as of {releases.as_of})"
        )
    if doubt := releases.doubt(package, version):
        raise BadInput(f"--hold {package}: {doubt}")
    return version


def builds(package: str) -> set[Version]:
    """The versions of a package in the environments of the cache, without their local part."""
    found = set()
    for lock in (cache.root() / "environments").glob("*/lock.txt"):
        text = lock.read_text(encoding="utf-8", errors="replace")
        for version in re.findall(rf"(?m)^{package}==([\w.!]+)", text):
            found.add(Version(version))
    return found
