"""Which fix of an advisory applies to given versions.

Pure, except for :func:`installed`, which reads the metadata of the environment and imports no
package.  A version that is neither given nor installed is unknown.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from trl_compat.advisories import Advisory, Affected, Fix, Scope
from trl_compat.errors import BadInput
from trl_compat.files.names import require_known
from trl_compat.packages import PACKAGES
from trl_compat.ranges import Answer, holds, of_named

KnownVersions = Mapping[str, Version]


@dataclass(frozen=True)
class FixAnswer:
    """What an advisory means for some versions.

    Attributes:
        fix: the one to take; None if none is needed or none is for these versions.
        hit: the scopes that cover the versions, or may: a version of theirs is unknown.
        certain: whether no version that counts is unknown.
    """

    fix: Fix | None
    hit: tuple[Affected, ...]
    certain: bool


def installed() -> dict[str, Version]:
    """The versions of the packages in this environment; imports none of them."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = Version(importlib.metadata.version(package))
        except (importlib.metadata.PackageNotFoundError, InvalidVersion):
            continue
    return found


def named(given: Mapping[str, str | None]) -> dict[str, Version]:
    """The versions that were named.

    Raises:
        BadInput: one is no version.
    """
    found = {}
    for package, text in given.items():
        if text is None:
            continue
        try:
            found[package] = Version(text)
        except InvalidVersion:
            raise BadInput(
                f"--{package} {text}: not a version; write, for example, 0.14.0"
            ) from None
    return found


def remedy(advisory: Advisory, versions: KnownVersions, wanted: str | None = None) -> FixAnswer:
    """What to do about an advisory with these versions.

    Raises:
        BadInput: the wanted fix is not one of the advisory's.
    """
    if wanted is not None:
        require_known("fix", [wanted], [fix.name for fix in advisory.fixes])
    seen = [(scope, _covers(scope, versions)) for scope in advisory.affected]
    hit = tuple(scope for scope, covered in seen if covered is not Answer.NO)
    fixes = [fix for fix in advisory.fixes if wanted in (None, fix.name) and suits(fix, versions)]
    certain = not any(covered is Answer.UNKNOWN for _, covered in seen)
    return FixAnswer(fixes[0] if hit and fixes else None, hit, certain)


def suits(fix: Fix, versions: KnownVersions) -> bool:
    """Whether a fix is for these versions, as far as they are known."""
    return _covers(fix, versions) is not Answer.NO


def _covers(scope: Scope | Fix, versions: KnownVersions) -> Answer:
    """Whether a scope covers the versions."""
    if scope.commits and not scope.versions:
        return Answer.NO  # a tree between releases; whoever has one names it in a matrix's stack
    return holds(scope.versions, {}, of_named(versions), lambda _: None)[0]
