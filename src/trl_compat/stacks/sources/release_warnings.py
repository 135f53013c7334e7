"""Versions that no index offers, or no longer offers, according to the shipped list of releases."""

from __future__ import annotations

from packaging.version import Version

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.shipped import releases
from trl_compat.stacks.sources.source import Source


def release_warnings(source: Source) -> tuple[str, ...]:
    """A sentence for each version under test that is yanked, unknown, or newer than the list."""
    known = releases.known()
    said = []
    for package in PACKAGES:
        version = source.version(package)
        if version is None:
            continue
        doubt = known.doubt(package, version)
        if _own_build(package, version):
            doubt = (
                f"{package} {version} is a build between two releases: which failures of either "
                "it has cannot be determined"
            )
        elif doubt is None and version > known.of(package)[-1]:
            doubt = (
                f"{package} {version} is newer than the newest known release, "
                f"{known.newest(package)} (as of {known.as_of}): open-ended ranges may not apply"
            )
        said += [doubt] if doubt else []
    return tuple(said)


def refuse_doubtful(source: Source) -> None:
    """Refuses a file with a version that cannot be installed any more, or never could.

    What is installed is there, whatever the index says of it, and is not refused.

    Raises:
        BadInput: a yanked version, or one that was never released.
    """
    for package in PACKAGES:
        version = source.version(package)
        if version is None or _own_build(package, version):
            continue
        doubt = releases.known().doubt(package, version)
        if doubt and source.path is not None:
            raise BadInput(f"{source.name}: {doubt}")


def _own_build(package: str, version: Version) -> bool:
    """Whether it is a vendor's build of what was no release, such as NVIDIA's 2.6.0a0+ecf3bae."""
    listed = releases.known()
    return (
        version.is_prerelease and version.local is not None and not listed.exists(package, version)
    )
