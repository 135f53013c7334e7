"""Version ranges, and whoever has versions that are asked about them."""

from __future__ import annotations

from typing import Protocol

from packaging.version import Version


class HasVersions(Protocol):
    """Anything that knows versions of packages: a stack, or what a user has (see ``sources``)."""

    def version(self, package: str) -> Version | None:
        """The release of a package; None where there is none or a git commit is taken."""

    def commit(self, package: str) -> str | None:
        """The git commit of a package; None where a release is taken."""
